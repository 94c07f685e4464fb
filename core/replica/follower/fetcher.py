"""Replica fetchers: followers copy from each leader over one connection, one fetch at a time (facts D4 to D6)."""

from collections.abc import Callable, Iterable
from typing import Any

from ....ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import info
from ....ports.scheduler import Scheduler, Timer
from ....ports.storage import StorageError, size_of
from ....ports.types import TopicPartition
from ...client.driver import Submit
from ...cluster.topics import ReplicaId
from ...log.manager.log_manager import LogManager
from ...log.partition_log.unified_log import UnifiedLog
from ..leader.fetch_sessions import NEW_SESSION_EPOCH, NO_SESSION, TopicIdPartition, next_epoch
from ..partition.local_partitions import LocalPartitions
from ..partition.partition import Partition
from ..partition.replication_quota import ReplicationQuotaManager, follower_throttled_replicas
from ..purgatory import Purgatory
from ..settings import ReplicationSettings
from .partition_fetch_state import PartitionFetchState, records_of, truncation_offset

_Asked = dict[TopicIdPartition, tuple[PartitionFetchState, FetchPartition]]
_ANOTHER_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
_LONG_AGO = float("-inf")
_LOOK_AT_ALL_MS = 100.0
"""A fetch after this time looks at all followed partitions; the others at those that were answered since the last."""
_NEWER_STATE_FIRST = frozenset({ErrorCode.FENCED_LEADER_EPOCH})
"""The leader knows a later epoch, which the tree will announce here, too."""


# Flushes that a follower must finish before its next fetch (facts B3: `flush.messages`, `flush.ms`).
#
# The leader regards all records below a follower's fetch offset as replicated. Where the configuration requires a
# flush, these records must be on the disk. So a follower fetches a partition again only after that flush (Kafka's
# followers flush before they fetch, too).


