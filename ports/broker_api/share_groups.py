"""Share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77), ShareFetch (78), ShareAcknowledge (79).

Partitions go by the ids of their topics; `topic` is the name that the broker's end puts in, empty if no topic has the
id. The group coordinator answers 76 and 77; the leaders of the partitions answer 78 and 79.
"""

from collections.abc import Sequence
from enum import IntEnum

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..storage import Region
from ..types import Buffer
from ..values import frozen, quick_frozen
from .cluster import BrokerNode
from .consumer_groups import DescribedTopicPartitions, TopicIdPartitions
from .envelope import Request
from .fetch import CurrentLeader, region_bytes
from .operations import NO_AUTHORIZED_OPERATIONS

INITIAL_SHARE_SESSION_EPOCH = 0
"""The epoch that opens a share session. The next requests count from 1."""
FINAL_SHARE_SESSION_EPOCH = -1
"""The epoch that closes a share session and releases the records that the member has acquired."""
SHARE_SESSION_EPOCH_MAX = 0x7FFFFFFF


def next_share_session_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`: 1 follows the largest one. The final epoch stays."""
    if epoch < 0:
        return FINAL_SHARE_SESSION_EPOCH
    return 1 if epoch == SHARE_SESSION_EPOCH_MAX else epoch + 1


class AcknowledgeType(IntEnum):
    """A member's decision about a record that it has acquired."""

    GAP = 0
    """There is no such record: compaction removed it, or it is a control record."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again."""
    REJECT = 3
    """Do not deliver it again: it cannot be processed."""
    RENEW = 4
    """Lock it for longer; only from version 2 on."""


class ShareAcquireMode(IntEnum):
    """The way in which a leader limits a share fetch to `max_records`."""

    BATCH_OPTIMIZED = 0
    """A leader acquires whole record batches, which may be more records."""
    RECORD_LIMIT = 1
    """A leader never acquires more than `max_records`; only from version 2 on."""


# --- 76


@quick_frozen(kw_only=True)
class ShareGroupHeartbeat(Request["ShareGroupHeartbeatResult"]):
    """Join, stay in or leave a share group.

    `member_epoch` 0 joins, -1 leaves. None means: as it was in the last heartbeat. The client makes `member_id`.
    """

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None

    def failed(self, error: ApiError) -> "ShareGroupHeartbeatResult":
        return ShareGroupHeartbeatResult(error=error.code, error_message=error.message)


@quick_frozen(kw_only=True)
class ShareGroupHeartbeatResult:
    """The member's epoch, and its assignment where that has changed: None = as before."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Sequence[TopicIdPartitions] | None = None
    throttle_ms: int = 0


# --- 77


@frozen(kw_only=True)
class ShareGroupDescribe(Request["ShareGroupDescribeResult"]):
    """Describe share groups; groups of another type get GROUP_ID_NOT_FOUND."""

    group_ids: Sequence[str]
    include_authorized_operations: bool = False

    def failed(self, error: ApiError) -> "ShareGroupDescribeResult":
        return ShareGroupDescribeResult(
            groups=[
                ShareGroupDescription(group_id=group_id, error=error.code, error_message=error.message)
                for group_id in self.group_ids
            ]
        )


@frozen(kw_only=True)
class ShareGroupMember:
    """One member and its assignment."""

    member_id: str
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    assignment: Sequence[DescribedTopicPartitions] = ()


@frozen(kw_only=True)
class ShareGroupDescription:
    """One group. `group_state` is Empty, Stable or Dead."""

    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[ShareGroupMember] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the group (see `operations`)."""


@frozen(kw_only=True)
class ShareGroupDescribeResult:
    """The groups in the order of the request."""

    groups: Sequence[ShareGroupDescription]
    throttle_ms: int = 0


# --- 78


@quick_frozen
class AcknowledgementBatch:
    """The records from `first_offset` to `last_offset`, both included.

    `acknowledge_types` has one byte for each of them, or a single one for all: the numbers of `AcknowledgeType`. The
    bytes are those of the client; a broker must check them.
    """

    first_offset: int
    last_offset: int
    acknowledge_types: bytes


@quick_frozen
class ShareFetchPartition:
    """A partition that joins the share session, or that the request has acknowledgements for."""

    topic_id: bytes
    partition: int
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()
    topic: str = ""


@quick_frozen
class ForgottenSharePartition:
    """A partition that leaves the share session. What the member has acquired of it stays acquired."""

    topic_id: bytes
    partition: int
    topic: str = ""


@quick_frozen(kw_only=True)
class ShareFetch(Request["ShareFetchResult"]):
    """Acquire records of the partitions of a share session, and acknowledge earlier ones.

    A session belongs to (group, member) and to the connection. `share_session_epoch` 0 opens it with all `partitions`;
    later requests list the partitions that are new and those with acknowledgements. -1 closes it: the acknowledgements
    are applied, and all else that the member has acquired is released.

    max_records: about how many records are acquired; `share_acquire_mode` says how strictly.
    batch_size:  the best number of records for each of the acquired ranges.
    is_renew_ack: the acknowledgements contain RENEW; then nothing is fetched, and `max_wait_ms`, `min_bytes`,
                 `max_bytes` and `max_records` must be 0.
    """

    group_id: str
    member_id: str
    share_session_epoch: int
    partitions: Sequence[ShareFetchPartition] = ()
    forgotten: Sequence[ForgottenSharePartition] = ()
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    max_records: int = 500
    batch_size: int = 500
    share_acquire_mode: int = ShareAcquireMode.BATCH_OPTIMIZED
    is_renew_ack: bool = False
    allows_renew: bool = True
    """False in version 1, in which RENEW is an invalid acknowledgement."""

    def failed(self, error: ApiError) -> "ShareFetchResult":
        return ShareFetchResult(error=error.code, error_message=error.message)


@quick_frozen
class AcquiredRecords:
    """The records from `first_offset` to `last_offset`, locked for the member and delivered for the nth time."""

    first_offset: int
    last_offset: int
    delivery_count: int


@quick_frozen
class ShareFetchResultPartition:
    """The records that a share fetch has acquired of one partition, and the outcome of its acknowledgements.

    `records` are whole record batches; only the records in `acquired_records` are for the member.

    current_leader: comes with an error that another broker leads (KIP-951).
    """

    topic_id: bytes
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acknowledge_error: ErrorCode = ErrorCode.NONE
    acknowledge_error_message: str | None = None
    current_leader: CurrentLeader | None = None
    records: Buffer | Region = field(default=b"", repr=region_bytes)
    acquired_records: Sequence[AcquiredRecords] = ()


@quick_frozen(kw_only=True)
class ShareFetchResult:
    """The partitions with records, acknowledgements or an error. `nodes`: the addresses of the current leaders."""

    partitions: Sequence[ShareFetchResultPartition] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    nodes: Sequence[BrokerNode] = ()
    throttle_ms: int = 0


# --- 79


@quick_frozen
class ShareAcknowledgePartition:
    """Acknowledgements of records of one partition."""

    topic_id: bytes
    partition: int
    acknowledgement_batches: Sequence[AcknowledgementBatch]
    topic: str = ""


@quick_frozen(kw_only=True)
class ShareAcknowledge(Request["ShareAcknowledgeResult"]):
    """Acknowledge records in a share session, without fetching. An epoch of -1 closes the session, too."""

    group_id: str
    member_id: str
    share_session_epoch: int
    partitions: Sequence[ShareAcknowledgePartition] = ()
    is_renew_ack: bool = False
    allows_renew: bool = True
    """False in version 1, in which RENEW is an invalid acknowledgement."""

    def failed(self, error: ApiError) -> "ShareAcknowledgeResult":
        return ShareAcknowledgeResult(error=error.code, error_message=error.message)


@quick_frozen
class ShareAcknowledgeOutcome:
    """The outcome for one partition. `current_leader` comes with an error that another broker leads (KIP-951)."""

    topic_id: bytes
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


@quick_frozen(kw_only=True)
class ShareAcknowledgeResult:
    """The outcomes by partition. `acquisition_lock_timeout_ms` is in version 2 only: for how long RENEW locks."""

    partitions: Sequence[ShareAcknowledgeOutcome] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    nodes: Sequence[BrokerNode] = ()
    throttle_ms: int = 0
