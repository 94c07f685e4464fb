"""Copies the files of a partition out of one of Kafka's data folders, which does not change."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from ...core.log.checkpoints import LEADER_EPOCHS
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
from ...ports.errors import BarnabasError

_PIECE = 1 << 26
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
_NO_RANGE_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def partition_bytes(source: Path) -> int:
    """Return the size of the files that `copy_partition` takes."""
    return sum(path.stat().st_size for path, _ in _wanted(source, 0))


def copy_partition(
    source: Path, target: Path, *, recovery_point: int, link: bool, copied: Callable[[int], None]
) -> None:
    """Copy the files of a partition into a new folder, and make them durable.

    With `link`, segments that end below the recovery point become hard links, where the volume allows it: neither
    Kafka nor Barnabas writes to them. Their indexes are copied; those of the other segments are rebuilt when the log is
    opened. `copied` is called with each number of bytes that were copied. Raises `BarnabasError`.
    """
    try:
        target.mkdir()
        for path, is_sealed in _wanted(source, recovery_point):
            size = path.stat().st_size
            if not (link and is_sealed and path.suffix == LOG_SUFFIX and _linked(path, target / path.name)):
                _copy(path, target / path.name)
            copied(size)
        _sync_folder(target)
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
            if is_classic or path.name == LEADER_EPOCHS:
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
