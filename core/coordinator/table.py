"""What a coordinator keeps by key, by the partition of the internal topic that its records are in."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from ...ports.error_codes import ErrorCode
from .placement import partition_of
from .record_fields import STRING_BYTES_MAX


class Coordinated(Protocol):
    """A group, a transactional id; its key never changes."""

    @property
    def key(self) -> str: ...

    @property
    def partition(self) -> int:
        """Of the internal topic."""
        ...


class LoadedPartition(Protocol):
    """What the records of one partition come to, as they are read."""

    @property
    def partition(self) -> int: ...


E = TypeVar("E", bound=Coordinated)
L = TypeVar("L", bound=LoadedPartition)


class CoordinatorTable(Generic[E, L]):
    """Which partitions are here, which of them are being read, and what is in them. Owner thread only.

    `leads` tells if this broker may still speak for a partition that is here: it may have been replaced, and not have
    heard of it.
    """

    def __init__(self, partition_count: int, leads: Callable[[int], bool], *, bad_key: ErrorCode) -> None:
        """`bad_key` is what a key is answered that nothing can have."""
        self.partition_count = partition_count
        """Of the internal topic; to be set before the first partition is led here."""
        self._leads = leads
        self._bad_key = bad_key
        self._entries: dict[str, E] = {}
        self._partitions: dict[int, dict[str, E]] = {}
        self._loading: dict[int, L] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entries.values())

    @property
    def is_loading(self) -> bool:
        """Some partition is still being read."""
        return bool(self._loading)

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are here, being read or done."""
        return sorted({*self._partitions, *self._loading})

    def partition_of(self, key: str) -> int:
        return partition_of(key, self.partition_count)

    def refusal(self, key: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Why a request about this key cannot be answered here and now. Old clients commit for the group "", which can
        be looked at and deleted, too."""
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

    def leads(self, partition: int) -> bool:
        """True if this broker may speak for the partition now."""
        return self._leads(partition)

    def get(self, key: str) -> E | None:
        return self._entries.get(key)

    def add(self, entry: E) -> None:
        """Its partition is here and read."""
        self._entries[entry.key] = self._partitions[entry.partition][entry.key] = entry

    def remove(self, entry: E) -> None:
        """Harmless when it is not there any more."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            del self._partitions[entry.partition][entry.key]

    def begin(self, loading: L) -> L:
        """Its partition is led here now, and is to be read."""
        self._loading[loading.partition] = loading
        return loading

    def is_wanted(self, loading: L) -> bool:
        """False if the partition is led elsewhere since the loading began, or loaded again."""
        return self._loading.get(loading.partition) is loading

    def finish(self, loading: L) -> bool:
        """The partition is read; False if the loading is not wanted."""
        if not self.is_wanted(loading):
            return False
        del self._loading[loading.partition]
        self._partitions[loading.partition] = {}
        return True

    def drop(self, partition: int) -> list[E]:
        """The partition is led elsewhere; returns what was here of it."""
        self._loading.pop(partition, None)
        entries = list(self._partitions.pop(partition, {}).values())
        for entry in entries:
            del self._entries[entry.key]
        return entries
