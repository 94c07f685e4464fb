"""The groups of one broker: what `CoordinatorRuntime` does with them (Kafka's `GroupCoordinatorShard`)."""

from collections.abc import Callable

from attrs import evolve

from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler
from ...traffic.steps import StepRunner
from ..runtime import Append, CoordinatorRuntime, write_error
from .config import GroupConfig
from .counters import GroupCounters
from .effects import Answer, Effect, Store
from .entry import GroupEntry
from .group import Group
from .loading import LoadedGroup, Loading
from .offsets import GroupOffsets
from .rebalance_log_line import rebalance
from .records import encode_group, encode_group_key
from .states import GroupState
from .transacting import TransactingGroups

_LEASE_CHECK_MS = 500.0
"""The interval at which a coordinator without the session lease checks whether it may answer again."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error that members get when their group could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS  # they join again, and then it may succeed
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else write_error(error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients get when offsets could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else write_error(error)


class GroupShard:
    """Executes the effects of groups: responses, records of `__consumer_offsets`, timers. Owner thread only."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        leads: Callable[[int], bool],
        steps: StepRunner,
        report: Callable[[str], None],
        counters: GroupCounters,
    ) -> None:
        self.runtime = CoordinatorRuntime[GroupEntry, Loading, Effect](
            self,
            topic="__consumer_offsets",
            partition_count=partition_count,
            bad_key=ErrorCode.INVALID_GROUP_ID,
            leads=leads,
            clock=clock,
            scheduler=scheduler,
            append=append,
            steps=steps,
            report=report,
        )
        self.table = self.runtime.table
        self.transactions = TransactingGroups()
        self.counters = counters
        self._config = config

    @property
    def config(self) -> GroupConfig:
        """The settings of all groups."""
        return self._config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        self._config = config
        for entry in self.table:
            entry.group.config = config

    @property
    def now_ms(self) -> float:
        """The monotonic time, in which deadlines are."""
        return self.runtime.clock.monotonic_ms()

    def create(self, group_id: str) -> GroupEntry:
        """Add a new group; an event of it must follow."""
        entry = GroupEntry(
            group=Group(group_id, self._config),
            offsets=GroupOffsets(),
            partition=self.table.partition_of(group_id),
            state_since_ms=self.runtime.clock.now_ms(),
        )
        self.table.add(entry)
        return entry

    def remove(self, entry: GroupEntry, error: ErrorCode) -> None:
        """Remove a group; requests that wait are answered with `error`."""
        self.table.remove(entry)
        self.runtime.apply(entry, entry.group.die(error))

    def restore(self, loading: Loading) -> bool:
        """Add the groups of a partition that has been loaded. Return False if the load is not wanted any longer."""
        if not self.runtime.finish_load(loading):
            return False
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
        for producer_id, tp, offset in loaded.open:
            entry.offsets.prepare_commit({tp: offset}, producer_id)
            self.transactions.add(partition, producer_id, group_id)
        self.runtime.apply(entry, group.shrink(self.now_ms))

    def unload(self, partition: int) -> None:
        """Drop the groups of a partition that this broker leads no longer."""
        self.transactions.drop(partition)
        self.runtime.unload(partition)

    # --- for the runtime

    def execute(self, entry: GroupEntry, effect: Effect) -> None:
        """Send a response, or write the group."""
        if isinstance(effect, Answer):
            self.runtime.respond(effect.to, effect.result)
        else:
            self._store(entry, effect)

    def on_event(self, entry: GroupEntry) -> None:
        """Log rebalances, note the time of a new state, remove a group without state, and set the timer."""
        group = entry.group
        if group.generation != entry.generation or group.state is not entry.state:
            self._log_rebalance(entry)
        if group.state is not entry.state:
            entry.state = group.state
            entry.state_since_ms = self.runtime.clock.now_ms()
            if group.state is GroupState.COMPLETING_REBALANCE:
                self.counters.rebalances.add()
        if entry.is_void:
            self.table.remove(entry)
        self._set_timer(entry)

    def size_of(self, entry: GroupEntry) -> int:
        """Return the bytes of the members; a group without members takes little."""
        group = entry.group
        return group.roster.size_bytes + len(group.group_id) * (len(group.roster) > 0)

    def on_unloaded(self, entry: GroupEntry) -> None:
        """Answer the requests that wait with NOT_COORDINATOR."""
        self.remove(entry, ErrorCode.NOT_COORDINATOR)

    # --- within

    def _log_rebalance(self, entry: GroupEntry) -> None:
        line = rebalance(entry.group, entry.generation)
        entry.generation = entry.group.generation
        if line is not None:
            self.runtime.report(line)

    def _store(self, entry: GroupEntry, store: Store) -> None:
        def done(error: ErrorCode) -> None:
            self.runtime.report_failed_write(f"group {entry.group.group_id}", entry.partition, error)
            self.runtime.apply(entry, entry.group.stored(store, group_error(error), self.now_ms))

        if not self.table.is_current(entry):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the group has been removed since
            return
        size_bytes = store.group.size_bytes
        if size_bytes > self._config.group_record_max_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
            return
        if not self.runtime.has_memory_for(entry, size_bytes, self._config.members_max_bytes):
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        try:
            key = encode_group_key(entry.group.group_id)
            value = encode_group(evolve(store.group, state_timestamp_ms=entry.state_since_ms))
        except ApiError as error:
            done(error.code)
            return
        self.runtime.write(entry.partition, [(key, value)], done)

    def _set_timer(self, entry: GroupEntry) -> None:
        due_ms = None if entry.group.state is GroupState.DEAD else entry.group.next_due_ms
        if entry.timer is not None and (due_ms is None or due_ms < entry.timer_due_ms):
            entry.timer.cancel()
            entry.timer = None
        if due_ms is not None and entry.timer is None:
            entry.timer_due_ms = due_ms
            delay_ms = max(0.0, due_ms - self.now_ms)
            entry.timer = self.runtime.scheduler.call_later(delay_ms, lambda: self._on_timer(entry))

    def _on_timer(self, entry: GroupEntry) -> None:
        """Without the lease all requests of members are refused, so no heartbeat can prolong a session. Therefore
        nothing expires before this broker may answer again, and then each member has a whole session."""
        entry.timer = None
        if not self.table.leads(entry.partition):
            entry.is_silenced = True
            entry.timer_due_ms = self.now_ms + _LEASE_CHECK_MS
            entry.timer = self.runtime.scheduler.call_later(_LEASE_CHECK_MS, lambda: self._on_timer(entry))
        elif entry.is_silenced:
            entry.is_silenced = False
            entry.group.restart_sessions(self.now_ms)
            self._set_timer(entry)
        else:
            self.runtime.apply(entry, entry.group.tick(self.now_ms))
