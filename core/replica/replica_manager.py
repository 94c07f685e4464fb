"""The replica manager: opens, drops, appends to and reads the partitions of a broker, and calls their listeners."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from attrs import evolve

from ...ports.broker_api.groups import PartitionOutcome
from ...ports.broker_api.topics import DeleteRecordsPartition, DeleteRecordsResultPartition
from ...ports.broker_api.transactions import TxnMarker, WrittenTxnMarker
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, broker_failed
from ...ports.metrics import Metrics
from ...ports.scheduler import Scheduler, Timer
from ...ports.storage import StorageError
from ...ports.types import Offset, TopicPartition
from ...ports.values import frozen
from ..client.driver import Submit
from ..cluster.change_queue import on_disk, on_disk_together
from ..cluster.topics import ALONE_EPOCH, NO_LEADER, PartitionState, ReplicaId, Topic
from ..log.manager.log_manager import LogManager
from ..log.partition_log.unified_log import UnifiedLog
from .follower.fetcher import NoFetchers, PartitionDataProcessor, ReplicaFetcherManager
from .leader.appender import ReplicaAppender
from .leader.delayed_produce import NONE, ProducePartitionStatus
from .leader.durable_flushes import DurableFlushes
from .leader.fetch_sessions import FetchSessionManager
from .leader.reader import ReplicaReader
from .leader.verified_appends import VerifiedAppends, Verify
from .partition.isr_manager import IsrManager, SubmitAlterPartition
from .partition.local_partitions import LocalPartitions
from .partition.partition import Partition
from .partition.replication_quota import ReplicationQuotaManager, leader_throttled_replicas
from .partition.topic_stats import BrokerTopicStats
from .purgatory import DelayedOperation, Purgatory
from .settings import DEFAULT_SETTINGS, ReplicationSettings


def _always(_of: object) -> bool:
    return True


PARTITIONS_AT_A_TIME = 100
"""The number of logs that one piece of work off the owner thread creates, and that one turn of it takes over."""


@frozen(kw_only=True)
class AssignedReplica:
    """A partition that is assigned to this broker, with its state in the cluster."""

    key: TopicPartition
    topic_id: bytes
    replicas: Sequence[int]
    state: PartitionState


# DeleteRecords: the leader deletes at once, and answers when all live replicas have done so (facts C6, D8).

DeletionResults = Callable[[Sequence[DeleteRecordsResultPartition] | ApiError], None]
"""Called with the results in the order of the request, or with an `ApiError` when the broker itself failed."""


class _DeleteRecordsPartitionStatus:
    """The offset below which one partition is to be deleted on all its live replicas."""

    def __init__(self, partition: Partition, offset: int, is_alive: Callable[[int], bool]) -> None:
        self.partition = partition
        self._led_since = partition.led_since
        self._offset = offset
        self._is_alive = is_alive

    def lost(self) -> bool:
        """Return True if this broker has not led the partition ever since."""
        return not self.partition.is_leader or self.partition.led_since != self._led_since

    @property
    def low_watermark(self) -> int:
        return self.partition.low_watermark(self._is_alive)

    def reached(self) -> bool:
        return self.low_watermark >= self._offset


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits for the followers; what is left in `pending` when it finishes has timed out."""

    __slots__ = ("pending",)

    def __init__(
        self,
        pending: dict[Hashable, _DeleteRecordsPartitionStatus],
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self.pending = pending

    def check(self, key: Hashable) -> bool:
        target = self.pending.get(key)
        if target is not None and (target.lost() or target.reached()):
            del self.pending[key]
        return not self.pending


class RecordDeleter:
    """Deletes records. A failure in one partition does not affect the others. Owner thread only."""

    def __init__(self, local: LocalPartitions, purgatory: Purgatory, is_alive: Callable[[int], bool]) -> None:
        self._local = local
        self._purgatory = purgatory
        self._is_alive = is_alive

    def delete(self, entries: Sequence[DeleteRecordsPartition], done: DeletionResults, *, timeout_ms: float) -> None:
        """Delete the records below an offset (-1 = below the high watermark) of partitions that this broker leads.

        `done` is called once, when no live replica has them, at the latest after `timeout_ms` (REQUEST_TIMED_OUT).
        POLICY_VIOLATION for a topic whose cleanup.policy lacks delete, OFFSET_OUT_OF_RANGE above the high watermark.
        """
        targets: dict[Hashable, _DeleteRecordsPartitionStatus] = {}
        refused: dict[Hashable, ErrorCode] = {}
        for entry in entries:
            key = TopicPartition(entry.topic, entry.partition)
            try:
                targets[key] = self._begin(entry)
            except ApiError as error:
                refused[key] = error.code
            except StorageError as error:
                self._local.storage_failed(key, error)
                refused[key] = ErrorCode.KAFKA_STORAGE_ERROR
        pending = {key: target for key, target in targets.items() if not target.reached()}

        def finish() -> None:
            done([_outcome(entry, targets, refused, pending) for entry in entries])

        if pending and timeout_ms > 0:
            waiting = DelayedDeleteRecords(pending, finish, lambda: done(broker_failed()))
            self._purgatory.watch(waiting, tuple(pending), timeout_ms)
        else:
            finish()
        for each in targets:
            self._purgatory.check(each)

    def _begin(self, entry: DeleteRecordsPartition) -> _DeleteRecordsPartitionStatus:
        partition = self._local.led(entry.topic, entry.partition)
        if "delete" not in partition.log.config.cleanup_policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
        return _DeleteRecordsPartitionStatus(partition, partition.delete_records(entry.offset), self._is_alive)


def _outcome(
    entry: DeleteRecordsPartition,
    targets: dict[Hashable, _DeleteRecordsPartitionStatus],
    refused: dict[Hashable, ErrorCode],
    pending: dict[Hashable, _DeleteRecordsPartitionStatus],
) -> DeleteRecordsResultPartition:
    key = (entry.topic, entry.partition)
    target = targets.get(key)
    code = refused.get(key, ErrorCode.NONE)
    if target is None:
        return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=code)
    if target.lost():
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif key in pending:
        code = ErrorCode.REQUEST_TIMED_OUT
    low = target.low_watermark if code is ErrorCode.NONE else -1
    return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=code, low_watermark=low)


