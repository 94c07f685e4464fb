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
    """The fetch position of one partition, and a limit of bytes. `current_leader_epoch` -1 = not checked.

    `last_fetched_epoch`: the leader epoch of the reader's last batch before `offset`; -1 = the leader compares nothing.
    `topic` is empty when a reader sent the topic id alone; the broker service fills the name in.
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
    session_id, session_epoch: those of a follower's fetch session (KIP-227); 0 and -1: no session, 0 and 0: a new one.
                   In a session `partitions` has the changed ones, `forgotten` the ids and numbers of removed ones.
    rack_id:       the consumer's rack, for a near replica (KIP-392); empty = unknown.
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
    """False when the client's version predates zstd (Fetch < 10): zstd batches then get error 76."""
    allows_follower: bool = True
    """False when the client's version predates fetching from followers (Fetch < 11): then only leaders answer."""

    def failed(self, error: ApiError) -> "FetchResult":
        if self.session_epoch > 0:
            # The request names changed partitions only. Without an error a follower would ask again at once, for ever.
            return FetchResult(partitions=(), error=error.code)
        return FetchResult(
            partitions=[
                FetchResultPartition(p.topic, p.partition, error.code, topic_id=p.topic_id) for p in self.partitions
            ]
        )


def region_bytes(records: Buffer | Region) -> str:
    """Return the text for records in a `repr`."""
    return f"<{size_of(records)} bytes>"


@quick_frozen
class AbortedTransaction:
    """An aborted transaction with records in the fetched range, from `first_offset` on."""

    producer_id: int
    first_offset: int


@quick_frozen
class DivergingEpoch:
    """The point where the reader's log diverges: the leader's largest epoch up to the reader's, and its end."""

    epoch: int
    end_offset: int


@quick_frozen
class CurrentLeader:
    """The current leader, as far as the answering broker knows (KIP-951)."""

    leader_id: int
    leader_epoch: int


@quick_frozen
class FetchResultPartition:
    """The records of one partition.

    `records` are whole record batches, except that the size limit may cut the last one, and the first may begin before
    the fetch offset. High watermark and last stable offset are exclusive; -1 on error. `aborted` comes with isolation
    level 1, in no order; None: not requested.

    diverging:              set, without records, if the reader's log differs from the leader's (KIP-595).
    current_leader:         comes with an error that another broker leads (KIP-951).
    preferred_read_replica: set, without records, if this broker is nearer to the reader (KIP-392); -1 = none.
    topic_id:               the id in the request.
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
    """Every requested partition, in the order of the request. `nodes`: the addresses of the current leaders."""

    partitions: Sequence[FetchResultPartition]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0
    nodes: Sequence[BrokerNode] = ()
    session_id: int = 0
    """The id of a follower's fetch session; the partitions are then those with something new."""
