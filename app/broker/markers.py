"""WriteTxnMarkers: transactions end where their coordinators say so (facts C6)."""

from collections.abc import Sequence

from ...ports.broker_api import Caller, Reply, WriteTxnMarkers, WriteTxnMarkersResult, WrittenTxnMarker
from .state import BrokerState

TIMEOUT_MS = 30_000
"""For the in-sync replicas; as a coordinator gives up and asks again."""


class MarkerService:
    """Coordinators ask, and people who end what no coordinator ends any more."""

    def __init__(self, state: BrokerState) -> None:
        self._markers = state.replicas.markers

    def write(self, request: WriteTxnMarkers, _caller: Caller, reply: Reply[WriteTxnMarkersResult]) -> None:
        def done(written: Sequence[WrittenTxnMarker]) -> None:
            reply(WriteTxnMarkersResult(markers=written))

        self._markers.write(request.markers, done, TIMEOUT_MS)