# Transaction markers in the partitions that a broker leads, and listeners for completed transactions (facts C6).

MarkerResults = Callable[[Sequence[WrittenTxnMarker]], None]
"""Called with the results, in the order of the markers and of the partitions of each."""
OnTxnCompleted = Callable[[TopicPartition, int, int, bool], None]
"""Called with (partition, producer id, producer epoch, committed) when the in-sync replicas have the marker."""

_WATCH_MS = 3_600_000.0
"""The interval at which the watch of a marker is renewed after its request, while this broker leads the partition."""


class _AppendedMarker:
    """A marker in one partition: the offsets that it must reach, or the error of its append."""

    __slots__ = ("code", "key", "marker", "required")

    def __init__(self, key: TopicPartition, marker: TxnMarker) -> None:
        self.key = key
        self.marker = marker
        self.code = ErrorCode.NONE
        self.required: ProducePartitionStatus | None = None

    @property
    def is_waiting(self) -> bool:
        """True while not all in-sync replicas have it, and it may yet count."""
        return self.required is not None and not self.required.reached()

    @property
    def counts(self) -> bool:
        required = self.required
        return required is not None and required.reached() and not (required.lost() or required.failed())

    def outcome(self) -> PartitionOutcome:
        """Return the outcome for the response now."""
        code, required = self.code, self.required
        if required is not None and required.lost():
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif required is not None and required.failed():
            code = ErrorCode.KAFKA_STORAGE_ERROR
        elif self.is_waiting:
            code = ErrorCode.REQUEST_TIMED_OUT
        elif required is not None and required.partition.under_min_isr:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return PartitionOutcome(self.key.topic, self.key.partition, code)


