"""The requests of the classic generation: the APIs of Kafka 0.7 brokers (facts A1, A3).

Produce and multi-produce are one request here, as are fetch and multi-fetch. Offsets are byte positions in the log of a
partition; partitions are numbered per broker. Error codes 1 to 4 and -1 mean in the classic protocol what they mean in
`ErrorCode`, under other names (3 is its WrongPartition, 4 its InvalidFetchSize).
"""

from collections.abc import Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..storage import Region
from ..types import Buffer
from ..values import frozen
from .envelope import Request
from .fetch import region_bytes

RANDOM_PARTITION = -1
"""A partition of a produce request: the broker chooses a random partition of the topic."""


@frozen
class ClassicProducePartition:
    """A classic message set to append to one partition, or to `RANDOM_PARTITION`.

    The memory is the callee's until `submit` returns.
    """

    topic: str
    partition: int
    records: memoryview = field(repr=lambda records: f"<{len(records)} bytes>")


@frozen(kw_only=True)
class ClassicProduce(Request["ClassicProduceResult"]):
    """Append message sets, in their order. The classic wire has no answer to it."""

    partitions: Sequence[ClassicProducePartition]


@frozen
class ClassicProduceResultPartition:
    """The outcome for one set: the partition that got it, and `next_offset`, the log end after it or -1 on error."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    next_offset: int = -1
    error_message: str | None = None


@frozen(kw_only=True)
class ClassicProduceResult:
    """The outcomes in the order of the request. It is empty over the wire, where the broker does not answer: it then
    means that the request was handed to the network."""

    partitions: Sequence[ClassicProduceResultPartition] = ()


@frozen
class ClassicFetchPartition:
    """Read at most `max_bytes` of a partition from byte position `offset` on."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


@frozen(kw_only=True)
class ClassicFetch(Request["ClassicFetchResult"]):
    """Read message sets. The broker answers at once, with empty sets at the end of the log."""

    partitions: Sequence[ClassicFetchPartition]


@frozen
class ClassicFetchResultPartition:
    """A message set from exactly the offset asked for; it may end in a part of a message."""

    error: ErrorCode = ErrorCode.NONE
    records: Buffer | Region = field(default=b"", repr=region_bytes)


@frozen(kw_only=True)
class ClassicFetchResult:
    """Every partition asked for, in the order of the request."""

    partitions: Sequence[ClassicFetchResultPartition]


@frozen(kw_only=True)
class ClassicOffsets(Request["ClassicOffsetsResult"]):
    """At most `max_offsets` offsets of segments that were begun before `time_ms`, newest first; LATEST, EARLIEST."""

    topic: str
    partition: int
    time_ms: int
    max_offsets: int


@frozen(kw_only=True)
class ClassicOffsetsResult:
    """Descending. With an error there are none."""

    offsets: Sequence[int] = ()
    error: ErrorCode = ErrorCode.NONE
