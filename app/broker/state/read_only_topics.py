"""Topics whose records another cluster has copied to the same remote storage, and which are read here without a copy.

The leader of a partition reads the other cluster's manifest at intervals, and continues its own, empty, log at the end
of what that describes. Its followers get error 109 there, as in every tiered topic, and continue at the same offset; so
the high watermark is what all in-sync replicas know to be readable, and a later leader never has less. Nothing is
written into the remote storage, and nothing deleted: the manifest is not claimed.

Batches have the leader epochs of the other cluster. Clients that have seen one do not follow leaders of earlier epochs,
so the leader epoch here is raised to the other cluster's before batches with it are readable.
"""

from collections.abc import Callable
from functools import partial

from ....core.replica.partition.partition import Partition
from ....core.replica.replica_manager import ReplicaManager
from ....core.tiering.manifest import MANIFEST, Manifest, decode_manifest, partition_folder
from ....core.tiering.remote_reader import Offload, RemoteView
from ....ports.clock import Clock
from ....ports.remote_storage import ObjectMissing, RemoteStorage
from ....ports.report import info
from ....ports.scheduler import Outcome
from ....ports.storage import StorageError
from ....ports.types import Offset, TopicPartition

RaiseLeaderEpoch = Callable[[Partition, int, Callable[[], None]], None]
"""Raises the leader epoch of a partition in the tree, and calls back in any case."""


def folder_of(partition: Partition) -> str:
    """Return the folder of a partition in remote storage, or of the one that it reads."""
    source, key = partition.log.config.remote_storage_source, partition.topic_partition
    return f"{source}/{key.partition}" if source else partition_folder(key, partition.topic_id)


def is_beyond_replicas(partition: Partition, offset: int) -> bool:
    """Return True if `offset` of a read-only partition is above the offset that all in-sync replicas can serve."""
    return bool(partition.log.config.remote_storage_source) and offset > partition.high_watermark


def lacks_news(partition: Partition, view: RemoteView | None) -> bool:
    """Return True if a follower's copy of the manifest ends below the high watermark of a read-only partition."""
    is_read_only = bool(partition.log.config.remote_storage_source)
    return is_read_only and view is not None and view.manifest.end < partition.high_watermark


def read_manifest(storage: RemoteStorage, folder: str) -> Manifest:
    """Read the manifest of a partition. Any thread. Raises `RemoteStorageError`, `CorruptManifest`."""
    return decode_manifest(storage.read(f"{folder}/{MANIFEST}").content)


class _Led:
    """A partition that this broker leads, with what is known of the other cluster's."""

    __slots__ = ("complained", "is_reading", "partition", "view")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.view: RemoteView | None = None
        self.is_reading = self.complained = False


class ReadOnlyTopics:
    """Owner thread only."""

    def __init__(
        self,
        storage: RemoteStorage,
        offload: Offload,
        replicas: ReplicaManager,
        *,
        raise_leader_epoch: RaiseLeaderEpoch,
        clock: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._offload = offload
        self._replicas = replicas
        self._raise_leader_epoch = raise_leader_epoch
        self._clock = clock
        self._report = report
        self._led: dict[TopicPartition, _Led] = {}

    def lead(self, partition: Partition) -> None:
        """Care for a partition from now on, in this leader epoch."""
        led = self._led[partition.topic_partition] = _Led(partition)
        self._read(led)

    def resign(self, key: TopicPartition) -> None:
        """Forget a partition: another broker leads it, or it is deleted."""
        self._led.pop(key, None)

    def view(self, key: TopicPartition) -> RemoteView | None:
        """Return what readers use of a led partition; None while its manifest is not known."""
        led = self._led.get(key)
        return None if led is None else led.view

    def read_again(self, key: TopicPartition) -> None:
        """Read the manifest of a partition now, if it is led here: an object that it names is missing."""
        led = self._led.get(key)
        if led is not None:
            self._read(led)

    def read_all(self) -> None:
        """Read the manifests again."""
        for each in list(self._led.values()):
            self._read(each)

    def _read(self, led: _Led) -> None:
        if not led.is_reading:
            led.is_reading = True
            self._offload(partial(read_manifest, self._storage, folder_of(led.partition)), partial(self._came, led))

    def _came(self, led: _Led, outcome: Outcome[Manifest]) -> None:
        led.is_reading = False
        partition = led.partition
        if self._led.get(partition.topic_partition) is not led or partition.log.closed:
            return
        if outcome.error is not None:
            self._complain(led, _why(outcome.error))
            return
        manifest = outcome.get()
        if manifest.leader_epoch > partition.leader_epoch:
            led.is_reading = True
            self._raise_leader_epoch(partition, manifest.leader_epoch, partial(self._raised, led, manifest))
            return
        try:
            self._apply(led, manifest)
        except StorageError as error:
            self._replicas.storage_failed(partition.topic_partition, error)

    def _raised(self, led: _Led, manifest: Manifest) -> None:
        """Continue after the leader epoch was raised, unless that failed, or comes by the image, which leads again."""
        led.is_reading = False
        if led.partition.leader_epoch >= manifest.leader_epoch:
            self._read(led)

    def _apply(self, led: _Led, manifest: Manifest) -> None:
        partition, log = led.partition, led.partition.log
        led.view = RemoteView(folder=folder_of(partition), manifest=manifest)
        start, end = manifest.readable_range
        if end > log.log_end_offset:
            partition.continue_read_only(end, log_start=max(start, log.log_start_offset), now_ms=self._clock.now_ms())
        elif end < log.log_end_offset:
            self._complain(led, f"it ends at {end} there, before {log.log_end_offset}, where it ended already")
        else:
            led.complained = False
        if start > log.log_start_offset:
            log.advance_log_start(min(start, partition.high_watermark))
        log.remote_end = Offset(log.log_end_offset)
        self._replicas.purgatory.check(partition.topic_partition)

    def _complain(self, led: _Led, why: str) -> None:
        if not led.complained:
            led.complained = True
            partition = led.partition
            source = folder_of(partition)
            self._report(info(f"{partition.topic_partition}: the manifest of {source} is not followed for now: {why}"))


def _why(error: BaseException) -> str:
    return "there is none" if isinstance(error, ObjectMissing) else str(error)
