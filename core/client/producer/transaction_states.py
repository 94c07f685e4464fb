"""The states of a transactional producer, and its reactions to refused requests (KIP-98, 360, 447)."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from ....ports.broker_api.envelope import Request
from ....ports.broker_api.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TxnOffsetCommit
from ....ports.error_codes import AUTHORIZATION_ERRORS, ErrorCode
from ..coordinator_finder import COORDINATOR_MOVED


class TxnState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "between transactions"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORT_NEEDED = "in a transaction that has to be aborted"
    PREPARING = "preparing a transaction for another to end"
    PREPARED = "done with a transaction that another ends"
    FATAL = "in a fatal error state"


_S = TxnState
FOLLOWS: Mapping[TxnState, tuple[TxnState, ...]] = {
    _S.UNINITIALIZED: (_S.INITIALIZING, _S.READY, _S.IN_TRANSACTION, _S.FATAL),
    _S.INITIALIZING: (_S.READY, _S.FATAL),
    _S.READY: (_S.IN_TRANSACTION, _S.PREPARED, _S.FATAL),
    _S.IN_TRANSACTION: (_S.COMMITTING, _S.ABORTING, _S.PREPARING, _S.ABORT_NEEDED, _S.FATAL),
    _S.PREPARING: (_S.PREPARED, _S.ABORT_NEEDED, _S.FATAL),
    _S.PREPARED: (),
    _S.COMMITTING: (_S.READY, _S.ABORT_NEEDED, _S.FATAL),
    _S.ABORT_NEEDED: (_S.ABORTING, _S.FATAL),
    _S.ABORTING: (_S.READY, _S.FATAL),
    _S.FATAL: (),
}
"""State → the states that may follow."""


class Reaction(Enum):
    """The action after the response to a request of a transaction."""

    DONE = "continue"
    AGAIN = "ask again after a pause"
    ELSEWHERE = "look for the coordinator, then ask again"
    ABORT = "abort the transaction"
    FENCED = "another one has the transactional id"
    FATAL = "give up"


_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_OF_ONE_REQUEST = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED}
"""Missing rights that end the transaction but not its producer, as in Kafka."""
_FATAL = (
    *(AUTHORIZATION_ERRORS - _OF_ONE_REQUEST),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_VERSION,
)
_FATAL_FOR_BATCHES = tuple(code for code in _FATAL if code is not ErrorCode.INVALID_TXN_STATE)
"""If a leader does not find its partition in the transaction (KIP-890), an abort is still possible."""


def reaction_to(request: Request[Any], code: ErrorCode) -> Reaction:
    """Return the reaction to a coordinator's response."""
    if code is ErrorCode.NONE:
        return Reaction.DONE
    if code in COORDINATOR_MOVED:
        return Reaction.ELSEWHERE
    if code in _FENCED:
        return Reaction.FENCED
    if code.retriable:
        return Reaction.AGAIN
    if isinstance(request, EndTxn):
        # In version 2 an abort is possible, and gives the next epoch, after any end that was not a commit.
        was_ended = request.supports_epoch_bump and code is ErrorCode.INVALID_TXN_STATE
        may_abort = request.committed and (code is ErrorCode.TRANSACTION_ABORTABLE or was_ended)
        return Reaction.ABORT if may_abort else Reaction.FATAL
    may_abort = isinstance(request, AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit) and code not in _FATAL
    return Reaction.ABORT if may_abort else Reaction.FATAL


def reaction_to_batch(code: ErrorCode) -> Reaction:
    """Return the reaction to a leader's error for a batch that is not sent again.

    INVALID_PRODUCER_EPOCH requires an abort, too: the coordinator knows if the producer is fenced (KIP-588).
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return Reaction.FENCED
    return Reaction.FATAL if code in _FATAL_FOR_BATCHES else Reaction.ABORT


def the_worst(request: Request[Any], codes: list[ErrorCode]) -> ErrorCode:
    """Return the error that decides of those of several partitions.

    OPERATION_NOT_ATTEMPTED decides only without another one, since it follows from the others.
    """
    refused = [code for code in codes if code is not ErrorCode.NONE]
    decisive = [code for code in refused if code is not ErrorCode.OPERATION_NOT_ATTEMPTED] or refused
    order = (Reaction.FENCED, Reaction.FATAL, Reaction.ABORT, Reaction.ELSEWHERE, Reaction.AGAIN)
    return min(decisive, key=lambda code: order.index(reaction_to(request, code)), default=ErrorCode.NONE)
