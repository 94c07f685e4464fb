"""The partitions in a data folder, by their files: nothing is opened, checked or changed."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from ....ports.storage import FileMissing, LogDir, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..checkpoints import read_epochs
from ..formats.registry import detect_format
from ..names import SNAPSHOT_SUFFIX, classic_folder_partition, folder_partition, folder_state, segment_file
from ..producers.producer_state_manager import snapshot_offsets
from ..producers.snapshot import decode_snapshot
from .creation import read_topic_id


@frozen(kw_only=True)
class PartitionOnDisk:
    """The folder of a partition, and the format of its segments; `topic_id` is None without partition.metadata."""

    partition: TopicPartition
    log_dir: LogDir
    format_name: str
    topic_id: bytes | None

    @property
    def path(self) -> str:
        return f"{self.log_dir.path}/{self.partition}"

    def latest_epoch(self, report: Callable[[str], None]) -> int:
        """Return the newest leader epoch of its records; -1 when unknown. Raises `StorageError`."""
        epochs = read_epochs(self.log_dir.folder(str(self.partition)), report)
        return epochs[-1][0] if epochs else -1

    def largest_producer_id(self) -> int:
        """Return the largest producer id of the newest readable snapshot, -1 without one. Raises `StorageError`."""
        folder = self.log_dir.folder(str(self.partition))
        for offset in snapshot_offsets(folder):
            with suppress(ValueError, FileMissing):  # a corrupt one: an older one suffices
                states = decode_snapshot(folder.read_small(segment_file(offset, SNAPSHOT_SUFFIX)), now_ms=0)
                return max(states.producers, default=-1)
        return -1


def find_partitions(log_dir: LogDir, report: Callable[[str], None]) -> Iterator[PartitionOnDisk]:
    """Yield the partitions with segments, by the names of their folders; an unreadable one is reported and left out.

    Raises `StorageError` if the data folder itself is unreadable.
    """
    for name in log_dir.folders():
        partition = folder_partition(name) or classic_folder_partition(name)
        if partition is None or folder_state(name) is not None:
            continue
        try:
            folder = log_dir.folder(name)
            found = detect_format(f"{log_dir.path}/{name}", folder.files())
            label = read_topic_id(folder, report)
        except StorageError as error:
            report(f"{log_dir.path}/{name} is left out: {error}")
            continue
        if found is not None:
            yield PartitionOnDisk(partition=partition, log_dir=log_dir, format_name=found, topic_id=label)
