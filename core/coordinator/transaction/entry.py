"""One transactional id of a coordinator, and what waits for it."""

from collections.abc import Callable

from attrs import define

from ....ports.scheduler import Timer
from ..table import CoordinatorTable
from .effects import TransactionAsked
from .loading import TransactionLoading
from .transactional_id import TransactionalId


@define(kw_only=True, eq=False)
class TransactionEntry:
    """`partition` is the one of `__transaction_state` that keeps it. The timer is for who waits (`timed`)."""

    transaction: TransactionalId
    partition: int
    size_bytes: int = 0
    """As counted so far."""
    timer: Timer | None = None
    timed: TransactionAsked | None = None
    stop_marking: Callable[[], None] | None = None
    """Ends the sending of markers, while there is some."""

    @property
    def key(self) -> str:
        return self.transaction.transactional_id


TransactionTable = CoordinatorTable[TransactionEntry, TransactionLoading]
