"""The states of a transactional id, and all transitions between them in one table (facts C6)."""

from collections.abc import Mapping
from enum import Enum, IntEnum

from ....ports.error_codes import ErrorCode


class TransactionState(IntEnum):
    """The state of a transactional id; its number is the one in the log.

    Kafka has two more states, which it does not write there: Dead, for an id that is about to be forgotten, and
    PrepareEpochFence, for a transaction that is about to be aborted for its producer.
    """

    EMPTY = 0
    """The present producer epoch has had no transaction yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided; the markers are being written to the partitions."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All partitions have their markers."""
    COMPLETE_ABORT = 5

    @property
    def word(self) -> str:
        """Kafka's word, as DescribeTransactions returns it."""
        return _WORDS[self]

    @property
    def is_decided(self) -> bool:
        """True while the markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True while no transaction is open or being ended."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_WORDS: Mapping[TransactionState, str] = {
    state: "".join(part.capitalize() for part in state.name.split("_")) for state in TransactionState
}


class Event(Enum):
    """An event of a transactional id."""

    INIT = "a producer asks for its identity"
    ADD = "partitions come into the transaction"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    TIME_OUT = "the transaction has lasted too long"
    MARKED = "all partitions have their markers"
    EXPIRE = "the id was not used for transactional.id.expiration.ms"


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
"""The next state, or the error for the answer (NONE: the id is in that state already). A pair that is missing here
cannot happen, or changes nothing; an id that expires is forgotten if it is idle."""


_ENDED = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
ENDS_IN_VERSION_2: Mapping[tuple[TransactionState, Event], TransactionState | ErrorCode] = {
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    **{(state, _E.COMMIT): ErrorCode.INVALID_TXN_STATE for state in _ENDED},
    # A producer that does not know if anything of its transaction has arrived gets the next epoch, which fences it.
    **{(state, _E.ABORT): _S.PREPARE_ABORT for state in _ENDED},
}
"""The next state, or the error, at the end of a transaction of version 2 (KIP-890). The present epoch is that of the
next transaction, never that of one that has ended; `TRANSITIONS` decides on a request that the producer repeats."""
