"""What a transactional id wants done after an event. It does nothing itself: who drives it does, in this order."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.producers import InitProducerId
from ....ports.broker_api.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from ....ports.values import frozen
from .records import StoredTransaction

TransactionRequest = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn


@frozen(eq=False)
class TransactionAsked:
    """A request, and where its answer goes."""

    request: TransactionRequest
    reply: Callable[[Any], None]


@frozen(eq=False)
class TransactionAnswer:
    """Give this result to who asked."""

    asked: TransactionAsked
    result: Any


@frozen(eq=False)
class StoreTransaction:
    """Append this to the log, None a tombstone; then tell the id by `written`, once, with how it went."""

    value: StoredTransaction | None


@frozen(eq=False)
class SendMarkers:
    """Tell all partitions how the transaction ends; then tell the id by `marked`. `is_resumed`: it was decided by a
    coordinator before this one, who may have known newer topics."""

    value: StoredTransaction
    is_resumed: bool = False


@frozen(eq=False)
class Again:
    """Handle the request as if it came now."""

    asked: TransactionAsked


@frozen(eq=False)
class MarkedLater:
    """Tell the id by `marked` once more, after a while: that could not be written."""


Effect = TransactionAnswer | StoreTransaction | SendMarkers | Again | MarkedLater
Effects = list[Effect]
"""In this order."""