class FollowerFlushes:
    """The flushes that followed partitions wait for. Owner thread only."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._waiting: dict[TopicPartition, tuple[UnifiedLog, int, Callable[[], None]]] = {}
        logs.add_flush_listener(self._flushed)

    def begin_if_due(self, log: UnifiedLog, now_ms: int, resume: Callable[[], None]) -> None:
        """Start a flush if the append requires one; `resume` is called when it is over."""
        if self._logs.flush_if_due(log, now_ms):
            self._waiting[log.topic_partition] = (log, log.log_end_offset, resume)

    @property
    def is_idle(self) -> bool:
        """True if no partition waits for a flush."""
        return not self._waiting

    def holds(self, log: UnifiedLog) -> bool:
        """Return True while appended records must become durable, and are not."""
        if not self._waiting:
            return False
        waiting = self._waiting.get(log.topic_partition)
        return waiting is not None and waiting[0] is log

    def forget(self, key: TopicPartition) -> None:
        """Forget a removed partition: a closed log reports no flush."""
        self._waiting.pop(key, None)

    def _flushed(self, log: UnifiedLog) -> None:
        """Resume after a flush, or start another one if more was appended during it."""
        waiting = self._waiting.get(log.topic_partition)
        if waiting is None or waiting[0] is not log:
            return
        _, end, resume = waiting
        if log.recovery_point < min(end, log.log_end_offset) and log.failure is None:
            self._logs.flush(log)
            return
        del self._waiting[log.topic_partition]
        resume()


class PartitionDataProcessor:
    """Processes the partition data of all fetchers of a broker."""

    def __init__(
        self,
        *,
        submit: Submit,
        own: Callable[[], ReplicaId],
        local: LocalPartitions,
        logs: LogManager,
        purgatory: Purgatory,
        scheduler: Scheduler,
        clock: Clock,
        settings: ReplicationSettings,
        wake: Callable[[TopicPartition], None],
        rebuild: Callable[[Partition, Callable[[bool], None]], None],
    ) -> None:
        """`wake` wakes the present fetcher of a partition, whose leader may have changed. `rebuild` restarts a log
        behind what only remote storage has, and calls back with True, or with False if it could not."""
        self.submit = submit
        self._wake = wake
        self._rebuild_partition = rebuild
        self.own = own
        self.scheduler = scheduler
        self.clock = clock
        self.settings = settings
        self._local = local
        self._logs = logs
        self._purgatory = purgatory
        self._flushes = FollowerFlushes(logs)
        self._noting: dict[TopicPartition, UnifiedLog] = {}
        """The logs that were truncated, and whose checkpoints are not written yet."""
        self._throttle = ReplicationQuotaManager(own, clock, settings.follower_rate, follower_throttled_replicas)

    @property
    def is_idle(self) -> bool:
        """True if no partition waits for a checkpoint or a flush."""
        return not self._noting and self._flushes.is_idle

    @property
    def is_unhindered(self) -> bool:
        """True if no partition waits for a checkpoint, a flush or the replication quota."""
        return self.is_idle and not self._throttle.is_limited

    def may_ask(self, followed: PartitionFetchState) -> bool:
        """Return False while the partition waits for a newer state, a checkpoint or a flush."""
        partition = followed.partition
        if followed.waiting or (self._noting and self._noting.get(partition.topic_partition) is partition.log):
            return False
        return not self._flushes.holds(partition.log)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget removed partitions: no callback comes for a flush or checkpoint of their logs."""
        for key in keys:
            self._noting.pop(key, None)
            self._flushes.forget(key)

    def throttle_ms(self, followed: PartitionFetchState) -> float:
        """Return the time that a replica has to wait for the replication quota."""
        partition = followed.partition
        return self._throttle.wait_ms() if self._throttle.holds(partition) and not self._is_in_sync(partition) else 0.0

    def _is_in_sync(self, partition: Partition) -> bool:
        own, state = self.own(), partition.state
        return own.broker_id in state.isr and state.broker_epochs.get(own.broker_id) == own.broker_epoch

    def process_partition_data(self, followed: PartitionFetchState, result: FetchResultPartition) -> None:
        """Apply a leader's response for a partition.

        While the log is rebuilt from remote storage, responses to fetches that were sent before are dropped: a second
        rebuild would delete what is fetched after the first one.
        """
        partition = followed.partition
        if self._noting.get(partition.topic_partition) is partition.log:
            return
        try:
            if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(followed, result)
            elif result.error is not ErrorCode.NONE:
                self._refused(followed, result.error)
            elif result.diverging is not None:
                log = partition.log
                cut = truncation_offset(log.epochs, log.log_end_offset, result.diverging)
                self._cut(followed, cut, result.log_start_offset)
            else:
                self._append(followed, result)
        except StorageError as error:
            self.back_off(followed)
            self._local.storage_failed(partition.topic_partition, error)
        except Exception as error:  # noqa: BLE001  reported; the other partitions of that leader are still followed
            if self.back_off(followed):
                self._local.failed(f"following {partition.topic_partition}", error)

    def report(self, line: str) -> None:
        """Write a line into the broker's log."""
        self._local.report(line)

    def back_off(self, followed: PartitionFetchState) -> bool:
        """Fetch this partition later; return True if its last fetch succeeded."""
        return followed.back_off(self.clock.monotonic_ms(), self.settings.fetch_backoff_ms)

    def _append(self, followed: PartitionFetchState, result: FetchResultPartition) -> None:
        partition, now_ms = followed.partition, self.clock.now_ms()
        if partition.log.lacks_producer_state:  # the broker died in the middle of a rebuild
            self._rebuild(followed)
            return
        log_end = partition.log.log_end_offset
        if log_end == 0 and size_of(result.records) and self._may_begin_in_tier(followed):
            self._rebuild(followed)
            return
        risen = partition.append_as_follower(
            records_of(result),
            high_watermark=result.high_watermark,
            log_start=result.log_start_offset,
            now_ms=now_ms,
        )
        if log_end == partition.log.log_end_offset and size_of(result.records):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"not one whole batch came for offset {log_end}")
        followed.reset_back_off()
        self._flushes.begin_if_due(partition.log, now_ms, lambda: self._wake(partition.topic_partition))
        size = size_of(result.records)
        if size and self._throttle.covers(partition) and not self._is_in_sync(partition):
            self._throttle.spend(partition, size)
        if risen:
            self._purgatory.check(partition.topic_partition)

    def _may_begin_in_tier(self, followed: PartitionFetchState) -> bool:
        """Return True, once, for a new follower that need not copy what remote storage has (KIP-1023).

        Where that does not succeed, the follower copies all that its leader has.
        """
        is_first, followed.looked_in_tier = not followed.looked_in_tier, True
        return is_first and followed.partition.log.config.remote_storage_enable and self.settings.begins_in_tier()

    def _rebuild(self, followed: PartitionFetchState) -> None:
        """Restart the log behind what the leader has in remote storage only (KIP-405)."""
        partition = followed.partition
        log, key = partition.log, partition.topic_partition
        self._noting[key] = log

        def noted() -> None:
            if self._noting.get(key) is log:
                del self._noting[key]
                self._wake(key)

        def done(is_rebuilt: bool) -> None:
            if self._noting.get(key) is not log:
                return
            if is_rebuilt:
                followed.reset_back_off()
                self._logs.checkpoint_of(log, noted)
                self._purgatory.check(key)
            else:
                self.back_off(followed)
                noted()

        self._rebuild_partition(partition, done)

    def _refused(self, followed: PartitionFetchState, error: ErrorCode) -> None:
        if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._rebuild(followed)
        elif error in _NEWER_STATE_FIRST:
            followed.waiting = True
        elif self.back_off(followed) and error is ErrorCode.CORRUPT_MESSAGE:
            partition = followed.partition
            text = f"the log of its leader, broker {partition.leader}, is damaged at {partition.log.log_end_offset}"
            self._local.report(f"{partition.topic_partition} cannot be followed: {text}")

    def _out_of_range(self, followed: PartitionFetchState, result: FetchResultPartition) -> None:
        """Handle OFFSET_OUT_OF_RANGE, whose response has the leader's range: truncate to it, or restart at its log
        start.
        """
        log, diverging = followed.partition.log, result.diverging
        if diverging is not None and 0 <= diverging.end_offset < log.log_end_offset:
            self._cut(followed, diverging.end_offset, result.log_start_offset)
        elif result.log_start_offset > log.log_end_offset:
            start = result.log_start_offset
            self._local.report(
                f"{followed.partition.topic_partition}: its leader begins at {start}; "
                f"what is here, up to {log.log_end_offset}, is given up"
            )
            self._cut(followed, start, start)
        else:
            self.back_off(followed)  # the range of the leader has changed meanwhile

    def _cut(self, followed: PartitionFetchState, offset: int, leader_start: int) -> None:
        """Truncate what the leader does not have, and resume fetching when the checkpoints contain that, too.

        Where nothing is left, the replica fetches all records from the leader's log start on.
        """
        partition, now_ms = followed.partition, self.clock.now_ms()
        log, key = partition.log, partition.topic_partition
        before = log.log_end_offset
        if log.log_start_offset <= offset < log.local_log_start_offset:
            self._rebuild(followed)
            return
        is_empty = log.log_start_offset == before  # all records were deleted here: none can diverge
        if leader_start > before or offset < log.log_start_offset or is_empty:
            partition.truncate_fully_and_start_at(max(0, leader_start), now_ms)
        elif offset >= before:
            if self.back_off(followed):
                self._local.report(
                    f"{key}: its leader, broker {partition.leader}, has a diverging log, but sent no diverging epoch"
                )
            return
        else:
            if offset < partition.high_watermark:
                text = f"is cut at {offset}, below the high watermark {partition.high_watermark}"
                self._local.report(f"{key} {text}: its leader, broker {partition.leader}, was elected without them")
            partition.truncate_to(offset, now_ms)
        self._noting[key] = log

        def noted() -> None:
            if self._noting.get(key) is log:
                del self._noting[key]
                self._wake(key)

        self._logs.checkpoint_of(log, noted)
        self._purgatory.check(key)


