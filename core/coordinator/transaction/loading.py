"""What one partition of `__transaction_state` says: the last value of each transactional id."""

from ....ports.errors import ApiError
from ..skipped import SkippedRecords
from .records import StoredTransaction, decode_key, decode_value


class TransactionLoading:
    """Takes the records of one partition in their order; knows nothing of the coordinator, so any thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.stored: dict[str, StoredTransaction] = {}
        """By transactional id."""
        self._skipped = SkippedRecords()

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """The next record."""
        if key is None:
            self._skipped.add("it has no key")
            return
        try:
            transactional_id = decode_key(key)
            if value is None:
                self.stored.pop(transactional_id, None)
            else:
                self.stored[transactional_id] = decode_value(value)
        except ApiError as error:
            self._skipped.add(error.message)

    def report(self) -> str | None:
        """One line about what was left out; None when nothing was."""
        return self._skipped.report(f"__transaction_state-{self.partition}")
