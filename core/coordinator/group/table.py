"""The groups that a broker coordinates, by the partition of `__consumer_offsets` that keeps them."""

from collections.abc import Callable, Iterator, Sequence

from ....ports.error_codes import ErrorCode
from ..placement import partition_of
from ..record_fields import STRING_BYTES_MAX
from .entry import GroupEntry
from .loading import Loading
from .transacting import TransactingGroups


class GroupTable:
    """Which partitions are here, which of them are being read, and the groups in them. Owner thread only.

    `leads` tells if this broker may still speak for a partition that is here: it may have been replaced, and not have
    heard of it.
    """

    def __init__(self, partition_count: int, leads: Callable[[int], bool] = lambda _: True) -> None:
        self.partition_count = partition_count
        """Of `__consumer_offsets`; to be set before the first partition is led here."""
        self._leads = leads
        self._groups: dict[str, GroupEntry] = {}
        self._partitions: dict[int, dict[str, GroupEntry]] = {}
        self._loading: dict[int, Loading] = {}
        self.transactions = TransactingGroups()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[GroupEntry]:
        return iter(self._groups.values())

    @property
    def is_loading(self) -> bool:
        """Some partition is still being read."""
        return bool(self._loading)

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are here, being read or done."""
        return sorted({*self._partitions, *self._loading})

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self.partition_count)

    def refusal(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Why a request about this group cannot be answered here and now. Old clients commit for the group "",
        which can be looked at and deleted, too."""
        if not (group_id or may_be_empty):
            return ErrorCode.INVALID_GROUP_ID
        entry = self._groups.get(group_id)
        if entry is None and len(group_id.encode()) > STRING_BYTES_MAX:
            return ErrorCode.INVALID_GROUP_ID
        partition = self.partition_of(group_id) if entry is None else entry.partition
        is_loading = partition in self._loading
        if not (is_loading or partition in self._partitions) or not self._leads(partition):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE

    def get(self, group_id: str) -> GroupEntry | None:
        return self._groups.get(group_id)

    def add(self, entry: GroupEntry) -> None:
        """Its partition is here and read."""
        self._groups[entry.group.group_id] = entry
        self._partitions[entry.partition][entry.group.group_id] = entry

    def remove(self, entry: GroupEntry) -> None:
        """Harmless when it is not there any more."""
        group_id = entry.group.group_id
        if self._groups.get(group_id) is entry:
            del self._groups[group_id]
            del self._partitions[entry.partition][group_id]

    def begin(self, partition: int) -> Loading:
        """The partition is led here now, and is to be read."""
        loading = self._loading[partition] = Loading(partition)
        return loading

    def finish(self, loading: Loading) -> bool:
        """It is read; False if it is not wanted any more (led elsewhere since, or read anew)."""
        if self._loading.get(loading.partition) is not loading:
            return False
        del self._loading[loading.partition]
        self._partitions[loading.partition] = {}
        return True

    def drop(self, partition: int) -> list[GroupEntry]:
        """The partition is led elsewhere; returns the groups that were here."""
        self._loading.pop(partition, None)
        self.transactions.drop(partition)
        entries = list(self._partitions.pop(partition, {}).values())
        for entry in entries:
            del self._groups[entry.group.group_id]
        return entries