class _FetchSessionHandler:
    """The follower's side of a fetch session (KIP-227): the partitions that the leader has cached.

    A new session has no cached partitions.
    """

    def __init__(self) -> None:
        self.id, self.epoch = NO_SESSION, NEW_SESSION_EPOCH
        self.asked: _Asked = {}
        self.refused: set[TopicIdPartition] = set()
        """The partitions of these that were answered with an error.

        The next request contains them again: the leader may not have known the topic at the last one.
        """

    @property
    def is_open(self) -> bool:
        return self.id != NO_SESSION

    def take_epoch(self) -> int:
        """Return the epoch for the request that is about to be sent, and advance it."""
        epoch = self.epoch
        if self.is_open:
            self.epoch = next_epoch(epoch)
        return epoch

    def begun(self, session_id: int) -> None:
        """Store the session that a leader has granted; without one, each request contains all partitions."""
        if session_id == NO_SESSION:
            self.asked = {}
        else:
            self.id, self.epoch = session_id, next_epoch(NEW_SESSION_EPOCH)


class ReplicaFetcher:
    """Fetches all followed partitions of one leader. Owner thread only."""

    def __init__(self, leader: int, copying: PartitionDataProcessor) -> None:
        self._leader = leader
        self._copying = copying
        self._followed: dict[TopicPartition, PartitionFetchState] = {}
        self._answered_since: dict[TopicPartition, PartitionFetchState] = {}
        """The partitions whose next fetch may differ from the last one, while `_looked_ms` is not long ago."""
        self._looked_ms = _LONG_AGO
        """When all partitions were looked at, and all were ready; `_LONG_AGO` where all must be looked at again."""
        self._under_way = 0
        self._soon = self._urgent = False
        self._grants_sessions = True
        self._has_reported = False
        self._session = _FetchSessionHandler()
        self._timer: Timer | None = None

    def add(self, followed: PartitionFetchState) -> None:
        """Fetch this partition, too. Where a fetch of the session waits at the leader, another one follows at once."""
        self._followed[followed.partition.topic_partition] = followed
        self.turn_at_once()

    def remove(self, key: TopicPartition) -> None:
        self._followed.pop(key, None)
        self._looked_ms = _LONG_AGO

    def close(self) -> None:
        """Stop fetching; a response that is still to come is ignored."""
        self._followed.clear()
        self._looked_ms = _LONG_AGO
        self._cancel_timer()

    def turn_at_once(self) -> None:
        """Fetch soon, since a partition became ready."""
        self._urgent = True
        self._looked_ms = _LONG_AGO
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._soon and self._may_ask():
            self._soon = True
            self._copying.scheduler.call_soon(self._turn)

    def _may_ask(self) -> bool:
        """Return True if another fetch may be sent.

        In a session a second fetch makes the leader answer the first one, which waits.
        """
        return self._under_way < (2 if self._urgent and self._session.is_open else 1)

    def _turn(self) -> None:
        """Send a fetch, unless a response is awaited or no partition is ready."""
        self._soon = False
        if not self._may_ask():
            return
        self._urgent = False
        self._cancel_timer()
        now_ms = self._copying.clock.monotonic_ms()
        if now_ms - self._looked_ms < _LOOK_AT_ALL_MS and self._session.is_open and self._copying.is_idle:
            answered = self._answered_since.values()
            if all(not each.waiting and each.not_before_ms <= now_ms for each in answered):
                self._ask(answered, float("inf"), are_all=False)
                return
        self._looked_ms = _LONG_AGO
        ready: list[PartitionFetchState] = []
        if self._copying.is_unhindered:
            ready = [each for each in self._followed.values() if not each.waiting and each.not_before_ms <= now_ms]
            if ready and len(ready) == len(self._followed):  # as almost always
                self._looked_ms = now_ms
                self._ask(ready, float("inf"))
                return
            ready.clear()
        next_ms = float("inf")
        for each in self._followed.values():
            if not self._copying.may_ask(each):
                continue
            due_ms = max(each.not_before_ms, now_ms + self._copying.throttle_ms(each))
            if due_ms <= now_ms:
                ready.append(each)
            else:
                next_ms = min(next_ms, due_ms)
        if ready:
            self._ask(ready, next_ms - now_ms)
        elif next_ms < float("inf"):
            self._timer = self._copying.scheduler.call_later(next_ms - now_ms, self._turn)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self, ready: Iterable[PartitionFetchState], others_due_ms: float, *, are_all: bool = True) -> None:
        """Fetch the partitions that are ready; `are_all` off: and all others that the session has."""
        settings, own, session = self._copying.settings, self._copying.own(), self._session
        asked: _Asked = {} if are_all else dict(session.asked)
        changed: list[FetchPartition] = []
        for each in ready:
            known = session.asked.get(each.place)
            again = each.place in session.refused
            if known is None or known[0] is not each or again or not each.is_same_fetch(known[1]):
                known = (each, each.build_fetch(settings.fetch_max_bytes))
                changed.append(known[1])
            asked[each.place] = known
        self._answered_since.clear()
        session.refused.clear()
        wait_ms = int(min(settings.fetch_wait_max_ms, max(1.0, others_due_ms)))
        begins = not session.is_open
        request = Fetch(
            partitions=changed,
            max_wait_ms=0 if begins and self._grants_sessions else wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
            replica_id=own.broker_id,
            replica_epoch=own.broker_epoch,
            session_id=session.id,
            session_epoch=session.take_epoch(),
            forgotten=[]
            if not are_all or asked.keys() >= session.asked.keys()
            else [place for place in session.asked if place not in asked],
        )
        session.asked = asked
        self._under_way += 1
        self._copying.submit(self._leader, request, lambda result: self._answered(result, session, asked, begins))

    def _answered(self, result: Any, session: _FetchSessionHandler, asked: _Asked, begins: bool) -> None:
        self._under_way -= 1
        if session is not self._session:
            self._turn_soon()  # the response before it has ended the session
            return
        if not isinstance(result, FetchResult) or result.error is not ErrorCode.NONE:
            self._session = _FetchSessionHandler()
            if not isinstance(result, FetchResult) or result.error not in _ANOTHER_SESSION:
                self._failed(asked, result.error.name if isinstance(result, FetchResult) else str(result))
            self._turn_soon()
            return
        self._has_reported = False
        answered: set[TopicIdPartition] = set()
        for each in result.partitions:
            place = (each.topic_id, each.partition)
            answered.add(place)
            if each.error is not ErrorCode.NONE:
                session.refused.add(place)
            if place in asked:
                self._append_fetched(*asked[place], each)
        if begins or session.refused:
            self._looked_ms = _LONG_AGO
        if begins:
            for place, (followed, _) in asked.items():
                if place not in answered:
                    self._copying.back_off(followed)
            self._grants_sessions = result.session_id != NO_SESSION
            session.begun(result.session_id)
        self._turn_soon()

    def _failed(self, asked: _Asked, why: str) -> None:
        if self._followed:
            self._complain(why)
        for followed, _ in asked.values():
            self._copying.back_off(followed)

    def _complain(self, why: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._copying.report(info(f"broker {self._leader} cannot be followed for now: {why}", leader=self._leader))

    def _append_fetched(
        self, followed: PartitionFetchState, build_fetch: FetchPartition, result: FetchResultPartition
    ) -> None:
        key = followed.partition.topic_partition
        if self._followed.get(key) is not followed or followed.partition.log.log_end_offset != build_fetch.offset:
            return  # another leader epoch has begun meanwhile
        self._answered_since[key] = followed
        self._copying.process_partition_data(followed, result)
        if size_of(result.records) and self._followed.get(key) is followed:
            self._followed[key] = self._followed.pop(key)  # fairness: the others come before it in the next request


MakeProcessor = Callable[[Callable[[TopicPartition], None]], PartitionDataProcessor]


class ReplicaFetcherManager:
    """The fetchers of all leaders that this broker follows. Implements `Following`. Owner thread only."""

    def __init__(self, make_processor: MakeProcessor) -> None:
        self._copying = make_processor(self._wake)
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closed = False

    def follow(self, partition: Partition) -> None:
        self.forget(partition)
        if self._closed:
            return
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader] = ReplicaFetcher(partition.leader, self._copying)
        self._leaders[partition.topic_partition] = partition.leader
        fetcher.add(PartitionFetchState(partition))

    def forget_dropped(self, keys: Iterable[TopicPartition]) -> None:
        """Forget the flushes and checkpoints of removed partitions."""
        self._copying.forget(keys)

    def _wake(self, key: TopicPartition) -> None:
        leader = self._leaders.get(key)
        if leader is not None:
            self._fetchers[leader].turn_at_once()

    def forget(self, partition: Partition) -> None:
        leader = self._leaders.pop(partition.topic_partition, None)
        if leader is not None:
            self._fetchers[leader].remove(partition.topic_partition)

    def close(self) -> None:
        self._closed = True
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._leaders.clear()
        for fetcher in fetchers:
            fetcher.close()


class NoFetchers:
    """The fetcher manager of a broker without others. Implements `Following`."""

    def follow(self, partition: Partition) -> None:
        """Do nothing: there is no other broker."""

    def forget(self, partition: Partition) -> None:
        """Do nothing: no partition was followed."""

    def close(self) -> None:
        """Do nothing: no fetcher exists."""
