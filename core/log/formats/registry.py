"""The formats of logs by the value of `message.format`, and by the files of an existing log."""

from collections.abc import Callable, Iterable

from ....ports.storage import Folder, StorageError
from ....ports.types import Offset
from ...message.batch_header import assign_offset
from ..checkpoints import LogCheckpoint
from ..config import LogConfig
from ..log_format import LoadedSegments, LogFormat, RecoveryListener
from ..names import CLASSIC_SEGMENT_FILE, LOG_SUFFIX, SEGMENT_FILE
from ..recovery.log_loader import SegmentLoader
from ..segment.damage import NO_BOUND
from ..segment.segment import INT_MAX, Segment
from .validation import validate_batch, validate_batch_in_steps

BATCHES = "v2"
CLASSIC = "classic"


# The current generation: record batches with consecutive offsets, found through sparse indexes (facts B1 to B3).


class BatchFormat:
    """The `LogFormat` of record batches."""

    reads_flushed_only = False
    has_leader_epochs = True
    has_producers = True

    validate = staticmethod(validate_batch)
    validate_in_steps = staticmethod(validate_batch_in_steps)
    stamp = staticmethod(assign_offset)

    def create_segment(
        self, folder: Folder, base_offset: Offset, config: LogConfig, *, now_ms: int, report: Callable[[str], None]
    ) -> Segment:
        return Segment.create(
            folder, base_offset, now_ms=now_ms, index_interval_bytes=config.index_interval_bytes, report=report
        )

    def load(
        self,
        folder: Folder,
        config: LogConfig,
        *,
        now_ms: int,
        report: Callable[[str], None],
        recover: bool,
        noted: LogCheckpoint,
        recovery: RecoveryListener,
    ) -> LoadedSegments:
        loader = SegmentLoader(folder=folder, config=config, now_ms=now_ms, report=report, recovery=recovery)
        recovery_point = noted.recovery_point
        segments = loader.load(noted, recovery_point if recovery_point and not recover else None)
        if not segments:
            return LoadedSegments(())
        listing = folder.files()
        for number, segment in enumerate(segments[:-1]):
            next_base = segment.next_offset = segments[number + 1].base_offset
            if not recover or next_base <= recovery_point:
                loader.check_indexes(segment, listing, next_base)
        if recover:
            segments, end = loader.recover(segments, recovery_point, recovery_point)
            return LoadedSegments(segments, end, min(recovery_point, end))
        loader.check_indexes(segments[-1], listing, segments[-1].base_offset + INT_MAX)
        found = loader.load_end(segments[-1], recovery_point)
        if found is None:
            segments, found = loader.recover(segments, NO_BOUND, recovery_point)
        return LoadedSegments(segments, found, found)


_FORMATS: dict[str, LogFormat] = {BATCHES: BatchFormat()}


def get_log_format(name: str) -> LogFormat:
    """Return the strategy for a value of `message.format`."""
    if name == CLASSIC and CLASSIC not in _FORMATS:  # loaded for the first classic topic: 0.8 MB with isal
        from .classic_format import ClassicFormat

        _FORMATS[CLASSIC] = ClassicFormat()
    return _FORMATS[name]


def holds_classic_segments(files: Iterable[str]) -> bool:
    return any(CLASSIC_SEGMENT_FILE.fullmatch(name) is not None for name in files)


def detect_format(folder: str, files: Iterable[str]) -> str | None:
    """Return the format of a folder by its files, None without segments. Raises `StorageError` for a mixture."""
    found = set()
    for name in files:
        match = SEGMENT_FILE.fullmatch(name)
        if match is not None and match["kind"] == LOG_SUFFIX:
            found.add(BATCHES)
        elif CLASSIC_SEGMENT_FILE.fullmatch(name) is not None:
            found.add(CLASSIC)
    if len(found) > 1:
        raise StorageError(f"{folder} contains segments of both generations; move one of them to another folder")
    return found.pop() if found else None
