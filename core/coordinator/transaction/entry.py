"""One transactional id of a coordinator, with its timer and its marker sending."""

from collections.abc import Callable

from attrs import define

from ....ports.scheduler import Timer
from ..table import CoordinatorTable
from .effects import TransactionAsked
from .loading import TransactionLoading
from .transactional_id import TransactionalId


@define(kw_only=True, eq=False)
class TransactionEntry:
    """A transactional id as the coordinator holds it: `partition` is that of `__transaction_state` which stores it. The
    timer is for the request that waits (`timed`)."""

    transaction: TransactionalId
    partition: int
    size_bytes: int = 0
    """The memory of the id, as counted so far."""
    timer: Timer | None = None
    timed: TransactionAsked | None = None
    stop_marking: Callable[[], None] | None = None
    """Ends the sending of markers; None while none are being sent."""

    @property
    def key(self) -> str:
        return self.transaction.transactional_id


TransactionTable = CoordinatorTable[TransactionEntry, TransactionLoading]
