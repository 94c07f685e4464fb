"""The producer state of one log and its snapshot files (Kafka: ProducerStateManager).

Snapshots are taken at a roll and a clean shutdown and read at startup. The name of a snapshot is its exclusive end
offset. The next flush writes it after the records below it are durable; without a valid snapshot the batches are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ....ports.storage import FileMissing, Folder, StorageError
from ....ports.types import Offset, Position
from ...message.batch_header import BatchHeader
from ...message.control_records import EndTransactionMarker
from ..config import LONG_MAX
from ..log_format import LogSegment
from ..names import SEGMENT_FILE, SNAPSHOT_SUFFIX, segment_file
from ..segment.damage import NO_BOUND
from ..segment.offset_index import CorruptIndex
from ..segment.segment import Segment
from ..segment.transaction_index import AbortedTxn
from .producer_state import NO_OFFSET, ProducerStates
from .replay import apply_batch, load_recent_batches, read_marker_at, replay
from .snapshot import decode_snapshot, encode_snapshot


def check_snapshot(content: bytes) -> None:
    """Raise `ValueError` for a corrupt snapshot."""
    decode_snapshot(content, now_ms=0)


def snapshot_offsets(folder: Folder) -> list[int]:
    """Return the offsets of the snapshot files, newest first."""
    names = filter(None, map(SEGMENT_FILE.fullmatch, folder.files()))
    snapshots = (name for name in names if name["kind"] == SNAPSHOT_SUFFIX and not name["state"])
    return sorted((int(name["base"]) for name in snapshots), reverse=True)


def _offset_of(name: str) -> int:
    return int(name.removesuffix(SNAPSHOT_SUFFIX))


class ReadProducers(NamedTuple):
    """The producers at `end` as a worker has read them, and the transactions that were aborted since a snapshot."""

    reader: "ProducerStateManager"
    end: Offset
    aborted: Sequence[AbortedTxn]


class ProducerStateManager:
    """The producer state at the log end, and the snapshots. Owner thread only."""

    __slots__ = (
        "_began_with_snapshot",
        "_durable",
        "_folder",
        "_hidden",
        "_keeps_files",
        "_known_to",
        "_lacks_early",
        "_offsets",
        "_pending",
        "_recovered",
        "_report",
        "_taken",
        "states",
        "undecided_from",
    )

    def __init__(self, folder: Folder, report: Callable[[str], None]) -> None:
        self.states = ProducerStates()
        self._folder = folder
        self._report = report
        self._offsets: set[int] = set()
        self._pending: dict[int, bytes] = {}
        self._taken: dict[int, bytes] = {}
        """Snapshots that a flush is writing."""
        self._durable: set[int] = set()
        """Offsets of the snapshots that this run has made durable."""
        self._recovered = self._lacks_early = self._keeps_files = self._began_with_snapshot = False
        self._known_to = Offset(0)
        """The offset of the snapshot with which the state was read."""
        self._hidden: tuple[tuple[Offset, Offset], ...] = ()
        self.undecided_from = NO_OFFSET
        """First offset of the oldest transaction that is open where damage hides batches: its marker may be among
        them, so that a later marker of the producer says nothing about it. -1 without one."""

    # --- at the start

    def begin_recovery(self, earlier: Sequence[Segment], offset: Offset, now_ms: int) -> None:
        """Load the state at `offset`, where recovery begins, from a snapshot and the `earlier` segments.

        Raises `StorageError`.
        """
        self._offsets = set(snapshot_offsets(self._folder))
        start = earlier[0].base_offset if earlier else offset
        self._lacks_early = not self._read_own(earlier, start, offset, now_ms) and start > 0
        self._recovered = True

    def recovered(self, segment: Segment, position: Position, header: BatchHeader, now_ms: int) -> None:
        """Apply a recovered batch of a producer; called for all in order. Raises `StorageError`."""
        marker = read_marker_at(segment, position, header) if header.control else None
        aborted = apply_batch(self.states, header, header.base_offset, marker, now_ms)
        if aborted is not None:
            segment.aborted.append(aborted)

    def load(self, segments: Sequence[LogSegment], end: Offset, now_ms: int) -> None:
        """Load the producers of a log that ends at `end`, unless recovery has. Delete snapshots that are corrupt,
        beyond the end, or obsolete. Raises `StorageError`."""
        batches = [segment for segment in segments if isinstance(segment, Segment)]
        start = batches[0].base_offset if batches else end
        self._forget_contents()
        self._offsets = set(snapshot_offsets(self._folder))
        beyond = [offset for offset in self._offsets if not start <= offset <= end]
        self._drop(beyond)
        if beyond:
            self._folder.flush()  # a deleted one that reappears after a power cut would describe other batches
        # A crash may have interrupted retention: then only the snapshot of its end has producers of what is removed.
        if not self._recovered or (self._lacks_early and self._offsets):
            self._read_own(batches, start, end, now_ms)
        self._recovered = False
        self._find_hidden(batches, start)
        self._drop_strays({segment.base_offset for segment in batches})

    def hidden_at(self, start: Offset) -> tuple[int, ...]:
        """Return the offsets of damage in a log that begins at `start` which no snapshot covers: batches of producers
        there are unknown, and would be appended twice."""
        return tuple([first for first, after in self._hidden if after > start]) if self._hidden else ()

    def begin_reload(self, segments: Sequence[Segment], end: Offset, now_ms: int) -> Callable[[], ReadProducers]:
        """Return work that reads the producers at `end`, where these closed segments end, again, from the snapshot
        before the damage on. Any thread may call it; `end_reload` follows. Raises `StorageError`."""
        known = {offset for offset in self._offsets - self._pending.keys() if offset <= self._known_to}
        start = segments[0].base_offset

        def work() -> ReadProducers:
            reader = ProducerStateManager(self._folder, self._report)
            reader._offsets, reader._keeps_files = known, True
            return ReadProducers(reader, end, reader._read_with_aborted(segments, start, end, now_ms))

        return work

    def end_reload(self, read: "ReadProducers", segments: Sequence[LogSegment], end: Offset, now_ms: int) -> None:
        """Take over what was read, and read the rest of a log that ends at `end`. Raises `StorageError`."""
        batches = [segment for segment in segments if isinstance(segment, Segment)]
        reader, aborted = read.reader, list(read.aborted)
        replay(reader.states, batches, read.end, end, now_ms, aborted.append)
        self._drop([offset for offset in self._offsets if offset > reader._known_to])
        self._known_to = reader._known_to
        reader.states.keep_rejected(self.states)
        self.states = reader.states
        self._correct_indexes(batches, end, aborted)
        self._find_hidden(batches, batches[0].base_offset)

    def _find_hidden(self, batches: Sequence[Segment], start: Offset) -> None:
        """Find the damage behind the snapshot that was read, and which transactions were open there."""
        known_to, found = self._known_to, list[tuple[Offset, Offset]]()
        for segment in batches:
            for gap in segment.gaps:
                if gap.next_offset > max(known_to, gap.first_offset):
                    found.append((gap.first_offset, gap.next_offset))
        self._hidden, self.undecided_from = tuple(found), NO_OFFSET
        if not found:
            return
        reader = ProducerStateManager(self._folder, self._report)
        reader._offsets, reader._keeps_files = self._offsets - self._pending.keys(), True
        reached = NO_OFFSET
        for first, _ in found:
            offset = max(first, known_to)
            if reached == NO_OFFSET:
                reader._read(batches, start, offset, 0)
            else:
                replay(reader.states, batches, Offset(reached), offset, 0)
            reached = offset
            if reader.states.open.first_offset is not None:
                self.undecided_from = reader.states.open.first_offset
                return

    def _read_own(self, segments: Sequence[Segment], start: Offset, end: Offset, now_ms: int) -> bool:
        """Read the producers as `_read` does, and correct the transaction indexes: damage that is repaired may have
        hidden transactions from them."""
        aborted = self._read_with_aborted(segments, start, end, now_ms)
        self._correct_indexes(segments, end, aborted)
        return self._began_with_snapshot

    def _correct_indexes(self, segments: Sequence[Segment], end: Offset, aborted: Sequence[AbortedTxn]) -> None:
        known_to = self._known_to
        for number, segment in enumerate(segments):
            base = segment.base_offset
            next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if next_base <= known_to:
                continue
            try:
                present, _ = segment.aborted.between(0, NO_BOUND)
            except CorruptIndex:
                continue  # it is rebuilt as a whole
            gaps = segment.gaps
            entries = [each for each in aborted if base <= each.last_offset < next_base]
            for each in present:
                marker = each.last_offset
                if marker < known_to or any(gap.first_offset <= marker < gap.next_offset for gap in gaps):
                    entries.append(each)
            entries.sort(key=lambda each: each.last_offset)
            if entries != present:
                segment.aborted.replace(entries)

    def _read(self, segments: Sequence[Segment], start: Offset, end: Offset, now_ms: int) -> None:
        """Read the producers at `end`."""
        self._read_with_aborted(segments, start, end, now_ms)

    def _read_with_aborted(
        self, segments: Sequence[Segment], start: Offset, end: Offset, now_ms: int
    ) -> Sequence[AbortedTxn]:
        """Read the producers at `end`; return the transactions that were aborted since the snapshot."""
        found = self._read_newest(start, end, now_ms)
        known_to = self._known_to = start if found is None else found
        self._began_with_snapshot = found is not None
        if self.states.producers:
            load_recent_batches(self.states, segments, known_to, now_ms)
        aborted: list[AbortedTxn] = []
        replay(self.states, segments, known_to, end, now_ms, aborted.append)
        return aborted

    def _read_newest(self, start: Offset, upto: Offset, now_ms: int) -> Offset | None:
        """Load the newest valid snapshot up to `upto`; return its offset, or None without one."""
        self.states = ProducerStates()
        for offset in sorted(self._offsets, reverse=True):
            name = segment_file(offset, SNAPSHOT_SUFFIX)
            if not start <= offset <= upto:
                continue
            try:
                self.states = decode_snapshot(self._folder.read_small(name), now_ms=now_ms)
            except FileMissing:
                continue  # a flush will write it, or has failed to
            except ValueError as error:
                self._report(f"{self._folder.name}/{name} is corrupt and is rebuilt: {error}")
                if not self._keeps_files:
                    self._drop([offset])
            else:
                return Offset(offset)
        return None

    def rebuild_transaction_indexes(self, segments: Sequence[Segment], wrong: Sequence[Segment], end: Offset) -> None:
        """Rebuild the `.txnindex` of the `wrong` segments in one pass over a log that ends at `end`.

        Raises `StorageError`.
        """
        before = ProducerStateManager(self._folder, self._report)
        before._offsets = self._offsets - self._pending.keys()
        start, reached = segments[0].base_offset, NO_OFFSET
        for number, segment in enumerate(segments):
            if segment not in wrong:
                continue
            base = segment.base_offset
            next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if reached == NO_OFFSET or any(reached < offset <= base for offset in before._offsets):
                before._read(segments[:number], start, base, 0)
            else:
                replay(before.states, segments[:number], Offset(reached), base, 0)
            entries: list[AbortedTxn] = []
            replay(before.states, [segment], base, next_base, 0, entries.append)
            segment.aborted.replace(entries)
            reached = next_base

    def snapshot_at(self, segments: Sequence[Segment], offset: Offset, now_ms: int) -> Callable[[], bytes]:
        """Return work that reads the snapshot at `offset`, where the closed `segments` of the log end. A kill before a
        flush leaves the end of a segment without one: then an earlier one and the batches since give it.

        Any thread may call the work, which reads files and changes none. Raises `StorageError`.
        """
        pending = self.content_at(offset)
        if pending is not None:
            return lambda: pending
        known = self._offsets - self._pending.keys()

        def work() -> bytes:
            with suppress(FileMissing, ValueError):
                content = self._folder.read_small(segment_file(offset, SNAPSHOT_SUFFIX))
                check_snapshot(content)
                return content
            reader = ProducerStateManager(self._folder, self._report)
            reader._offsets = {each for each in known if each < offset}
            reader._keeps_files = True
            reader._read(segments, segments[0].base_offset, offset, now_ms)
            return encode_snapshot(reader.states)

        return work

    def content_at(self, offset: int) -> bytes | None:
        """Return the snapshot at `offset` if it is in memory: a flush is writing it, or will."""
        content = self._pending.get(offset)
        return content if content is not None else self._taken.get(offset)

    def has_snapshot(self, offset: int) -> bool:
        return offset in self._offsets

    def is_durable(self, offset: int) -> bool:
        """Return True if the snapshot at `offset` is certainly on the disk, and so are the records below it."""
        return offset in self._durable

    def restart_from(self, offset: int, snapshot: bytes, now_ms: int) -> None:
        """Use a snapshot from elsewhere for a log that continues at `offset`; durable on return. Raises
        `StorageError`."""
        self._folder.write_small(segment_file(offset, SNAPSHOT_SUFFIX), snapshot)
        self._offsets.add(offset)
        self._durable.add(offset)
        self.states = decode_snapshot(snapshot, now_ms=now_ms)

    # --- while the log is open

    def appended(
        self,
        segment: LogSegment,
        header: BatchHeader,
        base_offset: Offset,
        marker: EndTransactionMarker | None,
        now_ms: int,
    ) -> None:
        """Apply a producer's batch, which the leader has checked and the segment contains; `marker`: the parsed content
        of a control batch."""
        if not header.control:
            if header.base_sequence >= 0 or header.transactional:
                self.states.update(header, base_offset, now_ms)
            return
        aborted = apply_batch(self.states, header, base_offset, marker, now_ms)
        if aborted is not None and isinstance(segment, Segment):
            segment.aborted.append(aborted)

    def take_snapshot(self, offset: int) -> None:
        """Take a snapshot at the log end `offset`, which the next flush writes."""
        self._pending[offset] = encode_snapshot(self.states)
        self._offsets.add(offset)

    def take_shutdown_snapshot(self, end: int, first_base: int) -> None:
        """Take a snapshot for the next startup, unless one exists or the log is empty."""
        if end > max(self._offsets, default=first_base):
            self.take_snapshot(end)

    def take_pending_snapshots(self) -> Mapping[str, bytes]:
        """Return the pending snapshots by file name, for a flush. `note_written` or `note_unwritten` follows."""
        pending, self._pending = self._pending, {}
        self._taken |= pending
        return {segment_file(offset, SNAPSHOT_SUFFIX): content for offset, content in pending.items()}

    def note_written(self, names: Mapping[str, bytes]) -> None:
        """Note that these snapshots are durable. One that was dropped meanwhile is deleted."""
        for offset in map(_offset_of, names):
            self._taken.pop(offset, None)
            if offset in self._offsets:
                self._durable.add(offset)
        self.delete_written_snapshots(names, LONG_MAX)

    def note_unwritten(self, names: Mapping[str, bytes]) -> None:
        """Note that writing these snapshots has failed: the next flush tries again, unless they were dropped."""
        for offset in map(_offset_of, names):
            content = self._taken.pop(offset, None)
            if content is not None:
                self._pending.setdefault(offset, content)

    def note_secured(self, offset: int) -> None:
        """Note that the snapshot at `offset` is durable."""
        self._offsets.add(offset)
        self._durable.add(offset)

    def keep_snapshot(self, offset: int, content: bytes) -> None:
        """Keep a snapshot which could not be written, for the next flush."""
        self._pending[offset] = content
        self._offsets.add(offset)

    def delete_snapshots_before(self, offset: int) -> None:
        """Delete the snapshots below `offset`, with their segments. Raises `StorageError`."""
        self._drop([known for known in self._offsets if known < offset])

    def delete_snapshots_at(self, bases: Sequence[int]) -> None:
        """Delete the snapshots at these base offsets, whose segments were merged. Raises `StorageError`."""
        self._drop([known for known in bases if known in self._offsets])

    def delete_written_snapshots(self, names: Mapping[str, bytes], truncated_to: int = -1) -> None:
        """Delete snapshots that were written although the log was truncated to `truncated_to` (-1: all) meanwhile, or
        although they were dropped."""
        for name in names:
            if _offset_of(name) <= truncated_to and _offset_of(name) in self._offsets:
                continue
            try:
                self._folder.delete(name)
            except StorageError as error:
                self._report(f"{self._folder.name}/{name} could not be removed: {error}")
            offset = _offset_of(name)
            self._durable.discard(offset)
            if offset not in self._pending:
                self._offsets.discard(offset)

    def truncate_fully_to(self) -> None:
        """Clear the state and delete all snapshots. Raises `StorageError`."""
        self.states.clear()
        self._hidden, self.undecided_from = (), NO_OFFSET
        self._recovered = False
        self._forget_contents()
        self._drop([*self._offsets, *snapshot_offsets(self._folder)])

    def _drop(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._pending.pop(offset, None)
            self._taken.pop(offset, None)
            self._durable.discard(offset)
            self._folder.delete(segment_file(offset, SNAPSHOT_SUFFIX))
            self._offsets.discard(offset)

    def _forget_contents(self) -> None:
        self._pending.clear()
        self._taken.clear()
        self._durable.clear()

    def _drop_strays(self, bases: set[int]) -> None:
        """Delete snapshots of earlier clean shutdowns inside segments, except the newest."""
        newest = max(self._offsets, default=-1)
        self._drop([offset for offset in self._offsets if offset not in bases and offset != newest])
