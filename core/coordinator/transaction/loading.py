"""The content of one partition of `__transaction_state`: the last value of each transactional id."""

from ....ports.errors import ApiError
from ..skipped import SkippedRecords
from .records import StoredTransaction, decode_key, decode_value


class TransactionLoading:
    """The state read from the records of one partition, in their order. It has no reference to the coordinator, so any
    thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.stored: dict[str, StoredTransaction] = {}
        """The last value by transactional id."""
        self._skipped = SkippedRecords()

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add the next record."""
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
        """Return one line about the records left out; None when there are none."""
        return self._skipped.report(f"__transaction_state-{self.partition}")
