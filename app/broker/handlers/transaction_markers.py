"""WriteTxnMarkers: transaction coordinators complete transactions in their partitions (facts C6)."""

from collections.abc import Sequence
from functools import partial

from attrs import evolve

from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.groups import PartitionOutcome
from ....ports.broker_api.transactions import TxnMarker, WriteTxnMarkers, WriteTxnMarkersResult, WrittenTxnMarker
from ....ports.errors import broker_failed
from ....ports.scheduler import Outcome
from ..state.broker_state import BrokerState

TIMEOUT_MS = 30_000
"""The wait for the in-sync replicas; then a coordinator retries."""
_AT_ONCE = 64
"""The number of markers that are written before other work has its turn."""


class MarkerService:
    """Writes markers for coordinators, and for operators who end hanging transactions."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._markers = state.replicas.markers

    def write(self, request: WriteTxnMarkers, caller: Caller, reply: Reply[WriteTxnMarkersResult]) -> None:
        """Write the markers; the reply comes when all in-sync replicas have all of them."""
        portions = list(_portions(request.markers))
        written: list[Sequence[WrittenTxnMarker]] = [()] * len(portions)
        left = len(portions) + 1

        def on_written(number: int, some: Sequence[WrittenTxnMarker]) -> None:
            written[number] = some
            finish()

        def finish() -> None:
            nonlocal left
            left -= 1
            if not left:
                reply(WriteTxnMarkersResult(markers=_joined(request.markers, written)))

        def portion_by_portion() -> Steps[None]:
            for number, portion in enumerate(portions):
                self._markers.write(portion, partial(on_written, number), TIMEOUT_MS)
                yield None

        def begun(outcome: Outcome[None]) -> None:
            nonlocal left
            if outcome.error is None:
                finish()
                return
            left = 0  # the reply with the error is the only one
            self._state.failed("writing markers of transactions", outcome.error)
            reply(broker_failed())

        self._state.steps.run(portion_by_portion(), begun, caller.connection or None)


def _portions(markers: Sequence[TxnMarker]) -> Sequence[list[TxnMarker]]:
    """Return the markers, each with some of its partitions, in portions that are quick to write."""
    portions: list[list[TxnMarker]] = []
    room = 0
    for marker in markers:
        partitions = marker.partitions
        while partitions:
            if not room:
                portions.append([])
                room = _AT_ONCE
            some, partitions = partitions[:room], partitions[room:]
            portions[-1].append(evolve(marker, partitions=some))
            room -= len(some)
    return portions


def _joined(markers: Sequence[TxnMarker], written: Sequence[Sequence[WrittenTxnMarker]]) -> list[WrittenTxnMarker]:
    """Return the outcomes of the portions by marker."""
    outcomes = (outcome for some in written for each in some for outcome in each.partitions)
    joined = []
    for marker in markers:
        mine: list[PartitionOutcome] = [next(outcomes) for _ in marker.partitions]
        joined.append(WrittenTxnMarker(producer_id=marker.producer_id, partitions=mine))
    return joined
