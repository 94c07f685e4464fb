"""The classic generation: messages without offsets, addressed by their position in the log (facts A2 to A4)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ...ports.errors import ApiError
from ...ports.storage import File, Folder, StorageError
from ..message.batch_header import BatchHeader
from ..message.classic.check import check_set, good_prefix
from ..message.classic.entry import LENGTH, OVERHEAD_BYTES
from ..message.classic.reader import read_header
from ..message.codec import Codecs
from ..message.crc32 import crc32
from .checkpoints import PARTITION_METADATA
from .classic_segment import ClassicSegment
from .config import LogConfig
from .format import Admitted, Loaded
from .names import CLASSIC_SEGMENT_FILE, DELETED_SUFFIX

SCAN_CHUNK_BYTES = 1 << 20


class ClassicFormat:
    """Fulfils `LogFormat`."""

    flushed_only = True
    keeps_epochs = False
    keeps_producers = False

    def admit(
        self,
        records: memoryview,
        config: LogConfig,
        codecs: Codecs,
        *,
        now_ms: int,  # noqa: ARG002  classic messages have no time
        allows_zstd: bool,  # noqa: ARG002
    ) -> Admitted:
        """The whole messages of a set; what is cut at its end is left out (facts A3)."""
        valid_bytes, messages = check_set(records, codecs, max_message_bytes=config.max_message_bytes)
        return Admitted(records[:valid_bytes], valid_bytes, messages)

    def stamp(self, buf: memoryview | bytearray, base_offset: int, leader_epoch: int) -> None:
        """The file's content is what came; nothing is written into it."""

    def begin_segment(
        self,
        folder: Folder,
        base_offset: int,
        config: LogConfig,  # noqa: ARG002
        *,
        now_ms: int,
        report: Callable[[str], None],  # noqa: ARG002
    ) -> ClassicSegment:
        segment = ClassicSegment(folder, base_offset, size=0, modified_ms=now_ms)
        if segment.file.size:
            segment.file.truncate(0)
        return segment

    def load(
        self,
        folder: Folder,
        config: LogConfig,  # noqa: ARG002
        *,
        now_ms: int,  # noqa: ARG002
        report: Callable[[str], None],
        recover: bool,
        recovery_point: int,  # noqa: ARG002  only the last segment is ever scanned
        seen: Callable[[BatchHeader], None],  # noqa: ARG002
    ) -> Loaded:
        """Segments must follow each other without a gap. What is there when it is open is durable, and visible."""
        segments = _segments(folder, report)
        if not segments:
            return Loaded(())
        _check_gapless(folder, segments)
        last = segments[-1]
        if recover:
            _recover(folder, last, report)
            last.file.flush()
            folder.flush()
        end = last.base_offset + last.size
        return Loaded(segments, end, end)


def _segments(folder: Folder, report: Callable[[str], None]) -> list[ClassicSegment]:
    found = []
    for name, info in folder.files().items():
        match = CLASSIC_SEGMENT_FILE.fullmatch(name)
        if name == PARTITION_METADATA:
            continue
        if match is None:
            report(f"{folder.name}/{name} is no file of a classic log and is left alone")
        elif match["state"] == DELETED_SUFFIX:
            folder.delete(name)
        else:
            found.append(ClassicSegment(folder, int(match["base"]), size=info.size, modified_ms=info.modified_ms))
    return sorted(found, key=lambda segment: segment.base_offset)


def _check_gapless(folder: Folder, segments: Sequence[ClassicSegment]) -> None:
    for one, other in pairwise(segments):
        end = one.base_offset + one.size
        if end != other.base_offset:
            names = f"{one.names[0]} ends at {end}, but {other.names[0]} follows it"
            raise StorageError(f"{folder.name}: {names}; a segment is missing or damaged")


def _recover(folder: Folder, segment: ClassicSegment, report: Callable[[str], None]) -> None:
    """Cut the newest segment at its first bad message (facts A4: shallow, sizes and CRCs)."""
    position, size = 0, segment.size
    problem: str | None = None
    while position < size:
        good, problem, needs = good_prefix(segment.file.read(position, min(SCAN_CHUNK_BYTES, size - position)))
        position += good
        if problem is not None:
            break
        if good:
            continue
        if not 0 < needs <= size - position:
            problem = "it is cut"
        elif not _large_entry_is_good(segment.file, position, needs):
            problem = "the CRC is wrong"
        else:
            position += needs
            continue
        break
    if position < size:
        segment.cut(segment.base_offset + position)
        report(
            f"{folder.name}/{segment.names[0]}: cut at its first bad message at position {position}: {problem}; "
            f"{size - position} bytes are dropped"
        )


def _large_entry_is_good(file: File, position: int, size: int) -> bool:
    """The CRC of an entry larger than a chunk, piece by piece."""
    end = position + size
    try:
        at, _, expected = read_header(file.read(position, OVERHEAD_BYTES), 0, size - LENGTH.size)
    except ApiError:
        return False
    at += position
    crc = 0
    while at < end:
        piece = file.read(at, min(SCAN_CHUNK_BYTES, end - at))
        if not piece:
            return False
        crc = crc32(piece, crc)
        at += len(piece)
    return crc == expected
