"""The start offsets of share groups (KIP-932): DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and
DeleteShareGroupOffsets (92). The group coordinator answers them.

Topics go by their names. `topic_id` in an answer is zero where no topic has the name.
"""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request
from .metadata import NO_TOPIC_ID
from .share_state import NO_START_OFFSET

UNKNOWN_LAG = -1


@frozen
class ShareGroupTopic:
    """Some partitions of one topic."""

    topic: str
    partitions: Sequence[int]


# --- 90


@frozen(kw_only=True)
class ShareGroupOffsetsQuery:
    """A share group, and the partitions that are asked for; `topics` None: all that the group has read."""

    group_id: str
    topics: Sequence[ShareGroupTopic] | None = None


@frozen(kw_only=True)
class DescribeShareGroupOffsets(Request["DescribeShareGroupOffsetsResult"]):
    """Return the start offsets of share groups, and their lag."""

    groups: Sequence[ShareGroupOffsetsQuery]

    def failed(self, error: ApiError) -> "DescribeShareGroupOffsetsResult":
        return DescribeShareGroupOffsetsResult(
            groups=[
                ShareGroupOffsets(group_id=each.group_id, error=error.code, error_message=error.message)
                for each in self.groups
            ]
        )


@frozen
class SharePartitionOffset:
    """The start offset of a share partition: -1 while it is not known. Every record below it is done with.

    `lag`, from version 1 on: the records between the start offset and the end of the log that are neither acknowledged
    nor archived; -1 where it is not known.
    """

    partition: int
    start_offset: int = NO_START_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class ShareTopicOffsets:
    """The start offsets of one topic."""

    topic: str
    topic_id: bytes = NO_TOPIC_ID
    partitions: Sequence[SharePartitionOffset] = ()


@frozen(kw_only=True)
class ShareGroupOffsets:
    """The start offsets of one share group."""

    group_id: str
    topics: Sequence[ShareTopicOffsets] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class DescribeShareGroupOffsetsResult:
    """The groups in the order of the request."""

    groups: Sequence[ShareGroupOffsets]
    throttle_ms: int = 0


# --- 91


@frozen
class SharePartitionStart:
    """The offset at which a share group is to read on in a partition."""

    topic: str
    partition: int
    start_offset: int


@frozen(kw_only=True)
class AlterShareGroupOffsets(Request["AlterShareGroupOffsetsResult"]):
    """Set start offsets of an empty share group: earlier deliveries in these partitions are forgotten."""

    group_id: str
    partitions: Sequence[SharePartitionStart]

    def failed(self, error: ApiError) -> "AlterShareGroupOffsetsResult":
        return AlterShareGroupOffsetsResult(error=error.code, error_message=error.message)


@frozen
class ShareStartOutcome:
    """The outcome for one partition."""

    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class AlteredShareTopic:
    """The outcomes for one topic."""

    topic: str
    topic_id: bytes = NO_TOPIC_ID
    partitions: Sequence[ShareStartOutcome] = ()


@frozen(kw_only=True)
class AlterShareGroupOffsetsResult:
    """The outcomes by topic, or an error of the whole request."""

    topics: Sequence[AlteredShareTopic] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0


# --- 92


@frozen(kw_only=True)
class DeleteShareGroupOffsets(Request["DeleteShareGroupOffsetsResult"]):
    """Delete what an empty share group knows of topics; it begins there again by `share.auto.offset.reset`."""

    group_id: str
    topics: Sequence[str]

    def failed(self, error: ApiError) -> "DeleteShareGroupOffsetsResult":
        return DeleteShareGroupOffsetsResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class DeletedShareTopic:
    """The outcome for one topic."""

    topic: str
    topic_id: bytes = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteShareGroupOffsetsResult:
    """The outcomes by topic, or an error of the whole request."""

    topics: Sequence[DeletedShareTopic] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
