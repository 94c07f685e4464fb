"""What one partition of `__consumer_offsets` says: the last value of each key."""

from collections import Counter

from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from .records import CommittedOffset, GroupKey, StoredGroup, decode_group, decode_key, decode_offset

_EXAMPLES_MAX = 3
_REASONS_MAX = 100


class LoadedGroup:
    """One group as its records have it; `stored` None: only positions were ever committed."""

    __slots__ = ("offsets", "stored")

    def __init__(self) -> None:
        self.stored: StoredGroup | None = None
        self.offsets: dict[TopicPartition, CommittedOffset] = {}


class Loading:
    """Takes the records of one partition in their order; knows nothing of the coordinator, so any thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, LoadedGroup] = {}
        self.skipped: Counter[str] = Counter()
        """How often a record was left out, by the reason."""

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """The next record."""
        if key is None:
            self.skipped["it has no key"] += 1
            return
        try:
            what = decode_key(key)
            if isinstance(what, GroupKey):
                self._group(what.group_id).stored = None if value is None else decode_group(value)
            elif value is None:
                self._group(what.group_id).offsets.pop(what.partition, None)
            else:
                self._group(what.group_id).offsets[what.partition] = decode_offset(value)
        except ApiError as error:
            reason = error.message if len(self.skipped) < _REASONS_MAX else "other reasons"
            self.skipped[reason] += 1

    def report(self) -> str | None:
        """One line about what was left out; None when nothing was."""
        if not self.skipped:
            return None
        examples = "; ".join(f"{count} x {why}" for why, count in self.skipped.most_common(_EXAMPLES_MAX))
        return f"__consumer_offsets-{self.partition}: {self.skipped.total()} records were left out ({examples})"

    def _group(self, group_id: str) -> LoadedGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = LoadedGroup()
        return group
