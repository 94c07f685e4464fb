"""Tiered storage of one broker: what it leads is copied, what it follows is rebuilt, what clients ask for is read.

A read-only topic has records that another cluster has copied to the same remote storage; they are read here without a
copy. The leader of a partition reads the other cluster's manifest at intervals, and continues its own, empty, log at
the end of what that describes. Its followers get error 109 there, as in every tiered topic, and continue at the same
offset; so the high watermark is what all in-sync replicas know to be readable, and a later leader never has less.
Nothing is written into the remote storage, and nothing deleted: the manifest is not claimed.

Its batches have the leader epochs of the other cluster. Clients that have seen one do not follow leaders of earlier
epochs, so the leader epoch here is raised to the other cluster's before batches with it are readable.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ....core.client.driver import Submit
from ....core.cluster.change_queue import elsewhere
from ....core.cluster.image import ClusterImage
from ....core.cluster.topic_store import confirm_deleted_in_remote_storage, deleted_in_remote_storage
from ....core.cluster.topics import Topic
from ....core.coordinator.group.coordinator import GroupCoordinator
from ....core.log.partition_log.results import TimestampOffset
from ....core.log.producers.producer_state import ProducerStates
from ....core.log.producers.snapshot import encode_snapshot
from ....core.message.codec import Codecs
from ....core.replica.alter_partition_manager import SubmitChange
from ....core.replica.partition.partition import Partition
from ....core.replica.replica_manager import ReplicaManager
from ....core.tiering.group_offsets import CopiedOffsets, GroupOffset, group_offsets_key, store_group_offsets
from ....core.tiering.manifest import (
    MANIFEST,
    Manifest,
    TieredTopic,
    decode_manifest,
    epochs_between,
    indexes_key,
    partition_folder,
)
from ....core.tiering.remote_log_manager import LedLog, RemoteLogManager, TierStats
from ....core.tiering.remote_reader import Offload, RemoteLogReader, RemoteRecords, RemoteView
from ....core.tiering.segment_objects import SegmentIndexes
from ....ports.broker_api.fetch import AbortedTransaction, FetchPartition, FetchResultPartition
from ....ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
)
from ....ports.clock import Clock
from ....ports.coordination import Coordination
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.metrics import Counter, Metrics
from ....ports.remote_storage import ObjectMissing, RemoteStorage
from ....ports.report import info
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import StorageError, size_of
from ....ports.types import Offset, TopicPartition
from ....ports.values import frozen
from ...config import BrokerConfig

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


_OFFSETS_TOPIC = "__consumer_offsets"
_FRUITLESS_MIN = 20
"""The tree forgets a deleted topic when remote storage has had nothing of it so often in a row: calls may come late."""
_FOLLOWER_VIEW_MS = 10_000.0
"""The time for which a follower serves consumers by one reading of a manifest."""


@frozen(kw_only=True)
class RemoteOutside:
    """The remote storage of a broker, and the threads that call it."""

    storage: RemoteStorage
    offload_copy: Offload
    offload_read: Offload
    close: Callable[[], None] = lambda: None


class _Rate:
    """Spaces work so that a rate of bytes is kept over any time, also where one piece of work is long (KIP-956)."""

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self._clock = clock
        self._limit = bytes_per_second
        self._free_ms = 0.0
        """When the work that was reserved is paid for."""

    def reserve_ms(self, size: int) -> float:
        """Reserve work of this size; return how long to wait before it begins."""
        now_ms = self._clock.monotonic_ms()
        begin_ms = max(self._free_ms, now_ms)
        self._free_ms = begin_ms + size * 1000.0 / self._limit
        return begin_ms - now_ms


class _OneATurn:
    """Spreads work of the owner thread: a turn has one piece of it, and what other clients ask for comes in between.

    Many readers may wait for one piece of a segment, and each answer with old records takes as long as some with new
    ones."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_taken = False
        """True until the next turn."""

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` now, or in a later turn."""
        if self._is_taken:
            self._waiting.append(work)
            return
        self._is_taken = True
        self._scheduler.call_soon(self._next)
        work()

    def _next(self) -> None:
        self._is_taken = False
        if self._waiting:
            self.run(self._waiting.popleft())


class _TierStats(TierStats):
    """The counters of copying and deleting, by Kafka's names."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counters: dict[tuple[str, str], Counter] = {}

    def _count(self, name: str, what: str, topic: str, number: int = 1) -> None:
        self.counter(name, what, topic).add(number)

    def counter(self, name: str, what: str, topic: str) -> Counter:
        found = self._counters.get((name, topic))
        if found is None:
            found = self._metrics.counter(f"kafka_server_brokertopicmetrics_{name}_total", what, topic=topic)
            self._counters[name, topic] = found
        return found

    def forget(self, topic: str) -> None:
        """Let go of the counters of a topic, which may be gone."""
        for each in [each for each in self._counters if each[1] == topic]:
            del self._counters[each]

    def copied(self, topic: str, size: int) -> None:
        self._count("remotecopyrequests", "Segments copied to remote storage.", topic)
        self._count("remotecopybytes", "Bytes copied to remote storage.", topic, size)

    def copy_failed(self, topic: str) -> None:
        self._count("remotecopyerrors", "Copies to remote storage that failed.", topic)

    def deleted(self, topic: str) -> None:
        self._count("remotedeleterequests", "Segments deleted in remote storage.", topic)

    def delete_failed(self, topic: str) -> None:
        self._count("remotedeleteerrors", "Deletions in remote storage that failed.", topic)

    def fetched(self, topic: str, size: int) -> None:
        """Count a read of remote storage for a client."""
        self._count("remotefetchrequests", "Reads from remote storage.", topic)
        self._count("remotefetchbytes", "Bytes read from remote storage for clients.", topic, size)

    def fetch_failed(self, topic: str) -> None:
        """Count a failed read of remote storage."""
        self._count("remotefetcherrors", "Reads from remote storage that failed.", topic)


LookupDone = Callable[[TimestampOffset | BaseException | None], None]


class Tiering:
    """Implements `RemoteReads`. Owner thread only. `start` it after the state is complete."""

    def __init__(
        self,
        outside: RemoteOutside,
        config: BrokerConfig,
        replicas: ReplicaManager,
        codecs: Codecs,
        *,
        cluster_id: str,
        image: Callable[[], ClusterImage],
        begins_in_tier: Callable[[], bool],
        ask: Submit | None,
        scheduler: Scheduler,
        clock: Clock,
        entropy: Entropy,
        metrics: Metrics,
        report: Callable[[str], None],
        raise_leader_epoch: RaiseLeaderEpoch,
        coordination: Coordination,
        own: int,
        submit_change: SubmitChange,
    ) -> None:
        self._coordination = coordination
        self._own = own
        self._submit_change = submit_change
        self._deleting: set[bytes] = set()
        """The ids of deleted topics whose objects are being deleted for a note in the tree."""
        self._found_nothing: dict[bytes, int] = {}
        """By id of a deleted topic, how often in a row remote storage had nothing of it."""
        self._outside = outside
        self._replicas = replicas
        self._cluster_id = cluster_id
        self._image = image
        self._begins_in_tier = begins_in_tier
        self._ask = ask
        self._scheduler = scheduler
        self._clock = clock
        self._report = report
        self._stats = _TierStats(metrics)
        self._interval_ms = float(config.remote_log_manager_task_interval_ms)
        self._copy_rate = _Rate(clock, config.remote_log_manager_copy_max_bytes_per_second)
        self._fetch_rate = _Rate(clock, config.remote_log_manager_fetch_max_bytes_per_second)
        self._timer: Timer | None = None
        self._closed = False
        self._views: dict[TopicPartition, tuple[RemoteView | None, float]] = {}
        self.coordinator: GroupCoordinator | None = None
        """The groups whose offsets in tiered topics are copied (settable)."""
        self._copied_groups: dict[int, tuple[int, tuple[GroupOffset, ...]]] = {}
        """By partition of `__consumer_offsets`, what was stored last, and in which leader epoch."""
        self._copies_groups = False
        self.lookup_wait_ms = float(config.remote_list_offsets_request_timeout_ms)
        """The longest wait of ListOffsets for remote storage."""
        self.max_wait_ms = float(config.remote_fetch_max_wait_ms)
        self.manager = RemoteLogManager(
            outside.storage,
            outside.offload_copy,
            scheduler=scheduler,
            clock=clock,
            entropy=entropy,
            report=report,
            interval_ms=self._interval_ms,
            copy_wait_ms=self._copy_rate.reserve_ms,
            stats=self._stats,
            changed=replicas.purgatory.check,
            suspect=replicas.suspect,
        )
        self._reads = _OneATurn(scheduler)
        self.reader = RemoteLogReader(
            outside.storage,
            outside.offload_read,
            codecs,
            pending_max=config.remote_log_reader_max_pending_tasks,
            index_bytes_max=config.remote_log_index_file_cache_total_size_bytes,
            resume=self._reads.run,
            delayed=self._when_allowed,
        )
        self.read_only = ReadOnlyTopics(
            outside.storage,
            outside.offload_read,
            replicas,
            raise_leader_epoch=raise_leader_epoch,
            clock=clock,
            report=report,
        )
        replicas.reads.remote = self
        replicas.rebuild = self.rebuild
        replicas.add_leadership_listener(self._led, self._resigned)
        replicas.listen(lambda _: None, self._dropped)
        self._show(metrics)

    def start(self) -> None:
        """Begin the periodic work."""
        self.manager.start()
        self._timer = self._scheduler.call_later(self._interval_ms, self._tick)

    def close(self) -> None:
        """End the work; nothing waits for what is under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.manager.close()
        self._outside.close()

    def _when_allowed(self, size: int, begin: Callable[[], None]) -> None:
        wait_ms = self._fetch_rate.reserve_ms(size)
        if wait_ms > 0:
            self._scheduler.call_later(wait_ms, begin)
        else:
            begin()

    def _show(self, metrics: Metrics) -> None:
        def of_led(read: Callable[[TopicPartition, RemoteView], float]) -> Iterable[tuple[tuple[str, str], float]]:
            for key, view in list(self.manager.views):
                yield (key.topic, str(key.partition)), read(key, view)

        labels = ("topic", "partition")
        name = "kafka_server_brokertopicmetrics_remote"
        for suffix, what, read in (
            ("copylagbytes", "Bytes that are not copied yet.", lambda key, _: self.manager.lag(key)[0]),
            ("copylagsegments", "Segments that are not copied yet.", lambda key, _: self.manager.lag(key)[1]),
            ("logsizebytes", "Bytes in remote storage.", lambda _, view: sum(s.size for s in view.manifest.readable)),
            ("logmetadatacount", "Segments in the manifest.", lambda _, view: len(view.manifest.segments)),
        ):
            metrics.gauges(f"{name}{suffix}", what, labels, partial(of_led, read))
        metrics.gauge(
            "kafka_log_remote_storage_remotelogreadertaskqueuesize",
            "Reads of remote storage that are under way.",
            lambda: self.reader.pending,
        )

    # --- leading

    def _led(self, partition: Partition) -> None:
        config = partition.log.config
        self._views.pop(partition.topic_partition, None)
        if config.remote_storage_source:
            self.read_only.lead(partition)
            return
        if not (config.tiered or config.remote_log_delete_on_disable):
            return
        self.manager.lead(
            LedLog(
                key=partition.topic_partition,
                topic_id=partition.topic_id,
                leader_epoch=partition.leader_epoch,
                log=partition.log,
                last_stable_offset=lambda: partition.last_stable_offset,
                describe=partial(self._describe, partition),
                awaits_producers=partial(self._replicas.awaits_producers, partition),
            )
        )

    def _resigned(self, partition: Partition) -> None:
        self.manager.resign(partition.topic_partition)
        self.read_only.resign(partition.topic_partition)

    def _dropped(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self.manager.resign(key)
            self.read_only.resign(key)
            self._views.pop(key, None)
            self._stats.forget(key.topic)

    def configs_changed(self, topic: Topic) -> None:
        """Apply the changed configuration of a topic."""
        for number in topic.partitions:
            partition = self._replicas.partitions.get((topic.name, number))
            if partition is not None and partition.is_leader and not partition.log.config.remote_storage_source:
                if self.manager.view(partition.topic_partition) is None:
                    self._led(partition)
                else:
                    self.manager.run_now(partition.topic_partition)

    def topic_deleted(self, topic: Topic) -> None:
        """Delete what remote storage has of a topic that was deleted."""
        if topic.configs.get("remote.storage.enable") == "true":
            self.manager.delete_topic(topic.name, topic.topic_id, lambda _: None)

    def _finish_deletions(self) -> None:
        """Delete what remote storage still has of topics that the tree notes as deleted; the controller does that.

        The brokers that had replicas have begun with it, but may have died, and a call of theirs may have come late.
        So a note stays until nothing was found in many intervals in a row.
        """
        controller = self._image().controller
        if controller is not None and controller.broker_id != self._own:
            return

        async def reading() -> None:
            found = await elsewhere(partial(deleted_in_remote_storage, self._coordination))
            for topic_id, name in found.items():
                if topic_id not in self._deleting and not self._image().has_id(topic_id) and not self._closed:
                    self._deleting.add(topic_id)
                    self.manager.delete_topic(name, topic_id, partial(deleted, name, topic_id))

        def deleted(name: str, topic_id: bytes, count: int) -> None:
            self._deleting.discard(topic_id)
            self._found_nothing[topic_id] = 0 if count else self._found_nothing.get(topic_id, 0) + 1
            if self._found_nothing[topic_id] >= _FRUITLESS_MIN and not self._closed:
                del self._found_nothing[topic_id]
                confirming = partial(_confirmed, self._coordination, topic_id)
                self._submit_change(f"noting that remote storage has nothing of topic {name}", confirming, _ignore)

        self._submit_change("reading which deleted topics are in remote storage", reading, _ignore)

    def _describe(self, partition: Partition) -> TieredTopic:
        key = partition.topic_partition
        topic = self._image().topics.get(key.topic)
        return TieredTopic(
            name=key.topic,
            topic_id=partition.topic_id,
            partitions=key.partition + 1 if topic is None else len(topic.partitions),
            configs={} if topic is None else dict(topic.configs),
        )

    # --- reads for clients

    def read(
        self,
        partition: Partition,
        entry: FetchPartition,
        max_bytes: int,
        *,
        committed: bool,
        done: Callable[[FetchResultPartition], None],
    ) -> None:
        key = partition.topic_partition

        def came(outcome: Outcome[RemoteRecords | None]) -> None:
            if outcome.value is not None and is_beyond_replicas(partition, outcome.value.next_offset):
                return  # the client asks again
            if outcome.error is not None or outcome.value is None:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                if entry.offset < partition.log.log_start_offset:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                elif outcome.error is not None:
                    self._stats.fetch_failed(key.topic)
                    self._report(f"{key}: reading offset {entry.offset} from remote storage failed: {outcome.error}")
                    self.read_only.read_again(key)
                done(FetchResultPartition(entry.topic, entry.partition, code, topic_id=entry.topic_id))
                return
            done(self._result(partition, entry, outcome.value, committed=committed))

        def use(view: RemoteView | None) -> None:
            if view is not None:  # else the manifest is being read, and the client asks again
                read = partial(self.reader.read, view, entry.offset, max_bytes=max_bytes, committed=committed)
                self._reads.run(partial(read, done=came))

        self._with_view(partition, use)

    def _result(
        self, partition: Partition, entry: FetchPartition, found: RemoteRecords, *, committed: bool
    ) -> FetchResultPartition:
        self._stats.fetched(entry.topic, size_of(found.records))
        aborted = None
        if committed:
            all_found = list(found.aborted)
            if not found.is_complete:
                all_found += partition.log.transactions.aborted(entry.offset, found.next_offset)
            pairs = sorted({(each.first_offset, each.producer_id) for each in all_found})
            aborted = [AbortedTransaction(producer, first) for first, producer in pairs]
        return FetchResultPartition(
            entry.topic,
            entry.partition,
            ErrorCode.NONE,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            found.records,
            aborted,
            topic_id=entry.topic_id,
        )

    def find_first_at(self, partition: Partition, timestamp: int, done: LookupDone) -> None:
        """Find the first record at `timestamp` or later in remote storage, below what is here.

        `done` gets None if there is none; the error if it cannot be known now.
        """
        local = min(partition.log.local_log_start_offset, partition.high_watermark)

        def came(outcome: Outcome[TimestampOffset | None]) -> None:
            if outcome.error is not None:
                done(outcome.error)
                return
            found = outcome.value
            done(found if found is not None and found.offset < local else None)

        def use(view: RemoteView | None) -> None:
            if view is None:
                done(StorageError(f"the manifest of {partition.topic_partition} is not known yet"))
            else:
                self.reader.find_first_at(view, timestamp, partition.log.log_start_offset, came)

        self._with_view(partition, use)

    def find_max_timestamp(self, partition: Partition, done: LookupDone) -> None:
        """Find the first record with the largest timestamp of all; `done` gets None if that is here."""
        here = max(each.largest_timestamp for each in partition.log.segments)

        def use(view: RemoteView | None) -> None:
            largest = -1 if view is None else max((each.max_timestamp for each in view.manifest.readable), default=-1)
            if largest < max(here, 0):
                done(None)
            else:
                self.find_first_at(partition, largest, done)

        self._with_view(partition, use)

    def _with_view(self, partition: Partition, use: Callable[[RemoteView | None], None]) -> None:
        """Call `use` with the manifest: the leader's own; a follower reads it now and then, to serve consumers."""
        key = partition.topic_partition
        if partition.is_leader:
            is_read_only = bool(partition.log.config.remote_storage_source)
            use((self.read_only if is_read_only else self.manager).view(key))
            return
        known = self._views.get(key)
        if known is not None and known[1] > self._clock.monotonic_ms() and not lacks_news(partition, known[0]):
            use(known[0])
            return

        def came(outcome: Outcome[Manifest]) -> None:
            view = None if outcome.error is not None else RemoteView(folder=folder, manifest=outcome.get())
            self._views[key] = view, self._clock.monotonic_ms() + _FOLLOWER_VIEW_MS
            use(view)

        folder = folder_of(partition)
        self._outside.offload_read(partial(read_manifest, self._outside.storage, folder), came)

    # --- offsets of groups, for a restore

    def _copy_group_offsets(self) -> None:
        """Store the committed offsets in tiered topics that have changed, of the groups that are coordinated here."""
        coordinator = self.coordinator
        if coordinator is None or self._copies_groups:
            return
        ids = {
            topic.name: topic.topic_id.hex()
            for topic in self._image().topics.values()
            if topic.configs.get("remote.storage.enable") == "true"
        }
        epochs = self._coordinated(coordinator)
        if not (ids or self._copied_groups) or not epochs:
            return

        def failed(error: BaseException) -> None:
            self._copies_groups = False
            self._report(f"offsets of groups cannot be stored in remote storage; retrying: {error}")

        def collected(outcome: Outcome[dict[int, tuple[GroupOffset, ...]]]) -> None:
            if outcome.error is not None:
                failed(outcome.error)
                return
            present = self._coordinated(coordinator)
            changed = {
                number: offsets
                for number, offsets in outcome.get().items()
                if present.get(number) == epochs[number]  # else some of its groups may have gone meanwhile
                and self._copied_groups.get(number, (epochs[number], ())) != (epochs[number], offsets)
            }
            if not changed or self._closed:
                self._copies_groups = False
                return
            content = [
                CopiedOffsets(
                    partition=number,
                    leader_epoch=epochs[number],
                    copied_ms=self._clock.now_ms(),
                    offsets=offsets,
                )
                for number, offsets in changed.items()
            ]
            self._outside.offload_copy(partial(store, content), partial(stored, content))

        def store(content: Iterable[CopiedOffsets]) -> None:
            for each in content:
                store_group_offsets(self._outside.storage, group_offsets_key(self._cluster_id, each.partition), each)

        def stored(content: Iterable[CopiedOffsets], outcome: Outcome[None]) -> None:
            if outcome.error is not None:
                failed(outcome.error)
                return
            self._copies_groups = False
            self._copied_groups |= {each.partition: (each.leader_epoch, each.offsets) for each in content}

        self._copies_groups = True
        self._outside.offload_copy(partial(_collected, coordinator, ids, list(epochs)), collected)

    def _coordinated(self, coordinator: GroupCoordinator) -> dict[int, int]:
        """Return the leader epochs of the partitions of `__consumer_offsets` that are loaded here."""
        found = {}
        for number in coordinator.loaded_partitions:
            partition = self._replicas.partitions.get((_OFFSETS_TOPIC, number))
            if partition is not None and partition.is_leader:
                found[number] = partition.leader_epoch
        return found

    # --- following

    def _tick(self) -> None:
        """Ask each leader what remote storage has of the partitions that this broker follows (ListOffsets -5)."""
        self._timer = self._scheduler.call_later(self._interval_ms, self._tick)
        self._copy_group_offsets()
        self._finish_deletions()
        self.read_only.read_all()
        by_leader: dict[int, list[Partition]] = {}
        for partition in self._replicas.partitions.values():
            if partition.log.config.tiered and not partition.is_leader and partition.leader >= 0:
                by_leader.setdefault(partition.leader, []).append(partition)
        for leader, partitions in by_leader.items():
            epochs = {each.topic_partition: each.leader_epoch for each in partitions}
            self._ask_offsets(leader, partitions, LATEST_TIERED, partial(self._tiered_known, epochs))

    def _tiered_known(self, epochs: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> None:
        """Apply what leaders have answered; an answer of an earlier leader may be of records that are cut here."""
        for key, offset in offsets.items():
            partition = self._replicas.partitions.get(key)
            if partition is None or partition.is_leader or partition.leader_epoch != epochs[key]:
                continue
            if 0 <= offset < partition.log.log_end_offset:
                partition.log.remote_end = Offset(max(partition.log.remote_end, offset + 1))

    def _ask_offsets(
        self,
        leader: int,
        partitions: Iterable[Partition],
        timestamp: int,
        known: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        """Ask a leader for offsets; `known` gets those that it has answered."""
        request = ListOffsets(
            partitions=[
                ListOffsetsPartition(
                    topic=each.topic_partition.topic,
                    partition=each.topic_partition.partition,
                    timestamp=timestamp,
                    current_leader_epoch=each.leader_epoch,
                )
                for each in partitions
            ]
        )

        def heard(result: object) -> None:
            found: dict[TopicPartition, int] = {}
            if isinstance(result, ListOffsetsResult):
                for each in result.partitions:
                    if each.error is ErrorCode.NONE:
                        found[TopicPartition(each.topic, each.partition)] = each.offset
            known(found)

        if self._ask is None:
            known({})
        else:
            self._ask(leader, request, heard)

    def rebuild(self, partition: Partition, done: Callable[[bool], None]) -> None:
        """Restart the log of a follower behind what only remote storage has (KIP-405).

        It continues at the end of the remote segment before the leader's first local offset, with the producers and
        leader epochs that the segment's objects have. A new follower may continue at the end of all remote segments
        (`follower.fetch.last.tiered.offset.enable`).
        """
        key, epoch, storage = partition.topic_partition, partition.leader_epoch, self._outside.storage

        def failed(why: object) -> None:
            self._report(info(f"{key} cannot be rebuilt from remote storage for now: {why}"))
            done(False)

        def is_outdated() -> bool:
            present = self._replicas.partitions.get(key)
            return self._closed or present is not partition or partition.is_leader or partition.leader_epoch != epoch

        def local_known(offsets: Mapping[TopicPartition, int]) -> None:
            local = offsets.get(key)
            if local is None or is_outdated():
                failed("the leader does not say where its log begins")
                return
            if local == partition.log.log_end_offset == 0:
                done(True)  # nothing is in remote storage, and nothing is here
                return
            if partition.log.config.remote_storage_source:
                self._ask_offsets(partition.leader, [partition], EARLIEST, partial(restart_read_only, local))
                return
            work = partial(read_aux_state, storage, key, partition.topic_id, local)
            self._outside.offload_read(work, partial(came, local))

        def came(local: int, outcome: Outcome[_AuxState | None]) -> None:
            if outcome.error is not None or is_outdated():
                failed(outcome.error or "it has another leader")
            elif outcome.value is None:
                self._ask_offsets(partition.leader, [partition], EARLIEST, partial(restart_plainly, local))
            else:
                aux = outcome.value
                restart(
                    lambda: partition.restart_from_tier(
                        aux.offset,
                        log_start=aux.log_start,
                        epochs=aux.epochs,
                        snapshot=aux.snapshot,
                        now_ms=self._clock.now_ms(),
                    ),
                    aux.offset,
                )

        def restart_plainly(local: int, offsets: Mapping[TopicPartition, int]) -> None:
            if offsets.get(key) != local or is_outdated():
                failed(f"remote storage lacks what is below offset {local}")
            else:
                restart(lambda: partition.truncate_fully_and_start_at(local, self._clock.now_ms()), local)

        def restart_read_only(local: int, offsets: Mapping[TopicPartition, int]) -> None:
            start = offsets.get(key)
            if start is None or is_outdated():
                failed("the leader does not say where its log begins")
            else:
                now_ms = self._clock.now_ms()
                restart(lambda: partition.continue_read_only(local, log_start=start, now_ms=now_ms), local)

        def restart(work: Callable[[], None], offset: int) -> None:
            try:
                work()
            except StorageError as error:
                self._replicas.storage_failed(key, error)
                done(False)
            except ValueError as error:
                failed(error)
            else:
                self._report(info(f"{key} continues at {offset}, behind what is in remote storage"))
                done(True)

        self._ask_for_begin(partition, local_known)

    def _ask_for_begin(self, partition: Partition, known: Callable[[Mapping[TopicPartition, int]], None]) -> None:
        """Ask where the leader's local log begins; for a new follower, where remote storage ends (KIP-1023)."""
        key = partition.topic_partition
        is_new = partition.log.log_end_offset == 0 and partition.log.config.remote_storage_enable

        def last_known(offsets: Mapping[TopicPartition, int]) -> None:
            if offsets.get(key, -1) >= 0:
                known({key: offsets[key] + 1})
            else:
                self._ask_offsets(partition.leader, [partition], EARLIEST_LOCAL, known)

        if is_new and self._begins_in_tier():
            self._ask_offsets(partition.leader, [partition], LATEST_TIERED, last_known)
        else:
            self._ask_offsets(partition.leader, [partition], EARLIEST_LOCAL, known)


async def _confirmed(coordination: Coordination, topic_id: bytes) -> None:
    await elsewhere(partial(confirm_deleted_in_remote_storage, coordination, topic_id))


def _ignore(_: object) -> None:
    """Ignore the outcome: what has failed is done at the next interval."""


def _collected(
    coordinator: GroupCoordinator, ids: Mapping[str, str], partitions: Iterable[int]
) -> dict[int, tuple[GroupOffset, ...]]:
    """Return the committed offsets in the topics with these ids, by partition of `__consumer_offsets`. Any thread."""
    found: dict[int, list[GroupOffset]] = {number: [] for number in partitions}
    for group, tp, offset in coordinator.committed():
        number = coordinator.partition_of(group)
        if tp.topic in ids and number in found:
            found[number].append(
                GroupOffset(
                    group=group,
                    topic=tp.topic,
                    topic_id=ids[tp.topic],
                    partition=tp.partition,
                    offset=offset,
                )
            )
    return {
        number: tuple(sorted(offsets, key=lambda each: (each.group, each.topic, each.partition)))
        for number, offsets in found.items()
    }


@frozen(kw_only=True)
class _AuxState:
    """The state of a log at an offset, as remote storage has it (Kafka: RemoteLogAuxState)."""

    offset: int
    log_start: int
    epochs: tuple[tuple[int, int], ...]
    snapshot: bytes


def read_aux_state(storage: RemoteStorage, key: TopicPartition, topic_id: bytes, local: int) -> _AuxState | None:
    """Return the state at the end of the remote segment with the offset before `local`; None without such a segment.

    Any thread. Raises `RemoteStorageError`, `ValueError`.
    """
    folder = partition_folder(key, topic_id)
    try:
        manifest = read_manifest(storage, folder)
    except ObjectMissing:
        return None
    segment = manifest.find(local - 1)
    if segment is None:
        return None
    indexes = SegmentIndexes(storage.read(indexes_key(folder, segment)).content, segment.base_offset)
    return _AuxState(
        offset=segment.next_offset,
        log_start=manifest.log_start,
        epochs=epochs_between(manifest.epochs, manifest.log_start, segment.next_offset),
        snapshot=indexes.snapshot if indexes.snapshot is not None else encode_snapshot(ProducerStates()),
    )
