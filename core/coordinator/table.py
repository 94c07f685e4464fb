"""The groups or transactional ids of a coordinator, by the partition of the internal topic that stores them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from ...ports.error_codes import ErrorCode
from ..client.producer.hashing import java_string_hash
from .record_fields import STRING_BYTES_MAX


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition that stores a group or a transactional id; its leader is the coordinator."""
    return (java_string_hash(key.encode()) & 0x7FFFFFFF) % partition_count


class CoordinatorEntry(Protocol):
    """A group or a transactional id. Its key never changes."""

    size_bytes: int
    """The memory that `CoordinatorRuntime` has counted for it."""

    @property
    def key(self) -> str:
        """The group id or the transactional id."""
        ...

    @property
    def partition(self) -> int:
        """The partition of the internal topic."""
        ...


class LoadedPartition(Protocol):
    """The records of one partition, as they are read."""

    @property
    def partition(self) -> int:
        """The partition of the internal topic."""
        ...

    def report(self) -> str | None:
        """Return a log line about skipped records, or None."""
        ...


EntryT = TypeVar("EntryT", bound=CoordinatorEntry)
LoadedT = TypeVar("LoadedT", bound=LoadedPartition)


class CoordinatorTable(Generic[EntryT, LoadedT]):
    """The partitions of the internal topic that this broker leads, those that are being loaded, and their entries.
    Owner thread only.

    `leads` says whether this broker may still answer for a partition: another leader may have been elected without this
    broker having heard of it.
    """

    def __init__(self, partition_count: int, leads: Callable[[int], bool], *, bad_key: ErrorCode) -> None:
        """`bad_key` is the error for a key that no entry can have."""
        self.partition_count = partition_count
        """The partition count of the internal topic; to be set before this broker leads the first partition."""
        self._leads = leads
        self._bad_key = bad_key
        self._entries: dict[str, EntryT] = {}
        self._partitions: dict[int, dict[str, EntryT]] = {}
        self._loading: dict[int, LoadedT] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[EntryT]:
        return iter(self._entries.values())

    @property
    def is_loading(self) -> bool:
        """True while a partition is being loaded."""
        return bool(self._loading)

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions that are loaded or being loaded."""
        return sorted({*self._partitions, *self._loading})

    @property
    def loaded(self) -> Sequence[int]:
        """The partitions that are loaded."""
        return sorted(self._partitions)

    def partition_of(self, key: str) -> int:
        """Return the partition that stores a key."""
        return partition_of(key, self.partition_count)

    def check_key(self, key: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return why a request for this key cannot be handled here and now, or NONE. Old clients commit for the group
        "", which can be fetched and deleted as well."""
        if not (key or may_be_empty):
            return self._bad_key
        entry = self._entries.get(key)
        if entry is None and len(key.encode()) > STRING_BYTES_MAX:
            return self._bad_key
        partition = self.partition_of(key) if entry is None else entry.partition
        is_loading = partition in self._loading
        if not (is_loading or partition in self._partitions) or not self._leads(partition):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE

    def find_ready(self, key: str) -> EntryT | None:
        """Return the entry of a key for which `check_key` returns NONE; None if there is no such entry."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        partition = entry.partition
        is_loaded = partition in self._partitions and partition not in self._loading
        return entry if is_loaded and key and self._leads(partition) else None

    def leads(self, partition: int) -> bool:
        """Return whether this broker may answer for the partition now."""
        return self._leads(partition)

    def get(self, key: str) -> EntryT | None:
        """Return the entry of a key, or None."""
        return self._entries.get(key)

    def is_current(self, entry: EntryT) -> bool:
        """Return whether the entry is in the table: it has neither been removed nor replaced."""
        return self._entries.get(entry.key) is entry

    def add(self, entry: EntryT) -> None:
        """Add an entry of a loaded partition."""
        self._entries[entry.key] = self._partitions[entry.partition][entry.key] = entry

    def remove(self, entry: EntryT) -> None:
        """Remove an entry; harmless if it is not in the table."""
        if self.is_current(entry):
            del self._entries[entry.key]
            del self._partitions[entry.partition][entry.key]

    def start_loading(self, loading: LoadedT) -> LoadedT:
        """Mark a partition as being loaded."""
        self._loading[loading.partition] = loading
        return loading

    def is_wanted(self, loading: LoadedT) -> bool:
        """Return False if another broker leads the partition since the load began, or if another load has begun."""
        return self._loading.get(loading.partition) is loading

    def finish(self, loading: LoadedT) -> bool:
        """Mark a partition as loaded. Return False if the load is not wanted."""
        if not self.is_wanted(loading):
            return False
        del self._loading[loading.partition]
        self._partitions[loading.partition] = {}
        return True

    def drop(self, partition: int) -> list[EntryT]:
        """Drop a partition, whether it is loaded or being loaded. Return the entries that it had."""
        self._loading.pop(partition, None)
        entries = list(self._partitions.pop(partition, {}).values())
        for entry in entries:
            del self._entries[entry.key]
        return entries
