"""The content of one partition of `__share_group_state`: the snapshots with their updates."""

from ....ports.errors import ApiError
from ....ports.values import define
from ...share.persister import SharePartitionKey
from ..skipped import SkippedRecords
from .records import SNAPSHOT, ShareSnapshot, decode_key, decode_snapshot, decode_update
from .share_partition_state import updated


@define
class LoadedState:
    """The state of a share partition, the updates since its snapshot, and an offset at or below that snapshot."""

    snapshot: ShareSnapshot
    updates: int
    first_offset: int


class ShareStateLoading:
    """The state read from the records of one partition, in their order. It has no reference to the coordinator, so any
    thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.stored: dict[SharePartitionKey, LoadedState] = {}
        self._from_offset = 0
        self._skipped = SkippedRecords()

    def begin_batches(self, from_offset: int) -> None:
        """Note that the next records have this offset or higher ones."""
        self._from_offset = from_offset

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add the next record."""
        if key is None:
            self._skipped.add("it has no key")
            return
        stored = self.stored
        try:
            record_type, share_partition = decode_key(key)
            before = stored.get(share_partition)
            if value is None:
                stored.pop(share_partition, None)
            elif record_type == SNAPSHOT:
                stored[share_partition] = LoadedState(decode_snapshot(value), 0, self._from_offset)
            elif before is None:
                stored[share_partition] = LoadedState(updated(None, decode_update(value)), 1, self._from_offset)
            else:
                before.snapshot = updated(before.snapshot, decode_update(value))
                before.updates += 1
        except ApiError as error:
            self._skipped.add(error.message)

    def report(self) -> str | None:
        """Return one line about the records left out; None when there are none."""
        return self._skipped.report(f"__share_group_state-{self.partition}")
