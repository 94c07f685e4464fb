"""A cluster of plain lists, for what the pipeline decides; picklable, so that Spark tasks can have a copy."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import define, field

from barnabas.pipeline.topics.model import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    ClusterPartition,
    PartitionColumns,
    TopicInfo,
    Where,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value, headers."""


@define
class MemoryPartition:
    records: list[Record] = field(factory=list)
    start: int = 0
    end: int = 0

    def add(self, timestamp_ms: int, value: bytes, key: bytes | None = None) -> None:
        self.records.append((self.end, timestamp_ms, key, value, ()))
        self.end += 1

    def delete_before(self, offset: int) -> None:
        self.records = [record for record in self.records if record[0] >= offset]
        self.start = offset


@define
class MemoryCluster:
    logs: dict[str, list[MemoryPartition]] = field(factory=dict)
    ids: dict[str, str] = field(factory=dict)
    piece_rows: int = 100
    closed: bool = False

    def create(self, topic: str, partitions: int = 1, topic_id: str = "") -> list[MemoryPartition]:
        self.logs[topic] = [MemoryPartition() for _ in range(partitions)]
        self.ids[topic] = topic_id
        return self.logs[topic]

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        return {
            name: TopicInfo(name, [ClusterPartition(name, number) for number in range(len(parts))], self.ids[name])
            for name, parts in self.logs.items()
            if names is None or name in names
        }

    def offsets(self, places: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        return {p: self._offset(self.logs[p.topic][p.partition], timestamp_ms) for p in places}

    def read(
        self, place: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterator[PartitionColumns]:
        log = self.logs[place.topic][place.partition]
        if start < log.start or end > log.end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, str(place))
        wanted = [record for record in log.records if start <= record[0] < end]
        for at in range(0, len(wanted), self.piece_rows):
            piece = wanted[at : at + self.piece_rows]
            offsets, times, keys, values, headers = zip(*piece, strict=True)
            size = sum(len(value or b"") + len(key or b"") for key, value in zip(keys, values, strict=True))
            yield PartitionColumns(
                piece[-1][0] + 1, offsets, times, [False] * len(piece), keys, values, headers, size_bytes=size
            )

    def in_bucket(self, place: ClusterPartition, start: int, end: int) -> int:
        return start

    def boundary(self, place: ClusterPartition, start: int, wanted: int) -> int:
        return wanted

    def where(self, place: ClusterPartition) -> Where:
        return Where(bootstrap="memory:0")

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def _offset(log: MemoryPartition, timestamp_ms: int) -> int:
        if timestamp_ms in (EARLIEST, LATEST):
            return log.start if timestamp_ms == EARLIEST else log.end
        return next((record[0] for record in log.records if record[1] >= timestamp_ms), NO_OFFSET)
