"""The classic generation: messages without offsets, addressed by their position in the log (facts A2 to A4)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ....ports.storage import Folder, StorageError
from ....ports.types import Offset, Position
from ...message.classic.validation import ValidatedSet, validate_set
from ...message.codec import Codecs
from ...traffic.steps import Steps
from ..append_origin import AppendOrigin
from ..checkpoints import PARTITION_METADATA, LogCheckpoint
from ..config import LONG_MAX, LogConfig
from ..log_format import LoadedSegments, RecoveryListener, ValidatedBatch
from ..names import CLASSIC_SEGMENT_FILE, DELETED_SUFFIX, QUARANTINE_SUFFIX
from ..recovery.quarantine import quarantine_files
from .classic_segment import ClassicSegment, recover_tail
from .validation import ValidationTakesLong


class ClassicFormat:
    """Fulfils `LogFormat`."""

    reads_flushed_only = True
    has_leader_epochs = False
    has_producers = False

    def validate(
        self,
        records: memoryview,
        config: LogConfig,
        codecs: Codecs,
        *,
        now_ms: int,  # noqa: ARG002  classic messages have no time
        allows_zstd: bool,  # noqa: ARG002
        origin: AppendOrigin,  # noqa: ARG002  and there are no transactions
        budget: object = None,  # noqa: ARG002  all is checked
    ) -> ValidatedBatch:
        """Validate the complete messages of a set; a cut one at its end is left out (facts A3)."""
        steps = validate_set(records, codecs, max_message_bytes=config.max_message_bytes)
        try:
            next(steps)
        except StopIteration as end:
            checked: ValidatedSet = end.value
            return _admitted(records, checked)
        steps.close()
        raise ValidationTakesLong

    def validate_in_steps(
        self,
        records: memoryview,
        config: LogConfig,
        codecs: Codecs,
        *,
        clock_ms: Callable[[], int],  # noqa: ARG002
        allows_zstd: bool,  # noqa: ARG002
        origin: AppendOrigin,  # noqa: ARG002
        unpacked_max: int,  # noqa: ARG002
        whole: bool,  # noqa: ARG002
    ) -> Steps[ValidatedBatch]:
        """Do what `validate` does, in bounded pieces."""
        checked = yield from validate_set(records, codecs, max_message_bytes=config.max_message_bytes)
        return _admitted(records, checked)

    def stamp(self, buf: memoryview | bytearray, base_offset: Offset, leader_epoch: int) -> None:
        """Write nothing: the file contains the bytes as they were sent."""

    def create_segment(
        self,
        folder: Folder,
        base_offset: Offset,
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
        noted: LogCheckpoint,
        recovery: RecoveryListener,  # noqa: ARG002
    ) -> LoadedSegments:
        """Load segments, which must follow each other without a gap. All of an opened log is durable and visible.

        Only the last segment is scanned: the whole one, or after a clean shutdown the part above the recovery point.
        """
        recovery_point = noted.recovery_point
        segments = segments_in_chain(folder, classic_segments(folder, report), recovery_point, recover, report)
        if not segments:
            return LoadedSegments(())
        _check_gapless(folder, segments)
        last = segments[-1]
        durable = last.position_of(recovery_point)
        if not (known := 0 < durable <= last.size):
            durable = Position(0)
        if recover_tail(folder, last, report, durable=durable, whole=recover or not known) or recover:
            last.file.flush()
            folder.flush()
        end = last.offset_at(last.size)
        return LoadedSegments(segments, end, end)


def _admitted(records: memoryview, checked: ValidatedSet) -> ValidatedBatch:
    valid_bytes, messages = checked
    return ValidatedBatch(records[:valid_bytes], valid_bytes, messages)


def classic_segments(folder: Folder, report: Callable[[str], None]) -> list[ClassicSegment]:
    found = []
    for name, info in folder.files().items():
        match = CLASSIC_SEGMENT_FILE.fullmatch(name)
        if name == PARTITION_METADATA or QUARANTINE_SUFFIX in name:
            continue
        if match is None:
            report(f"{folder.name}/{name} is not a file of a classic log and is ignored")
        elif int(match["base"]) >= LONG_MAX:
            quarantine_files(folder, [name], "begins beyond all offsets", report)
        elif match["state"] == DELETED_SUFFIX:
            folder.delete(name)
        else:
            found.append(
                ClassicSegment(folder, Offset(int(match["base"])), size=info.size, modified_ms=info.modified_ms)
            )
    return sorted(found, key=lambda segment: segment.base_offset)


def segments_in_chain(
    folder: Folder,
    segments: Sequence[ClassicSegment],
    recovery_point: int,
    recover: bool,
    report: Callable[[str], None],
) -> Sequence[ClassicSegment]:
    """Return the segments that follow each other; those inside another one or behind a clean end are quarantined."""
    members: list[ClassicSegment] = []
    for number, segment in enumerate(segments):
        base, end = segment.base_offset, members[-1].base_offset + members[-1].size if members else 0
        later = {other.base_offset for other in segments[number + 1 :]}
        if members and base < end and (end in later or end == recovery_point):
            why = f"lies inside {members[-1].names[0]}, which ends at offset {end}"
        elif members and base > end == recovery_point > 0 and not recover:
            why = f"begins above the log end offset {end}"
        else:
            members.append(segment)
            continue
        segment.close()
        quarantine_files(folder, segment.names, why, report)
    return members


def _check_gapless(folder: Folder, segments: Sequence[ClassicSegment]) -> None:
    for one, other in pairwise(segments):
        end = one.base_offset + one.size
        if end != other.base_offset:
            names = f"{one.names[0]} ends at {end}, but {other.names[0]} follows it"
            raise StorageError(f"{folder.name}: {names}; a segment is missing or damaged")
