"""Checks of the transaction index, producer snapshots and leader epochs against the batches (facts B1, B3)."""

from collections.abc import Mapping
from typing import NamedTuple

from ....ports.errors import ApiError
from ....ports.storage import File
from ....ports.types import Position
from ...log.config import LONG_MAX
from ...log.leader_epoch_cache import NO_EPOCH, LeaderEpochCache
from ...log.producers.producer_state import ProducerStateEntry, ProducerStates
from ...log.producers.replay import MARKER_BYTES_MAX, apply_batch
from ...log.segment.transaction_index import ENTRY, VERSION, AbortedTxn
from ...message.batch_header import BatchHeader
from ...message.control_records import read_marker

_PRODUCERS_MAX = 100_000
"""Maximum number of tracked producers, which bounds the memory."""


class _Written(NamedTuple):
    epoch: int
    last_sequence: int
    last_offset: int


class ProducerCheck:
    """Receives every batch, in order; checks each snapshot when the log reaches its offset."""

    def __init__(self, snapshots: Mapping[int, ProducerStates], start: int) -> None:
        """`snapshots` by their offsets; `start`: log start offset."""
        self.problems: dict[int, str] = {}
        self._snapshots = dict(snapshots)
        self._due = sorted(snapshots, reverse=True)
        self._start = start
        self._written: dict[int, _Written] = {}
        self._complete = True

    def batch(self, header: BatchHeader) -> None:
        while self._due and self._due[-1] <= header.base_offset:
            self._check_snapshot(self._due.pop())
        if header.producer_id < 0 or header.control or header.base_sequence < 0:
            return
        if len(self._written) >= _PRODUCERS_MAX and header.producer_id not in self._written:
            self._complete = False
            return
        self._written[header.producer_id] = _Written(header.producer_epoch, header.last_sequence, header.last_offset)

    def hole(self) -> None:
        """Note missing batches: snapshots may describe them."""
        self._complete = False

    def end(self, log_end: int) -> None:
        while self._due:
            offset = self._due.pop()
            if offset > log_end:
                self.problems[offset] = f"its offset is {offset}, and the log ends at {log_end}"
            else:
                self._check_snapshot(offset)

    def _check_snapshot(self, offset: int) -> None:
        for producer_id, entry in self._snapshots[offset].producers.items():
            problem = self._problem(producer_id, entry, offset)
            if problem is not None:
                self.problems[offset] = f"for producer {producer_id} it says {problem}"
                return

    def _problem(self, producer_id: int, entry: ProducerStateEntry, offset: int) -> str | None:
        if not entry.batches:
            return None
        last = entry.batches[-1].last_offset
        if last >= offset:
            return f"that its last offset is {last}, which is not below {offset}"
        written = self._written.get(producer_id)
        if written is None:
            here = self._complete and last >= self._start
            return f"that its last offset is {last}, where it has no batch" if here else None
        if written.last_offset > last:
            return f"that its last offset is {last}, expected {written.last_offset}"
        same = written.last_offset == last and written.epoch == entry.epoch
        if same and written.last_sequence != entry.last_sequence:
            return f"that its last sequence is {entry.last_sequence}, expected {written.last_sequence}"
        return None


class EpochRun(NamedTuple):
    """Consecutive batches with the same epoch; `position` and `segment` of the first."""

    epoch: int
    first_offset: int
    last_offset: int
    segment: int
    position: int
    batches: int