class _DelayedMarkers(DelayedOperation):
    """Markers that not all in-sync replicas have yet; `reached` is called with each marker that they have."""

    __slots__ = ("_reached", "waiting")

    def __init__(
        self,
        placed: Sequence[_AppendedMarker],
        reached: Callable[[_AppendedMarker], None],
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self._reached = reached
        self.waiting: dict[Hashable, list[_AppendedMarker]] = {}
        for each in placed:
            self.waiting.setdefault(each.key, []).append(each)

    def check(self, key: Hashable) -> bool:
        some = self.waiting.pop(key, [])
        left = [each for each in some if each.is_waiting]
        if left:
            self.waiting[key] = left
        for each in some:
            if each.counts:
                self._reached(each)
        return not self.waiting


class TxnMarkerWriter:
    """Writes transaction markers. Owner thread only."""

    def __init__(self, local: LocalPartitions, purgatory: Purgatory, flushes: DurableFlushes, clock: Clock) -> None:
        self._local = local
        self._purgatory = purgatory
        self._flushes = flushes
        self._clock = clock
        self._txn_completed_listeners: list[OnTxnCompleted] = []

    def add_txn_completed_listener(self, listener: OnTxnCompleted) -> None:
        """Add a listener for each transaction that completes in a partition which this broker leads."""
        self._txn_completed_listeners.append(listener)

    def write(self, markers: Sequence[TxnMarker], done: MarkerResults, timeout_ms: float) -> None:
        """Write markers into partitions that this broker leads.

        `done` is called once, when the in-sync replicas have them, and after a flush where the topic asks for one, at
        the latest after `timeout_ms` (REQUEST_TIMED_OUT: the marker is in the log, and may yet count).
        INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED for a late marker, NOT_ENOUGH_REPLICAS where too few
        replicas are in sync, or where damage hides what is known of the producers.
        """
        now_ms = self._clock.now_ms()
        placed = [[self._place(key, marker, now_ms) for key in marker.partitions] for marker in markers]
        written = [each for some in placed for each in some if each.required is not None]

        def finish() -> None:
            done(
                [
                    WrittenTxnMarker(producer_id=marker.producer_id, partitions=[each.outcome() for each in some])
                    for marker, some in zip(markers, placed, strict=True)
                ]
            )
            self._watch_on(written)

        waiting = _DelayedMarkers(written, self._reached, finish, lambda: done(_all_failed(markers)))
        for key in tuple(waiting.waiting):
            waiting.check(key)
        if waiting.waiting and timeout_ms > 0:
            self._purgatory.watch(waiting, tuple(waiting.waiting), timeout_ms)
        else:
            finish()
        for key in {each.key: None for each in written}:
            self._purgatory.check(key)

    def _place(self, key: TopicPartition, marker: TxnMarker, now_ms: int) -> _AppendedMarker:
        placed = _AppendedMarker(key, marker)
        try:
            partition = self._local.led(*key)
            if partition.log.config.remote_storage_source:
                return placed  # a read-only partition, where no transaction has records
            if partition.under_min_isr:
                text = f"{len(partition.isr)} in sync, {partition.min_isr} are needed"
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
            self._local.check_producers_known(partition)
            appended = partition.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.committed,
                marker.coordinator_epoch,
                now_ms=now_ms,
                bumps_epoch=marker.supports_epoch_bump,
            )
            end = Offset(appended.last_offset + 1)
            flushing = self._flushes.begin_if_due(partition, now_ms)
            placed.required = ProducePartitionStatus(partition, end, recovery_point=end if flushing else NONE)
        except ApiError as error:
            placed.code = error.code
        except StorageError as error:
            self._local.storage_failed(key, error)
            placed.code = ErrorCode.KAFKA_STORAGE_ERROR
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._local.failed(f"ending a transaction in {key}", error)
            placed.code = broker_failed().code
        return placed

    def _reached(self, placed: _AppendedMarker) -> None:
        marker = placed.marker
        for listener in self._txn_completed_listeners:
            try:
                listener(placed.key, marker.producer_id, marker.producer_epoch, marker.committed)
            except Exception as error:  # noqa: BLE001  reported; the other listeners are still called
                self._local.failed(f"taking the end of a transaction in {placed.key}", error)

    def _watch_on(self, placed: Sequence[_AppendedMarker]) -> None:
        """Watch the markers whose request has timed out, so that the listeners are called when they count."""
        late = [each for each in placed if each.is_waiting]
        if late and self._txn_completed_listeners:
            waiting = _DelayedMarkers(late, self._reached, lambda: self._watch_on(late), lambda: None)
            self._purgatory.watch(waiting, tuple(waiting.waiting), _WATCH_MS)


