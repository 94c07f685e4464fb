"""The effects that a transactional id returns after an event. The id itself does no I/O: its driver carries the effects
out, in this order."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.producers import InitProducerId
from ....ports.broker_api.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from ....ports.values import frozen
from .records import StoredTransaction

TransactionRequest = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn


@frozen(eq=False)
class TransactionAsked:
    """A request with the callback for its answer."""

    request: TransactionRequest
    reply: Callable[[Any], None]


@frozen(eq=False)
class TransactionAnswer:
    """Send this result to the caller."""

    asked: TransactionAsked
    result: Any


@frozen(eq=False)
class StoreTransaction:
    """Append this to the log, None a tombstone; then call the id's `written` with the outcome, once. `before` is the
    state that comes first, in the same batch: the end of the transaction before the one that begins."""

    value: StoredTransaction | None
    before: StoredTransaction | None = None


@frozen(eq=False)
class SendMarkers:
    """Write the markers of the transaction to all its partitions; then call the id's `marked`. `is_resumed`: an earlier
    coordinator, which may have known newer topics, decided the end."""

    value: StoredTransaction
    is_resumed: bool = False


@frozen(eq=False)
class HandleAgain:
    """Handle the request again, as a new one."""

    asked: TransactionAsked


@frozen(eq=False)
class RetryMarked:
    """Call the id's `marked` again after a delay, since its state could not be written."""


Effect = TransactionAnswer | StoreTransaction | SendMarkers | HandleAgain | RetryMarked
Effects = list[Effect]
"""Effects in the order in which to carry them out."""