class EpochCheck:
    """Receives every batch; `noted` is None without a readable checkpoint."""

    def __init__(self, noted: list[tuple[int, int]] | None) -> None:
        self.noted = noted
        self._runs: list[EpochRun] = []

    def batch(self, segment: int, position: int, header: BatchHeader) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and last.epoch == header.leader_epoch:
            self._runs[-1] = last._replace(last_offset=header.last_offset, batches=last.batches + 1)
            return
        self._runs.append(
            EpochRun(header.leader_epoch, header.base_offset, header.last_offset, segment, position, batches=1)
        )

    def wrong_batches(self) -> list[tuple[EpochRun, int]]:
        """Return the batches with an impossible epoch, with the correct one: epochs never decrease."""
        noted = LeaderEpochCache(self.noted or ())
        found: list[tuple[EpochRun, int]] = []
        runs = self._runs
        for number, run in enumerate(runs):
            before = runs[number - 1].epoch if number else NO_EPOCH
            after = runs[number + 1].epoch if number + 1 < len(runs) else LONG_MAX
            if run.batches > 1 or (number and runs[number - 1].batches == 1 and before > run.epoch):
                continue
            if before == after != NO_EPOCH or not before <= run.epoch <= after:
                known = noted.epoch_at(run.first_offset)
                fallback = before if before >= 0 else after if after < LONG_MAX else 0
                found.append((run, known if max(before, 0) <= known <= after else fallback))
        return found

    def rebuilt(self, end: int) -> list[tuple[int, int]]:
        """Return the correct content of the checkpoint: unchanged where it agrees with the batches."""
        wrong = {run for run, _ in self.wrong_batches()}
        epochs = LeaderEpochCache(self.noted or ())
        for run in self._runs:
            if run not in wrong:
                for offset in (run.first_offset, run.last_offset):
                    epochs.found(run.epoch, offset)
        while epochs.entries and epochs.entries[-1][1] > end:
            epochs.truncate_from_end(epochs.entries[-1][1])
        return epochs.entries


class TransactionCheck:
    """Receives every batch, segment after segment."""

    def __init__(self) -> None:
        self._states = ProducerStates()
        self._complete = True
        self._aborted: dict[int, AbortedTxn] = {}
        """The aborted transactions of this segment by the offset of the marker, according to the batches."""
        self._markers: dict[int, int] = {}
        """The producers of the other abort markers by offset: their transactions have no batch left."""

    def batch(self, file: File, position: int, header: BatchHeader) -> None:
        """Add a batch. Raises `StorageError`."""
        if not header.transactional:
            return
        marker = None
        if header.control:
            try:
                content = file.read(Position(position), min(header.size, MARKER_BYTES_MAX))
                marker = read_marker(content, header)
            except ApiError:
                return
        aborted = apply_batch(self._states, header, header.base_offset, marker, 0)
        if aborted is not None:
            self._aborted[header.base_offset] = aborted
        elif marker is not None and not marker.committed:
            self._markers[header.base_offset] = header.producer_id

    def hole(self) -> None:
        """Note missing batches: the known transactions may be incomplete from here on."""
        self._complete = False

    def end_segment(self, index: bytes | None) -> tuple[str | None, bytes]:
        """Return (problem of the index of the segment that ends here, its correct content)."""
        found, problem = _entries(index or b"")
        entries: dict[int, AbortedTxn] = {}
        for entry in found:
            wrong = self._problem(entry)
            problem = problem or wrong
            if wrong is None:
                entries[entry.last_offset] = entry
        for marker, entry in self._aborted.items():
            if marker not in entries:
                entries[marker] = entry
                problem = problem or f"the aborted transaction {entry.first_offset} to {marker} is missing"
        self._aborted.clear()
        self._markers.clear()
        content = b"".join(ENTRY.pack(VERSION, *entries[marker]) for marker in sorted(entries))
        return problem, content

    def _problem(self, entry: AbortedTxn) -> str | None:
        text = f"the aborted transaction {entry.first_offset} to {entry.last_offset} of producer {entry.producer_id}"
        expected = self._aborted.get(entry.last_offset)
        if expected is not None:
            same = expected == entry or (not self._complete and expected.producer_id == entry.producer_id)
            return (
                None
                if same
                else f"{text} is {expected.first_offset} to {expected.last_offset} of producer "
                + str(expected.producer_id)
            )
        if self._markers.get(entry.last_offset) == entry.producer_id:
            return None  # it began before the log start, or its batches were compacted
        return f"{text} has no marker"


def _entries(index: bytes) -> tuple[list[AbortedTxn], str | None]:
    whole = len(index) - len(index) % ENTRY.size
    problem = f"{len(index)} bytes are no multiple of {ENTRY.size}" if whole < len(index) else None
    found: list[AbortedTxn] = []
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(index[:whole])):
        entry = AbortedTxn(*fields)
        if version != VERSION or not 0 <= entry.first_offset < entry.last_offset:
            problem = problem or f"entry {number} is invalid: {(version, *entry)}"
        elif found and entry.last_offset <= found[-1].last_offset:
            problem = problem or f"entry {number} is not above the previous one"
        else:
            found.append(entry)
    return found, problem
