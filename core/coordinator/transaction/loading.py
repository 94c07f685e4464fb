"""What one partition of `__transaction_state` says: the last value of each transactional id."""

from collections import Counter

from ....ports.errors import ApiError
from .records import StoredTransaction, decode_key, decode_value

_EXAMPLES_MAX = 3
_REASONS_MAX = 100


class TransactionLoading:
    """Takes the records of one partition in their order; knows nothing of the coordinator, so any thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.stored: dict[str, StoredTransaction] = {}
        """By transactional id."""
        self._skipped: Counter[str] = Counter()

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """The next record."""
        if key is None:
            self._skipped["it has no key"] += 1
            return
        try:
            transactional_id = decode_key(key)
            if value is None:
                self.stored.pop(transactional_id, None)
            else:
                self.stored[transactional_id] = decode_value(value)
        except ApiError as error:
            reason = error.message if len(self._skipped) < _REASONS_MAX else "other reasons"
            self._skipped[reason] += 1

    def report(self) -> str | None:
        """One line about what was left out; None when nothing was."""
        if not self._skipped:
            return None
        examples = "; ".join(f"{count} x {why}" for why, count in self._skipped.most_common(_EXAMPLES_MAX))
        return f"__transaction_state-{self.partition}: {self._skipped.total()} records were left out ({examples})"
