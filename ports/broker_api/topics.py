"""CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37)."""

from collections.abc import Mapping, Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .configs import ConfigEntry
from .envelope import Request


@frozen(kw_only=True)
class NewTopic:
    """A topic to create.

    Counts of -1 mean the broker's defaults; `assignments` (partition → broker ids) excludes counts.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = {}


@frozen(kw_only=True)
class CreateTopics(Request["CreateTopicsResult"]):
    """Create topics. `allows_throttling`: the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599, from version 6)."""

    topics: Sequence[NewTopic]
    timeout_ms: int = 60_000
    validate_only: bool = False
    allows_throttling: bool = True

    def failed(self, error: ApiError) -> "CreateTopicsResult":
        return CreateTopicsResult(
            topics=[CreatedTopic(name=t.name, error=error.code, error_message=error.message) for t in self.topics]
        )


@frozen(kw_only=True)
class CreatedTopic:
    """The outcome for one topic; counts and configs are -1 and None on error."""

    name: str
    topic_id: bytes = bytes(16)
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[ConfigEntry] | None = None
    configs_error: ErrorCode = ErrorCode.NONE
    """The reason for hidden counts and configs."""


@frozen(kw_only=True)
class CreateTopicsResult:
    topics: Sequence[CreatedTopic]
    throttle_ms: int = 0


@frozen(kw_only=True)
class DeleteTopics(Request["DeleteTopicsResult"]):
    """Delete topics. `allows_throttling`: the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599, from version 5)."""

    names: Sequence[str]
    topic_ids: Sequence[bytes] = ()
    timeout_ms: int = 60_000
    allows_throttling: bool = True

    def failed(self, error: ApiError) -> "DeleteTopicsResult":
        code, text = error.code, error.message
        topics = [DeletedTopic(name=name, error=code, error_message=text) for name in self.names]
        topics += [DeletedTopic(name=None, topic_id=id_, error=code, error_message=text) for id_ in self.topic_ids]
        return DeleteTopicsResult(topics=topics)


@frozen(kw_only=True)
class DeletedTopic:
    """The outcome for one topic; `name` is None if the request had an unknown id."""

    name: str | None
    topic_id: bytes = bytes(16)
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteTopicsResult:
    topics: Sequence[DeletedTopic]
    throttle_ms: int = 0


@frozen(kw_only=True)
class NewPartitions:
    """Grow a topic to `count` partitions in total; `assignments` lists the replicas of each partition that is added."""

    topic: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@frozen(kw_only=True)
class CreatePartitions(Request["TopicOutcomes"]):
    """Add partitions. `allows_throttling`: the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599, from version 3)."""

    topics: Sequence[NewPartitions]
    timeout_ms: int = 60_000
    validate_only: bool = False
    allows_throttling: bool = True

    def failed(self, error: ApiError) -> "TopicOutcomes":
        return TopicOutcomes(
            topics=[TopicOutcome(name=t.topic, error=error.code, error_message=error.message) for t in self.topics]
        )


@frozen(kw_only=True)
class TopicOutcome:
    """The outcome for one topic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class TopicOutcomes:
    topics: Sequence[TopicOutcome]
    throttle_ms: int = 0


@frozen(kw_only=True)
class DeleteRecordsPartition:
    """Drop every record below `offset`; -1 = below the high watermark."""

    topic: str
    partition: int
    offset: int


@frozen(kw_only=True)
class DeleteRecords(Request["DeleteRecordsResult"]):
    partitions: Sequence[DeleteRecordsPartition]
    timeout_ms: int = 60_000

    def failed(self, error: ApiError) -> "DeleteRecordsResult":
        return DeleteRecordsResult(
            partitions=[
                DeleteRecordsResultPartition(topic=p.topic, partition=p.partition, error=error.code)
                for p in self.partitions
            ]
        )


@frozen(kw_only=True)
class DeleteRecordsResultPartition:
    """`low_watermark` is the new log start offset; -1 on error."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = -1


@frozen(kw_only=True)
class DeleteRecordsResult:
    partitions: Sequence[DeleteRecordsResultPartition]
    throttle_ms: int = 0
