"""One segment of a classic log: `<20 digits>.kafka`, exactly the message-set bytes as they came (facts A4)."""

from collections.abc import Iterator

from ...ports.storage import File, Folder, Region
from ..message.batch_header import BatchHeader
from .config import LogConfig
from .format import Admitted
from .names import CLASSIC_SUFFIX, segment_file

NO_TIMESTAMP = -1


class ClassicSegment:
    """Fulfils `LogSegment`. Offsets are positions in the log, so that nothing has to be looked up."""

    __slots__ = (
        "_file",
        "_first_append_ms",
        "_folder",
        "_name",
        "base_offset",
        "index_interval_bytes",
        "modified_ms",
        "size",
    )

    def __init__(self, folder: Folder, base_offset: int, *, size: int, modified_ms: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self.modified_ms = modified_ms
        self.index_interval_bytes = 0
        self._first_append_ms: int | None = None
        self._folder = folder
        self._file: File | None = None
        self._name = segment_file(base_offset, CLASSIC_SUFFIX)

    @property
    def file(self) -> File:
        """Opened when first needed. Raises `StorageError`."""
        if self._file is None:
            self._file = self._folder.open(self._name, create=not self.size)
        return self._file

    @property
    def names(self) -> list[str]:
        return [self._name]

    @property
    def largest_timestamp(self) -> int:
        """Classic messages have none."""
        return NO_TIMESTAMP

    def must_roll(
        self,
        admitted: Admitted,  # noqa: ARG002  so that a segment may exceed its size by one message set
        last_offset: int,  # noqa: ARG002
        config: LogConfig,
        *,
        jitter_ms: int,
        now_ms: int,
    ) -> bool:
        if self.size > config.segment_bytes:
            return True
        first = self._first_append_ms
        return first is not None and self.size > 0 and now_ms - first > config.segment_ms - jitter_ms

    def append(self, admitted: Admitted, *, base_offset: int, now_ms: int) -> None:  # noqa: ARG002
        self.file.append(admitted.records)
        self.size += len(admitted.records)
        self.modified_ms = now_ms
        if self._first_append_ms is None:
            self._first_append_ms = now_ms

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Any byte may be read from: what is no boundary of messages fails its CRC at the reader (facts A4)."""
        position = offset - self.base_offset
        return (position, 0) if 0 <= position < self.size else None

    first_intact = locate

    def intact_until(self, position: int) -> int:  # noqa: ARG002  readers cannot pass damage: recovery cuts it off
        return self.size

    def region(self, position: int, size: int) -> Region:
        return self.file.region(position, size)

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        return iter(())

    def batches_since(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:  # noqa: ARG002
        return iter(())

    def largest_timestamp_batch(self) -> tuple[int, int] | None:
        return None

    def seal(self) -> None:
        """Nothing to do."""

    def write_indexes(self) -> None:
        """There are none."""

    def side_files(self) -> list[File]:
        return []

    def cut(self, offset: int) -> int:
        """Any byte may be the last. Raises `StorageError`."""
        position = max(0, min(offset - self.base_offset, self.size))
        if position < self.size:
            self.file.truncate(position)
            self.size = position
        return self.base_offset + position

    def rename(self, suffix: str) -> None:
        """Raises `StorageError`."""
        self._folder.rename(self._name, self._name + suffix)
        self._name += suffix

    def close(self) -> None:
        """Release the file without writing."""
        if self._file is not None:
            self._file.close()

    def delete(self) -> None:
        """Remove the file. Callable from any thread. Raises `StorageError`."""
        self.close()
        self._folder.delete(self._name)
