"""Metadata (API key 3), and DescribeTopicPartitions (75), which answers in pages (KIP-966)."""

from collections.abc import Callable, Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .cluster import BrokerNode
from .envelope import Request
from .operations import NO_AUTHORIZED_OPERATIONS

NO_TOPIC_ID = bytes(16)


@frozen(kw_only=True)
class Metadata(Request["MetadataResult"]):
    """Ask for brokers, topics and leaders. `topics` None = all, empty = none; `topic_ids` adds topics by id."""

    topics: Sequence[str] | None = None
    topic_ids: Sequence[bytes] = ()
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    """Versions 8 to 10 only; DescribeCluster has them since."""
    include_topic_authorized_operations: bool = False

    def failed(self, error: ApiError) -> "MetadataResult | ApiError":
        topics = [TopicMetadata(name=name, error=error.code) for name in self.topics or ()]
        topics += [TopicMetadata(name=None, topic_id=topic_id, error=error.code) for topic_id in self.topic_ids]
        if not topics:
            return error
        return MetadataResult(brokers=(), cluster_id=None, controller_id=-1, topics=topics)


@frozen(kw_only=True)
class PartitionMetadata:
    """One partition; leader -1 = none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int] = ()
    error: ErrorCode = ErrorCode.NONE


@frozen(kw_only=True)
class TopicMetadata:
    """One topic; `name` is None if the request had an unknown id."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    internal: bool = False
    partitions: Sequence[PartitionMetadata] = ()
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the topic (see `operations`)."""
    encoded: dict[int, bytes] | None = field(default=None, eq=False, repr=False)
    """Not None: the value will be sent again, and a wire adapter caches its bytes here, by version."""


@frozen(kw_only=True)
class MetadataResult:
    """The answer, with the brokers' addresses for the caller's listener."""

    brokers: Sequence[BrokerNode]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[TopicMetadata]
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the cluster."""
    throttle_ms: int = 0
    encoded: dict[int, bytes] | None = field(default=None, eq=False, repr=False)
    """A cache of the bytes of the whole answer, by version, as in `TopicMetadata`."""


@frozen
class TopicPartitionCursor:
    """The first partition of a page."""

    topic: str
    partition: int


def _everything(_name: str) -> bool:
    return True


@frozen(kw_only=True)
class DescribeTopicPartitions(Request["DescribeTopicPartitionsResult"]):
    """Ask for the partitions of topics in the order of their names, at most `partitions_max`; `topics` None = all.

    `cursor` is that of the answer before; None: from the first topic on.
    """

    topics: Sequence[str] | None = None
    partitions_max: int = 2000
    cursor: TopicPartitionCursor | None = None
    is_visible: Callable[[str], bool] = field(default=_everything, eq=False, repr=False)
    """Not on the wire: returns False for a topic that the caller may not describe."""

    def failed(self, error: ApiError) -> "DescribeTopicPartitionsResult":
        topics = [DescribedTopic(name=name, error=error.code) for name in self.topics or ()]
        return DescribeTopicPartitionsResult(topics=topics)


@frozen(kw_only=True)
class PartitionDescription(PartitionMetadata):
    """One partition, with the replicas that may become its leader beyond the ISR (KIP-966); None: not known."""

    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None


@frozen(kw_only=True)
class DescribedTopic:
    """One topic with some of its partitions."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    internal: bool = False
    partitions: Sequence[PartitionDescription] = ()
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS


@frozen(kw_only=True)
class DescribeTopicPartitionsResult:
    """One page; `next_cursor` None: the last one."""

    topics: Sequence[DescribedTopic]
    next_cursor: TopicPartitionCursor | None = None
    throttle_ms: int = 0
