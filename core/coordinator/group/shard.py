"""The groups of one broker: what `CoordinatorRuntime` does with them (Kafka's `GroupCoordinatorShard`)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import evolve

from ....ports.broker_api.share_state import (
    DeleteShareGroupStateResult,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import Line, counted, info
from ....ports.scheduler import Scheduler
from ...share.persister import Persister
from ...traffic.steps import StepRunner
from ..log import Record
from ..runtime import Append, CoordinatorRuntime, write_error
from .classic_group import ClassicGroup
from .config import GroupCoordinatorConfig
from .consumer_group import ConsumerGroup
from .counters import GroupCounters
from .effects import CallPersister, Effect, Store, WriteRecords
from .entry import GroupEntry, PendingWrite
from .group import Group, GroupType
from .loading import LoadedGroup, Loading
from .modern_group import GroupContext, ModernGroup
from .offsets import GroupOffsets
from .records import encode_group, encode_group_key
from .share_group import ShareGroup
from .states import GroupState

_LEASE_CHECK_MS = 500.0
"""The interval at which a coordinator without the session lease checks whether it may answer again."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error that members get when their group could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS  # they join again, and then it may succeed
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else write_error(error)


def modern_error(error: ErrorCode) -> ErrorCode:
    """Return the error that members of modern groups get when their group could not be written."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else write_error(error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients get when offsets could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else write_error(error)


# Log lines about a group: the begin of a rebalance with its causes, and the resulting generation.

MEMBERS_MAX = 10
"""The most members that a line names."""


def rebalance(group: ClassicGroup, before: int) -> Line | None:
    """Return the line after a change of state or generation, or None; `before` is the last generation reported."""
    begins = group.state is GroupState.PREPARING_REBALANCE
    if group.generation == before and not begins:
        return None
    causes = group.causes.take_texts()
    why = f"; {', '.join(causes)}" if causes else ""
    names = [member.name for member in group.roster]
    text = f"group {group.group_id}: "
    if begins:
        text += f"rebalance after generation {group.generation} begins{why}"
    elif names:
        more = f" and {len(names) - MEMBERS_MAX} more" if len(names) > MEMBERS_MAX else ""
        shown = ", ".join(names[:MEMBERS_MAX]) + more
        text += f"generation {group.generation} ({group.protocol}) with {counted(len(names), 'member')}: {shown}{why}"
    else:
        text += f"generation {group.generation} has no members{why}"
    return info(
        text,
        group=group.group_id,
        generation=group.generation,
        state=group.state.value,
        members=names[:MEMBERS_MAX],
        member_count=len(names),
        causes=causes,
    )


def assignment(group: ModernGroup[Any], before: int) -> Line | None:
    """Return the line after a change of a modern group, or None; `before` is the last epoch reported."""
    if group.generation == before:
        return None
    causes = group.causes.take_texts()
    why = f"; {', '.join(causes)}" if causes else ""
    what = f"{group.group_type.value} group {group.group_id}: target assignment of epoch {group.generation}"
    return info(
        f"{what} for {counted(group.member_count, 'member')}{why}",
        group=group.group_id,
        generation=group.generation,
        state=group.state.value,
        member_count=group.member_count,
        causes=causes,
    )


# The groups that have positions in the open transaction of a producer: one marker ends it for all of them.


class TransactingGroups:
    """The groups by partition of `__consumer_offsets`, since a marker belongs to one, and by producer. Owner thread
    only."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, dict[str, int]]] = {}
        """By group the epoch of the producer; -1 where it is not known."""

    def add(self, partition: int, producer_id: int, group_id: str, epoch: int = -1) -> None:
        self._groups.setdefault(partition, {}).setdefault(producer_id, {})[group_id] = epoch

    def is_open(self, partition: int, producer_id: int, epoch: int) -> bool:
        """Return True if a group has offsets in the producer's transaction of this epoch."""
        return epoch in self._groups.get(partition, {}).get(producer_id, {}).values()

    def discard(self, partition: int, producer_id: int, group_id: str) -> None:
        """Remove a group that has no positions left in the transaction."""
        producers = self._groups.get(partition, {})
        groups = producers.get(producer_id, {})
        groups.pop(group_id, None)
        if not groups:
            producers.pop(producer_id, None)

    def end(self, partition: int, producer_id: int) -> list[str]:
        """Forget an ended transaction; return the groups with offsets in it, some of which may be deleted by now."""
        return list(self._groups.get(partition, {}).pop(producer_id, ()))

    def drop(self, partition: int) -> None:
        """Forget a partition that another broker leads."""
        self._groups.pop(partition, None)


