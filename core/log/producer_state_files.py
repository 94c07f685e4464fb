"""The producers of one log, and their snapshot files (facts B3): taken at a roll and an orderly stop, read at a start.

A snapshot is named by the offset up to which (exclusive) it knows everything. It becomes a file only after the records
below it are durable, with the next flush; until then, and where it is missing or damaged, the batches are read instead.
"""

from collections.abc import Callable, Mapping, Sequence

from ...ports.storage import Folder, StorageError
from ...ports.words import Offset, Position
from ..message.batch_header import BatchHeader
from .format import LogSegment
from .names import SEGMENT_FILE, SNAPSHOT_SUFFIX, segment_file
from .producer_state import ProducerStates
from .producer_state_snapshot import decode_snapshot, encode_snapshot
from .segment import Segment
from .sparse_index import IndexDamaged

LOOK_BACK_ENTRIES = 32
"""A snapshot has one batch of each producer. Those before are read from so many index entries (of about 4 KB, or one
larger batch) before its offset."""


def snapshot_offsets(folder: Folder) -> list[int]:
    """The offsets of the snapshots that are there, newest first."""
    names = filter(None, map(SEGMENT_FILE.fullmatch, folder.files()))
    snapshots = (name for name in names if name["kind"] == SNAPSHOT_SUFFIX and not name["state"])
    return sorted((int(name["base"]) for name in snapshots), reverse=True)


class ProducerLedger:
    """The producers, as of the log's end, and which snapshots there are. Owner thread only."""

    __slots__ = ("_folder", "_offsets", "_pending", "_recovered", "_recovered_from", "_report", "states")

    def __init__(self, folder: Folder, report: Callable[[str], None]) -> None:
        self.states = ProducerStates()
        self._folder = folder
        self._report = report
        self._offsets: set[int] = set()
        self._pending: dict[int, bytes] = {}
        self._recovered = ProducerStates()
        self._recovered_from = -1

    # --- at the start

    def recovered(self, header: BatchHeader, now_ms: int) -> None:
        """Recovery has found a good batch; told of all of them, in order, before `load`."""
        if self._recovered_from < 0:
            self._recovered_from = header.base_offset
        _note(self._recovered, header, now_ms)

    def load(self, segments: Sequence[LogSegment], end: Offset, now_ms: int) -> None:
        """Find out the producers of a log that ends at `end`. Snapshots that are damaged, from beyond the end, or of no
        more use are removed. Raises `StorageError`."""
        batches = [segment for segment in segments if isinstance(segment, Segment)]
        start = batches[0].base_offset if batches else end
        later, upto = self._recovered, min(end, Offset(self._recovered_from)) if self._recovered_from >= 0 else end
        self._recovered, self._recovered_from = ProducerStates(), -1
        self._pending.clear()
        self._offsets = set(snapshot_offsets(self._folder))
        beyond = [offset for offset in self._offsets if not start <= offset <= end]
        self._drop(beyond)
        if beyond:
            self._folder.flush()  # one that came back after a power cut would tell of other batches
        known_to = self._read_newest(start, upto, now_ms)
        if self.states.producers:
            self._look_back(batches, known_to, now_ms)
        self._replay(self.states, batches, known_to, upto, now_ms)
        self.states.overlay(later)
        self._drop_strays({segment.base_offset for segment in batches})

    def _read_newest(self, start: Offset, upto: Offset, now_ms: int) -> Offset:
        """Take over the newest good snapshot up to there; returns its offset, `start` when there is none."""
        self.states = ProducerStates()
        for offset in sorted(self._offsets, reverse=True):
            name = segment_file(offset, SNAPSHOT_SUFFIX)
            if offset > upto:
                continue
            try:
                self.states = decode_snapshot(self._folder.read_small(name), now_ms=now_ms)
            except ValueError as error:
                self._report(f"{self._folder.name}/{name} is damaged and made anew: {error}")
                self._drop([offset])
            else:
                return Offset(offset)
        return start

    def _look_back(self, segments: Sequence[Segment], offset: Offset, now_ms: int) -> None:
        """Read what producers wrote shortly before a snapshot, of which that knows the last batch only."""
        places: list[tuple[Segment, Position]] = []
        entries = LOOK_BACK_ENTRIES
        for segment in reversed(segments):
            if entries > 0 and segment.base_offset < offset and segment.size:
                try:
                    places.append((segment, segment.position_before(offset, entries)))
                except IndexDamaged:
                    break  # a lookup will rebuild it; the last batches are known
                entries -= segment.index.count + 1
        earlier = ProducerStates()
        for segment, position in reversed(places):
            for _, header in segment.batches(position):
                if header.next_offset > offset:
                    break
                _note(earlier, header, now_ms)
        self.states.complete(earlier)

    def _replay(
        self, states: ProducerStates, segments: Sequence[Segment], start: Offset, end: Offset, now_ms: int
    ) -> None:
        """Note the batches in [start, end)."""
        for number, segment in enumerate(segments):
            next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if next_base <= start or segment.base_offset >= end or not segment.size:
                continue
            found = segment.first_intact(start) if start > segment.base_offset else (Position(0), 0)
            for _, header in segment.batches(found[0] if found is not None else segment.size):
                if header.base_offset >= end:
                    break
                if header.base_offset >= start:
                    _note(states, header, min(now_ms, max(header.max_timestamp, segment.modified_ms)))

    # --- while the log is open

    def replicated(self, header: BatchHeader, now_ms: int) -> None:
        """A batch has come from the leader, which has checked it."""
        _note(self.states, header, now_ms)

    def take(self, offset: int) -> None:
        """Take a snapshot: the log ends at `offset`. The next flush makes a file of it."""
        self._pending[offset] = encode_snapshot(self.states)
        self._offsets.add(offset)

    def take_at_stop(self, end: int, first_base: int) -> None:
        """Take one for the next start, unless it finds one or there is nothing to read."""
        if end > max(self._offsets, default=first_base):
            self.take(end)

    def take_pending(self) -> Mapping[str, bytes]:
        """By file name what a flush is to write."""
        pending, self._pending = self._pending, {}
        return {segment_file(offset, SNAPSHOT_SUFFIX): content for offset, content in pending.items()}

    def drop_below(self, offset: int) -> None:
        """The segments below are gone, and their snapshots go. Raises `StorageError`."""
        self._drop([known for known in self._offsets if known < offset])

    def drop_written(self, names: Mapping[str, bytes]) -> None:
        """What a flush has written is no longer true: the log was truncated meanwhile."""
        for name in names:
            try:
                self._folder.delete(name)
            except StorageError as error:
                self._report(f"{self._folder.name}/{name} could not be removed: {error}")
        self._offsets.difference_update(int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in names)

    def begin_anew(self) -> None:
        """The log is empty. Raises `StorageError`."""
        self.states.clear()
        self._drop([*self._offsets, *snapshot_offsets(self._folder)])

    def _drop(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._pending.pop(offset, None)
            self._folder.delete(segment_file(offset, SNAPSHOT_SUFFIX))
            self._offsets.discard(offset)

    def _drop_strays(self, bases: set[int]) -> None:
        """Those of earlier orderly stops, in the middle of a segment, but the newest."""
        newest = max(self._offsets, default=-1)
        self._drop([offset for offset in self._offsets if offset not in bases and offset != newest])


def _note(states: ProducerStates, header: BatchHeader, seen_ms: int) -> None:
    if header.producer_id >= 0 and header.base_sequence >= 0:
        states.note(header, header.base_offset, seen_ms)
