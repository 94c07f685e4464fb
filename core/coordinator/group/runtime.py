"""Carries out what groups want done: answers, writes to `__consumer_offsets`, timers."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import evolve

from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler
from ..log import ProducerEpoch, Record
from .config import GroupConfig
from .counters import GroupCounters
from .effects import Answer, Effect, Effects, Store
from .entry import GroupEntry, GroupTable
from .group import Group
from .loading import LoadedGroup, Loading
from .offsets import GroupOffsets
from .records import encode_group, encode_group_key
from .states import GroupState
from .telling import rebalance
from .transacting import TransactingGroups

Append = Callable[[int, Sequence[Record], Callable[[ErrorCode], None], ProducerEpoch | None], None]
"""Append these records as one batch to that partition of `__consumer_offsets`, with acks=all; those of a producer as
part of its transaction. Never raises. The
callback is told exactly once, on the owner thread, at once or later: NONE when the in-sync replicas have it. Appends to
one partition come into the log in the order of the calls."""

_BATCH_BYTES = 900_000
"""Longer writes go in several batches, each below the default of message.max.bytes."""
_RECORD_OVERHEAD = 20
_SILENCED_MS = 500.0
"""How often a coordinator without the lease looks if it may answer again."""

_UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def group_error(error: ErrorCode) -> ErrorCode:
    """What members are told when their group could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS  # they join again, and then it may succeed
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else _UNAVAILABLE.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """What is told of positions that could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else _UNAVAILABLE.get(error, error)


class GroupRuntime:
    """The groups of one broker, and the hands that they have. Owner thread only."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        leads: Callable[[int], bool],
        report: Callable[[str], None],
        counters: GroupCounters,
    ) -> None:
        self.table = GroupTable(partition_count, leads, bad_key=ErrorCode.INVALID_GROUP_ID)
        self.transactions = TransactingGroups()
        self.members_bytes = 0
        """What the members of all groups take, roughly."""
        self._config = config
        self.clock = clock
        self.scheduler = scheduler
        self._append = append
        self.report = report
        self.counters = counters
        self._waiting: deque[tuple[GroupEntry, Effect]] = deque()
        self._is_busy = False

    @property
    def config(self) -> GroupConfig:
        return self._config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        self._config = config
        for entry in self.table:
            entry.group.config = config

    @property
    def now_ms(self) -> float:
        """The time of deadlines."""
        return self.clock.monotonic_ms()

    # --- groups

    def create(self, group_id: str) -> GroupEntry:
        """A new group; `settle` is to follow."""
        entry = GroupEntry(
            group=Group(group_id, self._config),
            offsets=GroupOffsets(),
            partition=self.table.partition_of(group_id),
            state_since_ms=self.clock.now_ms(),
        )
        self.table.add(entry)
        return entry

    def drive(self, entry: GroupEntry, effects: Effects) -> None:
        """Carry out what an event of the group has led to.

        Effects of all groups are carried out in the order in which they came up, also when carrying out one of them
        leads to others: what is written later was decided later.
        """
        self.settle(entry)
        self._waiting.extend((entry, effect) for effect in effects)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._waiting:
                self._carry_out(*self._waiting.popleft())
        finally:
            self._is_busy = False

    def settle(self, entry: GroupEntry) -> None:
        """After any change of a group: count it, note its state, wake it in time; drop it when there is nothing."""
        group = entry.group
        size_bytes = group.roster.size_bytes + len(group.group_id) * (len(group.roster) > 0)
        self.members_bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes
        if group.generation != entry.generation or group.state is not entry.state:
            self._tell(entry)
        if group.state is not entry.state:
            entry.state = group.state
            entry.state_since_ms = self.clock.now_ms()
            if group.state is GroupState.COMPLETING_REBALANCE:
                self.counters.rebalances.add()
        if entry.is_void:
            self.table.remove(entry)
        self._wake_in_time(entry)

    def _tell(self, entry: GroupEntry) -> None:
        """Let the log know of a rebalance."""
        line = rebalance(entry.group, entry.generation)
        entry.generation = entry.group.generation
        if line is not None:
            self.report(line)

    def end(self, entry: GroupEntry, error: ErrorCode) -> None:
        """The group is no more here; whoever waits is told `error`."""
        self.table.remove(entry)
        self.drive(entry, entry.group.die(error))

    def answer(self, to: Callable[[Any], None], result: Any) -> None:
        """Give an answer. That it cannot be taken is the asker's trouble: others wait for theirs."""
        try:
            to(result)
        except Exception as error:  # noqa: BLE001  reported; the event belongs to somebody else
            self.report(f"an answer to a group member failed: {type(error).__name__}: {error}")

    # --- the log

    def write(
        self,
        partition: int,
        records: Iterable[Record],
        done: Callable[[ErrorCode], None],
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append records, in several batches if they are many; `done` is told the first error, once, at the end."""
        batches = list(_batches(records))
        left, worst = len(batches), ErrorCode.NONE
        if not batches:
            done(ErrorCode.NONE)

        def appended(error: ErrorCode) -> None:
            nonlocal left, worst
            left -= 1
            if worst is ErrorCode.NONE:
                worst = error
            if not left:
                done(worst)

        for batch in batches:
            self._append(partition, batch, appended, producer)

    def note_failure(self, what: str, partition: int, error: ErrorCode) -> None:
        """A write that nobody waits for. Where another broker coordinates by now, nothing is amiss."""
        if error not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.report(f"__consumer_offsets-{partition}: {what} could not be written: {error.name}")

    def restore(self, loading: Loading) -> bool:
        """A partition is read: its groups are here from now on. False if it is not wanted any more."""
        if not self.table.finish(loading):
            return False
        text = loading.report()
        if text is not None:
            self.report(text)
        for group_id, loaded in loading.groups.items():
            if loaded.stored is not None or loaded.offsets or loaded.open:
                self._restore(group_id, loading.partition, loaded)
        return True

    def _restore(self, group_id: str, partition: int, loaded: LoadedGroup) -> None:
        group = Group(group_id, self._config)
        if loaded.stored is not None:
            group = Group.restored(group_id, self._config, loaded.stored, self.now_ms)
        entry = GroupEntry(
            group=group,
            offsets=GroupOffsets(loaded.offsets),
            partition=partition,
            state=group.state,
            generation=group.generation,
            state_since_ms=-1 if loaded.stored is None else loaded.stored.state_timestamp_ms,
        )
        self.table.add(entry)
        for producer_id, place, position in loaded.open:
            entry.offsets.begin({place: position}, producer_id)
            self.transactions.add(partition, producer_id, group_id)
        self.drive(entry, group.shrink(self.now_ms))

    # --- within

    def _carry_out(self, entry: GroupEntry, effect: Effect) -> None:
        if isinstance(effect, Answer):
            self.answer(effect.to, effect.result)
        else:
            self._store(entry, effect)

    def _store(self, entry: GroupEntry, store: Store) -> None:
        def done(error: ErrorCode) -> None:
            self.note_failure(f"group {entry.group.group_id}", entry.partition, error)
            self.drive(entry, entry.group.stored(store, group_error(error), self.now_ms))

        if self.table.get(entry.group.group_id) is not entry:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it came to its end before its turn
            return
        size_bytes = store.group.size_bytes
        if size_bytes > self._config.group_record_max_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
            return
        if self.members_bytes - entry.size_bytes + size_bytes > self._config.members_max_bytes:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        try:
            key = encode_group_key(entry.group.group_id)
            value = encode_group(evolve(store.group, state_timestamp_ms=entry.state_since_ms))
        except ApiError as error:
            done(error.code)
            return
        self.write(entry.partition, [(key, value)], done)

    def _wake_in_time(self, entry: GroupEntry) -> None:
        due_ms = None if entry.group.state is GroupState.DEAD else entry.group.next_due_ms
        if entry.timer is not None and (due_ms is None or due_ms < entry.timer_due_ms):
            entry.timer.cancel()
            entry.timer = None
        if due_ms is not None and entry.timer is None:
            entry.timer_due_ms = due_ms
            entry.timer = self.scheduler.call_later(max(0.0, due_ms - self.now_ms), lambda: self._wake(entry))

    def _wake(self, entry: GroupEntry) -> None:
        """Without the lease all requests of members are refused, so no member can be heard of in its session: nothing
        comes to its time before this broker may answer again, and then each member has a whole session."""
        entry.timer = None
        if not self.table.leads(entry.partition):
            entry.is_silenced = True
            entry.timer_due_ms = self.now_ms + _SILENCED_MS
            entry.timer = self.scheduler.call_later(_SILENCED_MS, lambda: self._wake(entry))
        elif entry.is_silenced:
            entry.is_silenced = False
            entry.group.restart_sessions(self.now_ms)
            self._wake_in_time(entry)
        else:
            self.drive(entry, entry.group.tick(self.now_ms))


def _batches(records: Iterable[Record]) -> Iterable[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        key, value = record
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if batch and size + record_bytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch
