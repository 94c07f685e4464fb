"""What recovery finds out by the way: where leader epochs begin, and what producers did."""

from collections.abc import Sequence

from ...ports.words import Offset, Position
from ..message.batch_header import BatchHeader
from .config import LONG_MAX
from .format import LogSegment
from .leader_epochs import LeaderEpochs
from .producer_state_files import ProducerLedger
from .segment import Segment


class Recovered:
    """Fulfils `RecoveryWatch`."""

    def __init__(self, epochs: LeaderEpochs, ledger: ProducerLedger, now_ms: int) -> None:
        self._epochs = epochs
        self._ledger = ledger
        self._now_ms = now_ms
        self._epochs_known_from = epochs.entries[0][1] if epochs.entries else LONG_MAX
        self._recovers = False

    def lacks_epochs(self, start: int) -> bool:
        """True if the checkpoint of the epochs is lost, or a crash has left one of a later start than the log's."""
        lost = self._epochs_known_from == LONG_MAX
        return self._epochs_known_from > start and (lost or self._recovers)

    def begin(self, earlier: Sequence[LogSegment], offset: Offset) -> None:
        self._recovers = True
        self._ledger.begin_recovery(
            [segment for segment in earlier if isinstance(segment, Segment)], offset, self._now_ms
        )

    def found(self, segment: LogSegment, position: Position, header: BatchHeader) -> None:
        assert isinstance(segment, Segment)
        self._epochs_known_from = min(self._epochs_known_from, header.base_offset)
        self._epochs.found(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._ledger.recovered(segment, position, header, self._now_ms)
