"""The snapshots of a partition's producers, against what these wrote (facts B3)."""

from collections.abc import Mapping
from typing import NamedTuple

from ...message.batch_header import BatchHeader
from ..producer_state import ProducerStateEntry, ProducerStates

_PRODUCERS_MAX = 100_000
"""Beyond so many, those that come are not followed: memory is bounded."""


class _Written(NamedTuple):
    epoch: int
    last_sequence: int
    last_offset: int


class ProducerCheck:
    """Told of every batch, in order; the snapshots are looked at where the log comes by their offsets."""

    def __init__(self, snapshots: Mapping[int, ProducerStates], start: int) -> None:
        """`snapshots` by their offsets; `start`: where the log begins."""
        self.problems: dict[int, str] = {}
        self._snapshots = dict(snapshots)
        self._due = sorted(snapshots, reverse=True)
        self._start = start
        self._written: dict[int, _Written] = {}
        self._complete = True

    def batch(self, header: BatchHeader) -> None:
        while self._due and self._due[-1] <= header.base_offset:
            self._look(self._due.pop())
        if header.producer_id < 0 or header.control or header.base_sequence < 0:
            return
        if len(self._written) >= _PRODUCERS_MAX and header.producer_id not in self._written:
            self._complete = False
            return
        self._written[header.producer_id] = _Written(header.producer_epoch, header.last_sequence, header.last_offset)

    def hole(self) -> None:
        """Batches are missing from here on, so that what a snapshot knows may be in none."""
        self._complete = False

    def end(self, log_end: int) -> None:
        while self._due:
            offset = self._due.pop()
            if offset > log_end:
                self.problems[offset] = f"it is of offset {offset}, and the log ends at {log_end}"
            else:
                self._look(offset)

    def _look(self, offset: int) -> None:
        for producer_id, entry in self._snapshots[offset].producers.items():
            problem = self._problem(producer_id, entry, offset)
            if problem is not None:
                self.problems[offset] = f"it says of producer {producer_id} {problem}"
                return

    def _problem(self, producer_id: int, entry: ProducerStateEntry, offset: int) -> str | None:
        if not entry.batches:
            return None
        last = entry.batches[-1].last_offset
        if last >= offset:
            return f"that it wrote offset {last}, which is not below {offset}"
        written = self._written.get(producer_id)
        if written is None:
            here = self._complete and last >= self._start
            return f"that it wrote offset {last}, and no batch of it is there" if here else None
        if written.last_offset > last:
            return f"that its last offset is {last}, and it wrote {written.last_offset}"
        same = written.last_offset == last and written.epoch == entry.epoch
        if same and written.last_sequence != entry.last_sequence:
            return f"that its last sequence is {entry.last_sequence}, and it was {written.last_sequence}"
        return None