class GroupShard:
    """Executes the effects of groups: responses, records of `__consumer_offsets`, timers. Owner thread only."""

    def __init__(
        self,
        *,
        config: GroupCoordinatorConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        leads: Callable[[int], bool],
        steps: StepRunner,
        report: Callable[[str], None],
        counters: GroupCounters,
        context: GroupContext,
        persister: Persister | None = None,
    ) -> None:
        """`persister`: the share coordinators; without it no partition of a share group is initialized."""
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
        self.context = context
        self._persister = persister
        self._config = config

    @property
    def config(self) -> GroupCoordinatorConfig:
        """The settings of all groups."""
        return self._config

    @config.setter
    def config(self, config: GroupCoordinatorConfig) -> None:
        self._config = self.context.config = config
        for entry in self.table:
            entry.group.config = config

    @property
    def now_ms(self) -> float:
        """The monotonic time, in which deadlines are."""
        return self.runtime.clock.monotonic_ms()

    def create(self, group_id: str, group: Group | None = None) -> GroupEntry:
        """Add a new group, a classic one unless another is given; an event of it must follow."""
        entry = GroupEntry(
            group=group or ClassicGroup(group_id, self._config),
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
            if not loaded.is_void:
                self._restore(group_id, loading.partition, loaded)
        return True

    def replace(self, entry: GroupEntry, group: Group, error: ErrorCode, records: Sequence[Record] = ()) -> None:
        """Replace a group by one of another type, which keeps its offsets; an event must follow. Requests that wait are
        answered with `error`; `records` are written with the end of the former group."""
        former, after = entry.group.group_type.value, group.group_type.value
        text = f"the {former} group was converted to a {after} group"
        if not entry.group.member_count:
            text = f"the empty {former} group was replaced by a {after} group"
        self.runtime.report(info(f"group {entry.key}: {text}", group=entry.key))
        entry.ended += entry.group.tombstones()
        self.runtime.apply(entry, entry.group.die(error))
        entry.group, entry.generation, entry.last_write = group, group.generation, None
        what = f"the end of the {former} group {entry.key}"
        self._write_records(entry, records, partial(self.runtime.report_failed_write, what, entry.partition))

    def _restore(self, group_id: str, partition: int, loaded: LoadedGroup) -> None:
        group = self._restored_group(group_id, loaded)
        since_ms = loaded.stored.state_timestamp_ms if isinstance(group, ClassicGroup) and loaded.stored else -1
        entry = GroupEntry(
            group=group,
            offsets=GroupOffsets(loaded.offsets),
            partition=partition,
            state=group.state,
            generation=group.generation,
            state_since_ms=since_ms,
        )
        self.table.add(entry)
        for producer_id, tp, offset in loaded.open:
            entry.offsets.prepare_commit({tp: offset}, producer_id)
            self.transactions.add(partition, producer_id, group_id)
        self.runtime.apply(entry, group.shrink(self.now_ms) if isinstance(group, ClassicGroup) else ())

    def _restored_group(self, group_id: str, loaded: LoadedGroup) -> Group:
        """Return the group that the records describe. Those of two types are there after the end of one could not be
        written: the one with members is meant."""
        stored, consumer = loaded.stored, loaded.consumer
        if loaded.share is not None and not loaded.share.is_void:
            return ShareGroup.restored(group_id, self.context, loaded.share, self.now_ms)
        if consumer is not None and not consumer.is_void and (stored is None or consumer.members or not stored.members):
            return ConsumerGroup.restored(group_id, self.context, consumer, self.now_ms)
        if stored is not None:
            return ClassicGroup.restored(group_id, self._config, stored, self.now_ms)
        return ClassicGroup(group_id, self._config)

    def unload(self, partition: int) -> None:
        """Drop the groups of a partition that this broker leads no longer."""
        self.transactions.drop(partition)
        self.runtime.unload(partition)

    # --- for the runtime

    def execute(self, entry: GroupEntry, effect: Effect) -> None:
        """Send a response, or write the group."""
        if isinstance(effect, Store):
            self._store(entry, effect)
        elif isinstance(effect, WriteRecords):
            self._write(entry, effect)
        elif effect.on_written is not None and entry.last_write is not None:
            entry.last_write.answers.append(effect)
        else:
            self.runtime.respond(effect.to, effect.result)

    def on_event(self, entry: GroupEntry) -> None:
        """Log rebalances, note the time of a new state, remove a group without state, and set the timer."""
        group = entry.group
        state, generation = group.state, group.generation
        if generation > entry.generation:
            if group.group_type is GroupType.SHARE:
                self.counters.share_group_rebalances.add()
            elif group.group_type is GroupType.CONSUMER:
                self.counters.consumer_group_rebalances.add()
        if generation != entry.generation or state is not entry.state:
            self._log_rebalance(entry)
        if state is not entry.state:
            entry.state = state
            entry.state_since_ms = self.runtime.clock.now_ms()
            if state is GroupState.COMPLETING_REBALANCE:
                self.counters.rebalances.add()
        if entry.is_void:
            self.table.remove(entry)
        self._set_timer(entry)
        if isinstance(group, ConsumerGroup) and group.is_left_to_classic_members and self._config.allows_downgrade:
            self.runtime.scheduler.call_soon(partial(self._downgrade, entry))  # when the event's effects are written

    def size_of(self, entry: GroupEntry) -> int:
        """Return the bytes of the members; a group without members takes little."""
        return entry.group.size_bytes

    def on_unloaded(self, entry: GroupEntry) -> None:
        """Answer the requests that wait with NOT_COORDINATOR."""
        self.remove(entry, ErrorCode.NOT_COORDINATOR)

    # --- within

    def _downgrade(self, entry: GroupEntry) -> None:
        """Make a classic group of a consumer group that has classic members alone."""
        group = entry.group
        if not self.table.is_current(entry) or not isinstance(group, ConsumerGroup):
            return
        if not group.is_left_to_classic_members or not self._config.allows_downgrade:
            return
        classic, effects = group.downgrade(self.now_ms)
        stored = evolve(classic.stored_now(), state_timestamp_ms=self.runtime.clock.now_ms())
        record = encode_group_key(entry.key), encode_group(stored)
        self.replace(entry, classic, ErrorCode.REBALANCE_IN_PROGRESS, [record])
        self.runtime.apply(entry, effects)

    def _log_rebalance(self, entry: GroupEntry) -> None:
        group, line = entry.group, None
        if isinstance(group, ClassicGroup):
            line = rebalance(group, entry.generation)
        elif isinstance(group, ModernGroup):
            line = assignment(group, entry.generation)
        entry.generation = group.generation
        if line is not None:
            self.runtime.report(line)

    def _write(self, entry: GroupEntry, effect: WriteRecords) -> None:
        group, write = entry.group, PendingWrite()
        entry.last_write = write
        if effect.answer is not None:
            write.answers.append(effect.answer)

        def done(error: ErrorCode) -> None:
            self.runtime.report_failed_write(f"group {entry.key}", entry.partition, error)
            if entry.last_write is write:
                entry.last_write = None
            if isinstance(group, ModernGroup):
                group.written(effect.keys, error, self.now_ms)
            if error is not ErrorCode.NONE and entry.group is not group:
                entry.ended += [(key, None) for key, _ in effect.records]
            for answer in write.answers:
                failed = answer.on_written and answer.on_written(modern_error(error))
                self.runtime.respond(answer.to, failed or answer.result)
            is_stored = error is ErrorCode.NONE and not (isinstance(group, ModernGroup) and group.has_unwritten)
            for call in effect.calls:
                self._call_persister(entry, call, is_stored=is_stored)
            if error is not ErrorCode.NONE and self.table.is_current(entry):
                self._set_timer(entry)

        self._write_records(entry, effect.records, done)

    def _call_persister(self, entry: GroupEntry, call: CallPersister, *, is_stored: bool) -> None:
        """Call the share coordinator, and apply what follows; a group that has gone meanwhile still answers.

        A later coordinator must know the epoch of the call, so all records of the group must be stored.
        """
        request, persister = call.request, self._persister

        def ended(result: InitializeShareGroupStateResult | DeleteShareGroupStateResult) -> None:
            self.runtime.apply(entry, call.ended(result.partitions, self.now_ms))

        if persister is None or not is_stored:
            ended(request.failed(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        elif isinstance(request, InitializeShareGroupState):
            persister.initialize_state(request, ended)
        else:
            persister.delete_state(request, ended)

    def _store(self, entry: GroupEntry, store: Store) -> None:
        group = entry.group

        def done(error: ErrorCode) -> None:
            self.runtime.report_failed_write(f"group {entry.key}", entry.partition, error)
            if isinstance(group, ClassicGroup):
                self.runtime.apply(entry, group.stored(store, group_error(error), self.now_ms))

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
        self._write_records(entry, [(key, value)], done)

    def _write_records(self, entry: GroupEntry, records: Sequence[Record], done: Callable[[ErrorCode], None]) -> None:
        """Append records of a group, behind those that end a former group of another type and are not written yet.

        Otherwise the former group would come back when the log is read, after a conversion that could not be written.
        """
        ended, entry.ended = entry.ended, []
        if ended:
            present = {key for key, _ in (*records, *entry.group.tombstones())}
            ended = [record for record in dict(ended).items() if record[0] not in present]

        def on_written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                entry.ended = [*ended, *entry.ended]
            done(error)

        self.runtime.write(entry.partition, [*ended, *records], on_written)

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
