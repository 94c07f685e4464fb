"""Which replica of a partition a consumer should read from (KIP-392): what a selector is told, and what it says."""

from collections.abc import Sequence
from typing import Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.types import TopicPartition
from ....ports.values import frozen


@frozen(kw_only=True)
class NearReader:
    """The consumer, as it says itself; `host` is its address, `listener` what it came in on."""

    rack: str
    client_id: str | None
    host: str
    listener: str
    principal: Principal


@frozen(kw_only=True)
class ReplicaView:
    """A replica, as its leader knows it. `behind_ms`: since it last had everything; 0 for the leader."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: float


class ReplicaSelector(Protocol):
    """Chooses for one read. Called on the broker's owner thread, with each fetch: it must be quick."""

    def select(
        self, place: TopicPartition, reader: NearReader, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> int:
        """The id of the broker to read from. `replicas` are those that live and have what is asked for, the leader
        among them; any other answer means the leader."""
        ...
