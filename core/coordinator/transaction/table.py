"""The transactional ids that a broker coordinates, by the partition of `__transaction_state` that keeps them."""

from collections.abc import Callable, Iterator, Sequence

from attrs import define

from ....ports.error_codes import ErrorCode
from ....ports.scheduler import Timer
from ..placement import partition_of
from ..record_fields import STRING_BYTES_MAX
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


class TransactionTable:
    """Which partitions are here, in which coordinator epoch, which of them are being read, and the ids in them.

    `leads` tells if this broker may still speak for a partition that is here: it may have been replaced, and not have
    heard of it. Owner thread only.
    """

    def __init__(self, partition_count: int, leads: Callable[[int], bool]) -> None:
        self.partition_count = partition_count
        """Of `__transaction_state`; to be set before the first partition is led here."""
        self._leads = leads
        self._entries: dict[str, TransactionEntry] = {}
        self._partitions: dict[int, dict[str, TransactionEntry]] = {}
        self._loading: dict[int, TransactionLoading] = {}
        self._epochs: dict[int, int] = {}

    def __iter__(self) -> Iterator[TransactionEntry]:
        return iter(self._entries.values())

    @property
    def is_loading(self) -> bool:
        """Some partition is still being read."""
        return bool(self._loading)

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are here, being read or done."""
        return sorted({*self._partitions, *self._loading})

    def partition_of(self, transactional_id: str) -> int:
        return partition_of(transactional_id, self.partition_count)

    def epoch_of(self, partition: int) -> int:
        """The coordinator epoch: the leader epoch in which the partition is led here."""
        return self._epochs[partition]

    def refusal(self, transactional_id: str) -> ErrorCode:
        """Why a request about this id cannot be answered here and now."""
        if not transactional_id or len(transactional_id.encode()) > STRING_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        partition = self.partition_of(transactional_id)
        is_loading = partition in self._loading
        if not (is_loading or partition in self._partitions) or not self._leads(partition):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE

    def get(self, transactional_id: str) -> TransactionEntry | None:
        return self._entries.get(transactional_id)

    def add(self, entry: TransactionEntry) -> None:
        """Its partition is here and read."""
        transactional_id = entry.transaction.transactional_id
        self._entries[transactional_id] = self._partitions[entry.partition][transactional_id] = entry

    def remove(self, entry: TransactionEntry) -> None:
        """Harmless when it is not there any more."""
        transactional_id = entry.transaction.transactional_id
        if self._entries.get(transactional_id) is entry:
            del self._entries[transactional_id]
            del self._partitions[entry.partition][transactional_id]

    def begin(self, partition: int, coordinator_epoch: int) -> TransactionLoading:
        """The partition is led here now, and is to be read."""
        self._epochs[partition] = coordinator_epoch
        loading = self._loading[partition] = TransactionLoading(partition)
        return loading

    def finish(self, loading: TransactionLoading) -> bool:
        """It is read; False if it is not wanted any more (led elsewhere since, or read anew)."""
        if self._loading.get(loading.partition) is not loading:
            return False
        del self._loading[loading.partition]
        self._partitions[loading.partition] = {}
        return True

    def drop(self, partition: int) -> list[TransactionEntry]:
        """The partition is led elsewhere; returns the ids that were here."""
        self._loading.pop(partition, None)
        entries = list(self._partitions.pop(partition, {}).values())
        for entry in entries:
            del self._entries[entry.transaction.transactional_id]
        return entries
