"""What the pipeline asks of a cluster; `connect.py` fulfils it with the clients of `app`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from ..ports.words import TopicPartition

EARLIEST = -2
LATEST = -1
NO_OFFSET = -1


@frozen
class TopicInfo:
    """A topic as the cluster knows it; `topic_id` is "" where the cluster has none."""

    name: str
    partitions: int
    topic_id: str = ""


@frozen
class Columns:
    """Some consecutive records of one partition, a list per column, all of the same length.

    `next_offset` is where to read on: more than the last offset + 1 when the log has a gap there.
    """

    next_offset: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    log_append_time: Sequence[bool]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]]
    size_bytes: int = 0
    """About how much memory keys and values take."""


class Cluster(Protocol):
    """A connection to a cluster. Used by one thread at a time; every call may block and raises `BarnabasError`."""

    def topics(self) -> Mapping[str, TopicInfo]:
        """Every topic that is not internal."""
        ...

    def offsets(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Per partition the first offset whose record is of that time or later, or EARLIEST or LATEST; -1 = none."""
        ...

    def read(self, partition: TopicPartition, start: int, end: int, *, with_headers: bool = False) -> Iterable[Columns]:
        """The records with start ≤ offset < end, in pieces of bounded size; `headers` is empty unless asked for.

        `ApiError(OFFSET_OUT_OF_RANGE)` when the log no longer has `start`, or ends before `end`.
        """
        ...

    def close(self) -> None:
        """Give the connections back. Twice is harmless."""
        ...
