"""The current generation: record batches with consecutive offsets, found through sparse indexes (facts B1 to B3)."""

from collections.abc import Callable

from ....ports.storage import Folder
from ....ports.types import Offset
from ...message.batch_header import assign_offset
from ..checkpoints import LogCheckpoint
from ..config import LogConfig
from ..log_format import LoadedSegments, RecoveryListener
from ..recovery.log_loader import SegmentLoader
from ..segment.damage import NO_BOUND
from ..segment.segment import INT_MAX, Segment
from .validation import validate_batch, validate_batch_in_steps


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