def _all_failed(markers: Sequence[TxnMarker]) -> list[WrittenTxnMarker]:
    code = broker_failed().code
    return [
        WrittenTxnMarker(
            producer_id=each.producer_id,
            partitions=[PartitionOutcome(key.topic, key.partition, code) for key in each.partitions],
        )
        for each in markers
    ]


# The manager that lets a broker's partitions lead, follow or rest, as the partition states say (facts D3).


class Following(Protocol):
    """The component that fetches from leaders (`ReplicaFetcherManager`)."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader that the partition names, in its leader epoch, and stop fetching from any other."""
        ...

    def forget(self, partition: Partition) -> None:
        """Stop fetching for this partition; one that is not followed is no error."""
        ...

    def close(self) -> None:
        """Stop all fetching."""
        ...


class LeadershipManager:
    """Applies partition states to the open partitions, and calls the leadership listeners. Owner thread only."""

    def __init__(
        self, own: ReplicaId, purgatory: Purgatory, following: Following, clock: Clock, metrics: Metrics
    ) -> None:
        self.own = own
        """This broker with its present broker epoch; with an unknown epoch it leads nothing."""
        self.when_led: list[Callable[[Partition], None]] = []
        self.when_resigned: list[Callable[[Partition], None]] = []
        self._purgatory = purgatory
        self._following = following
        self._clock = clock
        name = "kafka_server_replicamanager_isr"
        self._shrinks = metrics.counter(f"{name}shrinks_total", "Members that left ISRs whose leader is here.")
        self._expands = metrics.counter(f"{name}expands_total", "Members that came into ISRs whose leader is here.")

    def start_partition(self, partition: Partition) -> None:
        """Start leading or following a partition that was just opened, in the state that it has."""
        self._update_fetcher(partition, began=True)
        if partition.is_leader:
            self._notify(self.when_led, partition)

    def apply(self, partition: Partition, state: PartitionState, replicas: Sequence[int]) -> None:
        """Apply another partition state, unless it is older than the known one."""
        known = partition.state
        if state.leader_epoch < known.leader_epoch or state.partition_epoch < known.partition_epoch:
            return
        if state == known and tuple(replicas) == partition.assigned:
            return
        self._apply_state(partition, state, replicas)

    def end_leadership(self, partition: Partition) -> None:
        """Stop leading a partition whose topic was deleted, whatever its stored state says."""
        state = partition.state
        ended = evolve(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
        if partition.is_leader:
            self._apply_state(partition, ended, partition.assigned)

    def on_broker_epoch_changed(self, broker_epoch: int, partitions: Iterable[Partition]) -> None:
        """Apply another broker epoch, or an unknown one: the broker leads a partition in one broker epoch only."""
        if broker_epoch == self.own.broker_epoch:
            return
        self.own = ReplicaId(self.own.broker_id, broker_epoch)
        for partition in partitions:
            self._apply_state(partition, partition.state, partition.assigned)

    def take_offline(self, partition: Partition) -> None:
        """Neither lead nor follow a partition whose log is out of use."""
        partition.offline = True
        self._apply_state(partition, partition.state, partition.assigned)

    def end(self, partition: Partition) -> None:
        """Stop leading and following a partition that is removed."""
        was_leader, partition.leader, partition.followers = partition.is_leader, NO_LEADER, None
        self._following.forget(partition)
        if was_leader:
            self._notify(self.when_resigned, partition)
        self._purgatory.check(partition.topic_partition)

    def _apply_state(self, partition: Partition, state: PartitionState, replicas: Sequence[int]) -> None:
        was_leader, before = partition.is_leader, (partition.leader, partition.leader_epoch)
        in_sync, might_follow = set(partition.isr), partition.may_follow
        risen = partition.apply_state(state, replicas, self.own, self._clock.monotonic_ms())
        again = before == (partition.leader, partition.leader_epoch)
        if again and was_leader:
            self._shrinks.add(len(in_sync - set(partition.isr)))
            self._expands.add(len(set(partition.isr) - in_sync))
        self._update_fetcher(partition, began=not (again and might_follow))
        if was_leader and not partition.is_leader:
            self._notify(self.when_resigned, partition)
        elif partition.is_leader and not again:
            self._notify(self.when_led, partition)
        if risen or not again:
            self._purgatory.check(partition.topic_partition)

    def _update_fetcher(self, partition: Partition, *, began: bool) -> None:
        """Follow the leader if there is one elsewhere, else stop following."""
        if partition.is_leader or partition.leader == NO_LEADER or partition.offline or not partition.may_follow:
            self._following.forget(partition)
        elif began:
            self._following.follow(partition)

    def _notify(self, listeners: Iterable[Callable[[Partition], None]], partition: Partition) -> None:
        for listener in listeners:
            listener(partition)


class ReplicaManager:
    """The replicas of one broker. Owner thread only.

    `unknown` returns the error for a partition that is not here; `report` takes lines for the broker's log.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        logs: LogManager,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        unknown: Callable[[str, int], ApiError],
        report: Callable[[str], None],
        broker_epoch: int = ALONE_EPOCH,
        settings: ReplicationSettings = DEFAULT_SETTINGS,
        fetch_from: Submit | None = None,
        lease_valid: Callable[[], bool] | None = None,
        alter_partition: SubmitAlterPartition | None = None,
        may_join: Callable[[ReplicaId], bool] = _always,
        is_alive: Callable[[int], bool] = _always,
        went_offline: Callable[[TopicPartition], None] | None = None,
        isr_clock: Clock | None = None,
    ) -> None:
        """Create the manager of a broker. The last seven parameters are for a broker in a cluster.

        fetch_from:   sends a request to a broker, as `Links.submit` does; None: there is no leader to follow.
        lease_valid:  returns True if no other leader can have been elected in place of this broker; None: none ever
                      can.
        alter_partition: stores another ISR, as `AlterPartitionManager.submit` does.
        may_join:     returns True if a replica may be added to an ISR; see `IsrManager`.
        is_alive:     returns True if a broker is alive.
        went_offline: is called with each partition whose disk has failed here.
        isr_clock:    measures how long followers lag; None: `clock` does.
        """
        self._logs = logs
        self._clock = clock
        self._isr_clock = isr_clock = isr_clock or clock
        self._scheduler = scheduler
        self._went_offline = went_offline
        self._lag_time_max_ms = settings.lag_time_max_ms
        self._local = LocalPartitions(
            unknown,
            report,
            lease_valid,
            clock=isr_clock,
            isr_silence_max_ms=settings.isr_silence_max_ms,
            on_offline=None if went_offline is None else self._take_offline,
        )
        self.partitions: Mapping[tuple[str, int], Partition] = self._local.by_key
        """The open partitions, by topic and number."""
        self.purgatory = Purgatory(scheduler, lambda error: self._local.failed("completing a delayed operation", error))
        self.stats = BrokerTopicStats(metrics)
        self._flushes = DurableFlushes(logs, self.purgatory)
        self._isr_manager = IsrManager(
            lambda: self._roles.own,
            self.purgatory,
            alter_partition,
            may_join,
            self._local.may_lead,
            lag_time_max_ms=settings.lag_time_max_ms,
        )
        self._when_opened: list[Callable[[Partition], None]] = []
        self._when_dropped: list[Callable[[Sequence[TopicPartition]], None]] = []
        self.fetchers: Following = NoFetchers() if fetch_from is None else self._fetchers(fetch_from, settings)
        own = ReplicaId(broker_id, broker_epoch)
        self._roles = LeadershipManager(own, self.purgatory, self.fetchers, isr_clock, metrics)
        appends = ReplicaAppender(self._local, self.purgatory, self._flushes, self.stats, clock, scheduler)
        self._when_opened.append(appends.opened)
        self.append = appends.append
        self.led_for_append = self._local.led_for_append
        self.is_appending = appends.is_busy
        """Returns True while records that an owner has appended are still being validated."""
        self._appends = appends
        self.markers = TxnMarkerWriter(self._local, self.purgatory, self._flushes, clock)
        """Writes the markers that end transactions in the partitions that this broker leads."""
        throttle = ReplicationQuotaManager(
            lambda: self._roles.own, clock, settings.leader_rate, leader_throttled_replicas
        )
        self.rebuild: Callable[[Partition, Callable[[bool], None]], None] = lambda _, done: done(False)
        """Restarts the log of a follower behind what only remote storage has (settable)."""
        reads = self.reads = ReplicaReader(
            self._local,
            self.purgatory,
            self.stats,
            self._isr_manager,
            throttle,
            isr_clock,
            hastens_high_watermark=settings.hastens_high_watermark,
        )
        self.read = reads.read
        self.fetch_sessions = FetchSessionManager(reads, self.purgatory)
        self.read_in_session = self.fetch_sessions.read
        self.delete_records = RecordDeleter(self._local, self.purgatory, is_alive).delete
        self._timer: Timer | None = None
        self._beginning: set[TopicPartition] = set()
        self._not_reopened: set[TopicPartition] = set()
        """The partitions whose logs could not be opened at the start; they may be in a failed data folder."""
        if went_offline is not None:
            logs.add_flush_listener(self._flushed)
        if alter_partition is not None:
            self._check_in_time()
        logs.high_watermark_of = self._high_watermark_of
        logs.awaits_producers = self._awaits_producers_of
        metrics.gauge(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", lambda: len(self.purgatory)
        )

    def _fetchers(self, fetch_from: Submit, settings: ReplicationSettings) -> ReplicaFetcherManager:
        def processor(wake: Callable[[TopicPartition], None]) -> PartitionDataProcessor:
            return PartitionDataProcessor(
                submit=fetch_from,
                own=lambda: self._roles.own,
                local=self._local,
                logs=self._logs,
                purgatory=self.purgatory,
                scheduler=self._scheduler,
                clock=self._clock,
                settings=settings,
                wake=wake,
                rebuild=self._rebuild_from_tier,
            )

        fetchers = ReplicaFetcherManager(processor)
        self._when_dropped.append(fetchers.forget_dropped)
        return fetchers

    def _rebuild_from_tier(self, partition: Partition, done: Callable[[bool], None]) -> None:
        self.rebuild(partition, done)

    def verified_appends(self, verify: Verify) -> VerifiedAppends:
        """Return the appends for clients that name their transactional id; `verify` asks the coordinators."""
        return VerifiedAppends(self._appends, self._local, self._scheduler, verify)

    # --- finding

    def led(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """Return a partition that this broker leads.

        Raises the `ApiError` of `unknown` if it is not here, or raises as `Partition.check_leader`.
        """
        return self._local.led(topic, number, current_leader_epoch)

    def readable(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """Return a partition that this broker leads and that consumers may read here.

        See `LocalPartitions.check_readable`.
        """
        return self._local.readable(topic, number, current_leader_epoch)

    def held(self, topic: str, number: int) -> Partition:
        """Return a partition that has a replica here, whether this broker leads it or not.

        Raises the `ApiError` of `unknown` if it is not here.
        """
        return self._local.held(topic, number)

    def leading(self, topic: str) -> Callable[[int], bool]:
        """Return a function that returns True for each partition of this topic that this broker leads now."""
        return partial(self._local.leads, topic)

    def is_beginning(self, key: TopicPartition) -> bool:
        """Return True while the log of a new partition is being created."""
        return key in self._beginning

    def add_suspicion_listener(self, listener: Callable[[UnifiedLog, int], None]) -> None:
        """Call `listener` with the log and an offset that a reader could not read, although a segment contains it."""
        self._local.add_suspicion_listener(listener)

    def suspect(self, log: UnifiedLog, offset: int) -> None:
        """Report that a reader within this broker could not read this offset."""
        self._local.suspect(log, offset)

    def awaits_producers(self, partition: Partition) -> bool:
        """Return True while damage hides batches of producers from this replica, and a repair may bring them back."""
        return self._local.awaits_producers(partition)

    def _awaits_producers_of(self, key: TopicPartition) -> bool:
        partition = self.partitions.get(key)
        return partition is not None and self.awaits_producers(partition)

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        """Report the failed disk of a log, once as long as the log is open."""
        self._local.storage_failed(key, error)

    # --- coming and going

    def listen(
        self,
        opened: Callable[[Partition], None],
        dropped: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Add listeners for partitions that are opened and dropped.

        `opened` is called with each partition that is opened from now on, `dropped` with the removed ones (some of
        which may never have been open here). Listeners are called in the order in which they were added.
        """
        self._when_opened.append(opened)
        self._when_dropped.append(dropped)

    def add_leadership_listener(self, led: Callable[[Partition], None], resigned: Callable[[Partition], None]) -> None:
        """Add listeners for leadership changes.

        `led` is called with each partition that this broker begins to lead, in each new leader epoch; `resigned` is
        called when it stops leading one.
        """
        self._roles.when_led.append(led)
        self._roles.when_resigned.append(resigned)

    async def open(self, assigned: Iterable[AssignedReplica]) -> Mapping[str, BarnabasError]:
        """Create the logs of new partitions that are not open yet: a part of a change (`ChangeQueue`).

        Returns the errors of topics whose logs are incomplete, by topic name.
        """
        missing = self._missing(assigned)
        failures: dict[str, BarnabasError] = {}
        self._beginning = {each.key for each in missing}
        try:
            for start in range(0, len(missing), PARTITIONS_AT_A_TIME):
                some = missing[start : start + PARTITIONS_AT_A_TIME]
                await self._begin_logs([each for each in some if each.key.topic not in failures], failures)
        finally:
            self._beginning = set()
        return failures

    async def _begin_logs(self, wanted: Sequence[AssignedReplica], failures: dict[str, BarnabasError]) -> None:
        for each in wanted:
            try:
                self._logs.rename_to_stray(each.key, "it was left by an earlier replica of this name")
            except StorageError as error:
                failures.setdefault(each.key.topic, error)
        creation = self._logs.begin_create(
            {each.key: each.topic_id for each in wanted if each.key.topic not in failures},
            not_new={each.key for each in wanted if self._may_have_log(each)},
        )
        try:
            if creation.parts:
                await on_disk_together(creation.parts)
                await on_disk(creation)
        except BaseException:
            creation.abandon()
            raise
        finally:
            errors = self._logs.complete_create(creation)
        for key, failure in errors.items():
            failures.setdefault(key.topic, failure)
        for each in wanted:
            log = self._logs.get(each.key)
            if log is not None and each.key not in errors:
                self._add_replica(each, log)

    def _may_have_log(self, assigned: AssignedReplica) -> bool:
        """Return True if a log of the partition may be in a data folder that is out of use: it could not be opened at
        the start, or the replica was in sync in an earlier broker epoch."""
        own, state = self._roles.own, assigned.state
        is_member = own.broker_epoch != ALONE_EPOCH and own.broker_id in state.members
        was_member = is_member and state.broker_epochs.get(own.broker_id) != own.broker_epoch
        return was_member or assigned.key in self._not_reopened

    def reopen(self, assigned: Iterable[AssignedReplica]) -> None:
        """Open existing logs after a start. A log that cannot be opened is reported, and its requests get an error."""
        for each in self._missing(assigned):
            try:
                self._add_replica(each, self._logs.get(each.key) or self._logs.create(each.key, is_new=False))
            except StorageError as error:
                self._not_reopened.add(each.key)
                self._local.failed(f"opening {each.key}", error)

    def _missing(self, assigned: Iterable[AssignedReplica]) -> list[AssignedReplica]:
        return [each for each in assigned if each.key not in self._local.by_key]

    def _add_replica(self, assigned: AssignedReplica, log: UnifiedLog) -> None:
        key = assigned.key
        self._not_reopened.discard(key)
        partition = self._local.by_key[key] = Partition(
            log,
            key,
            topic_id=assigned.topic_id,
            own=self._roles.own,
            replicas=assigned.replicas,
            state=assigned.state,
            high_watermark=Offset(self._logs.high_watermark(key)),
            now_ms=self._isr_clock.monotonic_ms(),
        )
        for listener in self._when_opened:
            listener(partition)
        self._roles.start_partition(partition)

    def drop(self, keys: Sequence[TopicPartition]) -> bool:
        """Forget partitions and remove their logs; requests that wait for them are answered.

        Returns False if some logs are still there, which is reported.
        """
        removed = [self._drop(key) for key in keys]
        for listener in self._when_dropped:
            listener(keys)
        return all(removed)

    def _drop(self, key: TopicPartition) -> bool:
        partition = self._local.remove(key)
        self._not_reopened.discard(key)
        if partition is not None:
            self._roles.end(partition)
        self._flushes.forget(key)
        try:
            self._logs.delete(key)
        except StorageError as error:
            self._local.failed(f"removing the log of {key}", error)
            return False
        return True

    # --- leading and following

    @property
    def own(self) -> ReplicaId:
        """This broker with its present broker epoch; while the epoch is unknown (-1), the broker leads nothing."""
        return self._roles.own

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1: unknown, so that the broker leads nothing."""
        return self._roles.own.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        self._roles.on_broker_epoch_changed(broker_epoch, list(self.partitions.values()))

    def apply(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        """Have the open partitions of a topic lead, follow or rest as these states say; older states are ignored."""
        for number, state in states.items():
            partition = self.partitions.get((topic.name, number))
            if partition is not None and partition.topic_id == topic.topic_id:
                self._roles.apply(partition, state, topic.partitions.get(number, partition.replicas))

    def end_leadership(self, topic: Topic) -> None:
        """Stop leading the partitions of a topic that was deleted."""
        for number in topic.partitions:
            partition = self.partitions.get((topic.name, number))
            if partition is not None and partition.topic_id == topic.topic_id:
                self._roles.end_leadership(partition)

    def brokers_changed(self) -> None:
        """Update the ISRs and check waiting requests after brokers have come or gone; none waits for a dead broker."""
        for key, partition in list(self.partitions.items()):
            if partition.followers is not None:
                self._isr_manager.on_brokers_changed(partition)
                self.purgatory.check(key)

    def _check_in_time(self) -> None:
        """Remove followers that lag for too long from ISRs, at each half of `replica.lag.time.max.ms` (facts D5)."""
        self._timer = self._scheduler.call_later(self._lag_time_max_ms / 2, self._check_in_time)
        now_ms = self._isr_clock.monotonic_ms()
        for key, partition in list(self.partitions.items()):
            if partition.followers is not None and self._isr_manager.maybe_shrink_isr(partition, now_ms):
                self.purgatory.check(key)

    def close(self) -> None:
        """Stop following, change no ISR, and finish the requests that wait."""
        self.fetchers.close()
        if self._timer is not None:
            self._timer.cancel()
        self.purgatory.close()

    # --- disks that fail

    def _flushed(self, log: UnifiedLog) -> None:
        if log.failure is not None:
            for partition in list(self.partitions.values()):
                if partition.log.failure is not None:
                    self._take_offline(partition)

    def _take_offline(self, partition: Partition) -> None:
        if not partition.offline and self._went_offline is not None:
            self._roles.take_offline(partition)
            self._went_offline(partition.topic_partition)

    # --- what the logs ask

    def _high_watermark_of(self, key: TopicPartition) -> int | None:
        partition = self._local.by_key.get(key)
        return None if partition is None else partition.high_watermark
