"""Copies the files of a partition out of one of Kafka's data folders, which does not change.

Segments with messages from before Kafka 0.11 are converted: the copy has record batches with the same offsets.
"""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path

from ...core.log.checkpoints import LEADER_EPOCHS
from ...core.log.leader_epoch_cache import LeaderEpochCache
from ...core.log.names import (
    ABORTED_SUFFIX,
    CLASSIC_SEGMENT_FILE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from ...core.log.segment.segment import Segment, SegmentFiles
from ...core.message.codec import Codecs
from ...core.message.legacy_records import GROUP_BYTES, HEAD_SIZE, convert_records, entry_size
from ...ports.errors import ApiError, BarnabasError
from ...ports.storage import Folder
from ...ports.types import Offset
from .resuming import sync_folder

_PIECE = 1 << 26
_CONVERTED_PIECE = 1 << 22
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
_NO_RANGE_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def partition_bytes(source: Path) -> int:
    """Return the size of the files that `copy_partition` takes."""
    return sum(found.st_size for _, found in wanted_files(source))


def wanted_files(source: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the files that `copy_partition` takes, with the size and time by which a changed one is noticed."""
    return [(path, path.stat()) for path, _ in _wanted(source, 0)]


def copy_partition(
    source: Path,
    target: Path,
    *,
    recovery_point: int,
    link: bool,
    legacy: Collection[int],
    convert: Callable[[Path, Path], None],
    copied: Callable[[int], None],
) -> None:
    """Copy the files of a partition into a new folder, and make them durable.

    With `link`, segments that end below the recovery point become hard links, where the volume allows it: neither
    Kafka nor Barnabas writes to them. Their indexes are copied; those of the other segments are rebuilt when the log is
    opened. Segments with the base offsets `legacy` go through `convert`, and their indexes are left out. `copied` is
    called with each number of bytes that were copied. Raises `BarnabasError`.
    """
    try:
        target.mkdir()
        for path, is_sealed in _wanted(source, recovery_point):
            size = path.stat().st_size
            found = SEGMENT_FILE.fullmatch(path.name)
            is_legacy = found is not None and (int(found["base"]) in legacy or (found["state"] and legacy))
            if found is not None and is_legacy and found["kind"] == LOG_SUFFIX:
                convert(path, target / path.name)
            elif found is not None and is_legacy and found["kind"] in _INDEXES:
                pass
            elif not (link and is_sealed and path.suffix == LOG_SUFFIX and _linked(path, target / path.name)):
                _copy(path, target / path.name)
            copied(size)
        sync_folder(target)
    except OSError as error:
        raise BarnabasError(f"{source} cannot be copied to {target}: {error}") from error


def copy_folder(source: Path, target: Path, *, copied: Callable[[int], None]) -> None:
    """Copy all files of a finished partition for another replica, and make them durable. Raises `BarnabasError`."""
    try:
        target.mkdir()
        for path in sorted(source.iterdir()):
            _copy(path, target / path.name)
            copied(path.stat().st_size)
        sync_folder(target)
    except OSError as error:
        raise BarnabasError(f"{source} cannot be copied to {target}: {error}") from error


def _wanted(source: Path, recovery_point: int) -> Iterator[tuple[Path, bool]]:
    """Yield the files to copy, and whether each belongs to a segment that ends below the recovery point."""
    bases = sorted(
        int(found["base"])
        for found in (SEGMENT_FILE.fullmatch(each.name) for each in source.iterdir())
        if found is not None and found["kind"] == LOG_SUFFIX and not found["state"]
    )
    ends = dict(pairwise(bases))
    for path in sorted(source.iterdir()):
        found = SEGMENT_FILE.fullmatch(path.name)
        if found is None:
            is_classic = CLASSIC_SEGMENT_FILE.fullmatch(path.name) is not None and path.suffix != ".deleted"
            if is_classic or (path.name == LEADER_EPOCHS and path.stat().st_size):  # Kafka 1.1 makes it empty
                yield path, False
            continue
        base = int(found["base"])
        is_sealed = base in ends and ends[base] <= recovery_point
        is_swap = found["state"] == SWAP_SUFFIX  # a compaction that was interrupted at its end: a start completes it
        is_current = not found["state"] and (
            found["kind"] in (LOG_SUFFIX, SNAPSHOT_SUFFIX) or (is_sealed and found["kind"] in _INDEXES)
        )
        if is_swap or is_current:
            yield path, is_sealed and not is_swap


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _copy(source: Path, target: Path) -> None:
    """Copy the content and the modification time, by which retention judges segments without timestamps.

    Volumes that can share blocks between files do so.
    """
    with source.open("rb") as reader, target.open("xb") as writer:
        left = os.fstat(reader.fileno()).st_size
        while left > 0:
            try:
                done = os.copy_file_range(reader.fileno(), writer.fileno(), min(left, _PIECE))
            except OSError as error:
                if error.errno not in _NO_RANGE_COPY:
                    raise
                shutil.copyfileobj(reader, writer, _PIECE)
                break
            if not done:
                break
            left -= done
        writer.flush()
        os.fsync(writer.fileno())
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


class SegmentConverter:
    """Converts segments of a partition, in order."""

    def __init__(self, codecs: Codecs, epochs: LeaderEpochCache, report: Callable[[str], None]) -> None:
        """`epochs` are those of the partition's checkpoint."""
        self._codecs = codecs
        self._epochs = epochs
        self._report = report
        self._leader_epoch = -1

    def convert(self, source: Path, target: Path) -> None:
        """Write a converted copy of a segment file, durable and with the same modification time.

        It ends before the first entry that cannot be read, which is reported. Raises `OSError`.
        """
        with source.open("rb") as reader, target.open("xb") as writer:
            left, position, unread = b"", 0, os.fstat(reader.fileno()).st_size
            while unread:
                needed = entry_size(left) - len(left) if len(left) >= HEAD_SIZE else 0
                if needed > unread:
                    break
                piece = reader.read(max(_CONVERTED_PIECE, needed))
                unread = unread - len(piece) if piece else 0
                left += piece
                try:
                    done = convert_records(
                        left,
                        self._codecs,
                        group_bytes=GROUP_BYTES,
                        leader_epoch=self._leader_epoch,
                        epoch_at=self._epochs.epoch_at,
                    )
                except ApiError as error:
                    self._report(
                        f"{source} is damaged at position {position}: {error.message}; what follows is left out"
                    )
                    left = b""
                    break
                self._leader_epoch = done.leader_epoch
                writer.write(done.records)
                position, left = position + done.consumed, left[done.consumed :]
            if left:
                self._report(f"{source} ends within an entry at position {position}, which is left out")
            writer.flush()
            os.fsync(writer.fileno())
        found = source.stat()
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def write_indexes(
    folder: Folder,
    base_offset: int,
    *,
    log_bytes: int,
    index_interval_bytes: int,
    now_ms: int,
    report: Callable[[str], None],
) -> None:
    """Write the indexes of a converted segment. Raises `StorageError`."""
    segment = Segment(
        folder,
        Offset(base_offset),
        files=SegmentFiles(log_bytes, -1, -1, now_ms),
        now_ms=now_ms,
        index_interval_bytes=index_interval_bytes,
        report=report,
    )
    segment.rebuild_indexes()
    segment.write_indexes()
    segment.close()
