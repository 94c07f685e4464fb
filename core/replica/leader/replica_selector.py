"""The replica selector, which chooses the replica that a consumer should read from (KIP-392), and its arguments."""

from collections.abc import Sequence
from typing import Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.types import TopicPartition
from ....ports.values import frozen


@frozen(kw_only=True)
class NearReader:
    """The consumer as it describes itself; `host` is its address, `listener` the listener of its connection."""

    rack: str
    client_id: str | None
    host: str
    listener: str
    principal: Principal


@frozen(kw_only=True)
class ReplicaView:
    """A replica as its leader knows it. `behind_ms` is the time since it was last caught up; 0 for the leader."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: float


class ReplicaSelector(Protocol):
    """Chooses the replica for one read. Called on the broker's owner thread at each fetch: it must be quick."""

    def select(
        self, place: TopicPartition, reader: NearReader, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> int:
        """Return the id of the broker from which `reader` is to read.

        `replicas` are the live ones that have the offset, the leader among them; any other id means the leader.
        """
        ...
