"""The leader epochs of a partition: what the checkpoint knows, against what the batches have (facts B4).

The epoch of a batch stands outside its CRC. A single batch that its neighbours contradict is the wrong one; else the
checkpoint is.
"""

from typing import NamedTuple

from ...message.batch_header import BatchHeader
from ..config import LONG_MAX
from ..leader_epochs import NO_EPOCH, LeaderEpochs


class EpochRun(NamedTuple):
    """Batches with the same epoch, one after the other; `position` and `segment` of the first."""

    epoch: int
    first_offset: int
    last_offset: int
    segment: int
    position: int
    batches: int


class EpochCheck:
    """Told of every batch; `noted` None where there is no checkpoint that can be read."""

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
        """The batches whose epoch cannot be right, with the one that they should have: epochs never go back."""
        noted = LeaderEpochs(self.noted or ())
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
        """What the checkpoint should hold: as it is, where that agrees with the batches."""
        wrong = {run for run, _ in self.wrong_batches()}
        epochs = LeaderEpochs(self.noted or ())
        for run in self._runs:
            if run not in wrong:
                for offset in (run.first_offset, run.last_offset):
                    epochs.found(run.epoch, offset)
        while epochs.entries and epochs.entries[-1][1] > end:
            epochs.truncate_from_end(epochs.entries[-1][1])
        return epochs.entries
