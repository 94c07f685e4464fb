"""The states of a transactional id, and how one leads to the other: the whole of it in one table (facts C6)."""

from collections.abc import Mapping
from enum import Enum, IntEnum

from ....ports.error_codes import ErrorCode


class TransactionState(IntEnum):
    """The number is the one in the log. Kafka has two more, which it does not write there: Dead, for an id that is
    about to be forgotten, and PrepareEpochFence, for a transaction that is about to be aborted for its producer."""

    EMPTY = 0
    """There has been no transaction since the producer came."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """It is decided; the partitions are being told."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All partitions have been told."""
    COMPLETE_ABORT = 5

    @property
    def word(self) -> str:
        """Kafka's word, as DescribeTransactions tells it."""
        return _WORDS[self]

    @property
    def is_decided(self) -> bool:
        """The markers are under way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """No transaction is under way."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_WORDS: Mapping[TransactionState, str] = {
    state: "".join(part.capitalize() for part in state.name.split("_")) for state in TransactionState
}


class Event(Enum):
    """What may happen to a transactional id."""

    INIT = "a producer asks for its identity"
    ADD = "partitions come into the transaction"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    TIME_OUT = "the transaction has lasted too long"
    MARKED = "all partitions have their markers"
    EXPIRE = "nobody has used the id for long"


_S, _E = TransactionState, Event

TRANSITIONS: Mapping[tuple[TransactionState, Event], TransactionState | ErrorCode] = {
    (_S.EMPTY, _E.INIT): _S.EMPTY,
    (_S.EMPTY, _E.ADD): _S.ONGOING,
    (_S.EMPTY, _E.COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_S.EMPTY, _E.ABORT): ErrorCode.INVALID_TXN_STATE,
    (_S.ONGOING, _E.INIT): _S.PREPARE_ABORT,  # the producer of before is fenced; the identity follows when it has ended
    (_S.ONGOING, _E.ADD): _S.ONGOING,
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    (_S.ONGOING, _E.TIME_OUT): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.INIT): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, _E.ADD): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, _E.COMMIT): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, _E.ABORT): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_COMMIT, _E.MARKED): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.INIT): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_ABORT, _E.ADD): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_ABORT, _E.COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, _E.ABORT): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_ABORT, _E.MARKED): _S.COMPLETE_ABORT,
    (_S.COMPLETE_COMMIT, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_COMMIT, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_COMMIT, _E.COMMIT): ErrorCode.NONE,  # the answer to the first try was lost
    (_S.COMPLETE_COMMIT, _E.ABORT): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_ABORT, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_ABORT, _E.COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, _E.ABORT): ErrorCode.NONE,
}
"""What follows: the next state, or the error that is the answer (NONE: it is so already). What is not here cannot be,
or changes nothing; an id that expires is forgotten if it is idle."""
