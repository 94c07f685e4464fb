"""Fetch (API key 1)."""

from collections.abc import Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..storage import Region, size_of
from ..types import Buffer
from ..values import quick_frozen
from .cluster import BrokerNode
from .envelope import Request
from .metadata import NO_TOPIC_ID


@quick_frozen
class FetchPartition:
    """Where to read, and at most how many bytes of it. `current_leader_epoch` -1 = not checked.

    `last_fetched_epoch`: that of the reader's last batch before `offset`; -1 = the leader compares nothing. `topic` is
    empty where a reader named the topic by its id alone; whoever knows the topics puts the name in.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    log_start_offset: int = -1
    last_fetched_epoch: int = -1
    topic_id: bytes = NO_TOPIC_ID


@quick_frozen(kw_only=True)
class Fetch(Request["FetchResult"]):
    """Read record batches; waits up to `max_wait_ms` for `min_bytes`.

    replica_id:    -1 = a consumer; else the broker that follows, and `replica_epoch` is that of its registration.
    session_id, session_epoch: of a follower's fetch session (KIP-227); 0 and -1: without one, 0 and 0: it begins one.
                   Within one, `partitions` are those that have changed, `forgotten` the ids and numbers of those gone.
    rack_id:       where the consumer is, for a replica near it (KIP-392); empty = it does not say.
    """

    partitions: Sequence[FetchPartition]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    replica_id: int = -1
    replica_epoch: int = -1
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[bytes, int]] = ()
    rack_id: str = ""
    allows_zstd: bool = True
    """False when the client's version predates zstd (Fetch < 10): zstd batches are then answered with error 76."""
    allows_follower: bool = True
    """False when the client's version predates reading from followers (Fetch < 11): only leaders answer then."""

    def failed(self, error: ApiError) -> "FetchResult":
        return FetchResult(
            partitions=[
                FetchResultPartition(p.topic, p.partition, error.code, topic_id=p.topic_id) for p in self.partitions
            ]
        )


def region_bytes(records: Buffer | Region) -> str:
    """How records show in a `repr`."""
    return f"<{size_of(records)} bytes>"


@quick_frozen
class AbortedTransaction:
    """A transaction that was aborted, of which records may be among those fetched: from `first_offset` on."""

    producer_id: int
    first_offset: int


@quick_frozen
class DivergingEpoch:
    """Where the reader's log parts from the leader's: the largest epoch up to the reader's, and where it ends."""

    epoch: int
    end_offset: int


@quick_frozen
class CurrentLeader:
    """Who leads instead, as far as the one who was asked knows."""

    leader_id: int
    leader_epoch: int


@quick_frozen
class FetchResultPartition:
    """What was read from one partition.

    `records` are whole record batches, except that the last may be cut short by the size limit, and the first may begin
    before the offset asked for. High watermark and last stable offset are exclusive; -1 on error. `aborted` comes with
    isolation level 1, in no order; None: nobody asked for it.

    diverging:              there are no records, since what the reader has is not what the leader has (KIP-595).
    current_leader:         with an error that says that another broker leads (KIP-951).
    preferred_read_replica: there are no records, since the reader has this broker nearer (KIP-392); -1 = none.
    topic_id:               as the request had it.
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | Region = field(default=b"", repr=region_bytes)
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: DivergingEpoch | None = None
    current_leader: CurrentLeader | None = None
    preferred_read_replica: int = -1
    topic_id: bytes = NO_TOPIC_ID


@quick_frozen(kw_only=True)
class FetchResult:
    """Every requested partition, in the order of the request. `nodes`: the addresses of the leaders that are told."""

    partitions: Sequence[FetchResultPartition]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0
    nodes: Sequence[BrokerNode] = ()
    session_id: int = 0
    """Of a follower's fetch session; the partitions are then those that have something new."""
