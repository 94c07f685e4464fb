"""The share coordinator: stores the states of share partitions for leaders and group coordinators (facts D5)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    ReadStatePartition,
    StateOutcome,
    StatePartition,
    StateSummary,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.scheduler import Scheduler, Timer
from ....ports.values import define, frozen
from ...share.persister import SharePartitionKey, summary_of
from ...traffic.steps import StepRunner
from ..runtime import Append, CoordinatorRuntime
from .loading import ShareStateLoading
from .share_partition_state import Effect, SharePartitionState, StateAnswer, StateAsked, StateRequest, StoreState

OutcomeT = TypeVar("OutcomeT")

_LOOK_AT_ONCE = 500
"""The number of share partitions that are looked at in one step, before other work gets its turn."""
_RECORDS_BEHIND = 1_000
"""A snapshot is written again when more records than these have come since, so that they can be deleted."""


@frozen(kw_only=True)
class ShareCoordinatorConfig:
    """The settings of a share coordinator. Times in milliseconds."""

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    cold_snapshot_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms: a share partition without writes for this time gets a
    snapshot."""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms: how often records that are not needed are deleted."""


@define(kw_only=True, eq=False)
class ShareEntry:
    """A share partition as the coordinator holds it: `partition` is that of `__share_group_state` which stores it."""

    key: str
    partition: int
    state: SharePartitionState
    size_bytes: int = 0
    """The memory of the state, as counted so far."""


class ShareCoordinatorShard:
    """Executes the effects of share partitions: responses, and records of `__share_group_state`. Owner thread only."""

    def __init__(self, log_end_offset: Callable[[int], int]) -> None:
        self.runtime: CoordinatorRuntime[ShareEntry, ShareStateLoading, Effect]
        self._log_end_offset = log_end_offset

    def execute(self, entry: ShareEntry, effect: Effect) -> None:
        """Send an outcome, or write a record."""
        if isinstance(effect, StateAnswer):
            self.runtime.respond(effect.asked.reply, effect.outcome)
        elif self.runtime.table.is_current(entry):
            self._store(entry, effect)

    def on_event(self, entry: ShareEntry) -> None:
        """Remove a share partition without state."""
        if entry.state.is_void:
            self.runtime.table.remove(entry)

    def size_of(self, entry: ShareEntry) -> int:
        """Return the bytes of the state."""
        return entry.state.size_bytes

    def on_unloaded(self, entry: ShareEntry) -> None:
        """Answer the requests that wait with NOT_COORDINATOR."""
        self.runtime.apply(entry, entry.state.die())

    def _store(self, entry: ShareEntry, effect: StoreState) -> None:
        end = self._log_end_offset(entry.partition)

        def done(error: ErrorCode) -> None:
            if self.runtime.table.is_current(entry):
                self.runtime.report_failed_write(f"share partition {entry.key[:260]!r}", entry.partition, error)
                self.runtime.apply(entry, entry.state.written(error, end))

        self.runtime.write(entry.partition, [effect.record], done)


class ShareCoordinator:
    """The handlers take `(request, caller, reply)` as in every service, and reply exactly once. Owner thread only.

    A partition of `__share_group_state` that this broker comes to lead goes through `begin_load`, then `loaded`; one
    that it no longer leads through `unload`.

    has_partition:  returns whether there is a partition of a topic, by the id of the topic.
    log_end_offset: returns the log end offset of a partition of `__share_group_state`.
    delete_records: deletes the records of such a partition below an offset.
    """

    def __init__(
        self,
        *,
        config: ShareCoordinatorConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        leads: Callable[[int], bool],
        has_partition: Callable[[bytes, int], bool],
        log_end_offset: Callable[[int], int],
        delete_records: Callable[[int, int], None],
        steps: StepRunner,
        report: Callable[[str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._has_partition = has_partition
        self._log_end_offset = log_end_offset
        self._delete_records = delete_records
        shard = ShareCoordinatorShard(log_end_offset)
        self._runtime = shard.runtime = CoordinatorRuntime[ShareEntry, ShareStateLoading, Effect](
            shard,
            topic="__share_group_state",
            partition_count=partition_count,
            bad_key=ErrorCode.INVALID_REQUEST,
            leads=leads,
            clock=clock,
            scheduler=scheduler,
            append=append,
            steps=steps,
            report=report,
        )
        self._table = self._runtime.table
        self._timers: dict[str, Timer] = {}

    @property
    def partition_count(self) -> int:
        """The partition count of `__share_group_state`; it may be set before the first `begin_load`."""
        return self._table.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._table.partition_count = count

    def __len__(self) -> int:
        """Return the number of share partitions with a state here."""
        return len(self._table)

    # --- the partitions that are here

    def start(self) -> None:
        """Write snapshots of share partitions without writes, and delete records that are not needed, from now on."""
        self._every(self._config.cold_snapshot_interval_ms, "snapshots", self._look_at_all)
        self._every(self._config.prune_interval_ms, "pruning", self._prune)

    def close(self) -> None:
        """Unload all partitions: every waiting request is answered with NOT_COORDINATOR."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for partition in self._table.partitions:
            self.unload(partition)

    def begin_load(self, partition: int) -> ShareStateLoading:
        """Begin to load a partition that this broker leads. Feed its records to the returned object (on any thread),
        then call `loaded`."""
        self.unload(partition)
        return self._runtime.begin_load(ShareStateLoading(partition))

    def loaded(self, loading: ShareStateLoading) -> None:
        """End the loading of a partition that was read to its end. A no-op if it was unloaded or begun again since."""
        if not self._runtime.finish_load(loading):
            return
        for key, stored in loading.stored.items():
            state = SharePartitionState(
                key,
                updates_per_snapshot=self._config.updates_per_snapshot,
                snapshot=stored.snapshot,
                updates=stored.updates,
                first_offset=stored.first_offset,
            )
            entry = ShareEntry(key=str(key), partition=loading.partition, state=state)
            self._table.add(entry)
            self._runtime.on_event(entry)

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads; every waiting request is answered with NOT_COORDINATOR."""
        self._runtime.unload(partition)

    # --- requests

    def initialize(
        self, request: InitializeShareGroupState, _caller: Caller, reply: Reply[InitializeShareGroupStateResult]
    ) -> None:
        """Create or replace the state of share partitions."""
        self._ask_all(
            request.group_id,
            request.partitions,
            StateOutcome,
            lambda some: self._runtime.respond(reply, InitializeShareGroupStateResult(partitions=some)),
        )

    def read(self, request: ReadShareGroupState, _caller: Caller, reply: Reply[ReadShareGroupStateResult]) -> None:
        """Return the state of share partitions to their leader, and fence earlier leaders."""
        self._ask_all(
            request.group_id,
            request.partitions,
            ReadStatePartition,
            lambda some: self._runtime.respond(reply, ReadShareGroupStateResult(partitions=some)),
        )

    def write(self, request: WriteShareGroupState, _caller: Caller, reply: Reply[WriteShareGroupStateResult]) -> None:
        """Store changes of share partitions."""
        self._ask_all(
            request.group_id,
            request.partitions,
            StateOutcome,
            lambda some: self._runtime.respond(reply, WriteShareGroupStateResult(partitions=some)),
        )

    def delete(
        self, request: DeleteShareGroupState, _caller: Caller, reply: Reply[DeleteShareGroupStateResult]
    ) -> None:
        """Delete the state of share partitions."""
        self._ask_all(
            request.group_id,
            request.partitions,
            StateOutcome,
            lambda some: self._runtime.respond(reply, DeleteShareGroupStateResult(partitions=some)),
        )

    def read_summary(
        self, request: ReadShareGroupStateSummary, _caller: Caller, reply: Reply[ReadShareGroupStateSummaryResult]
    ) -> None:
        """Return the start offsets of share partitions, as they are in the log."""
        summaries = [self._summary(request.group_id, each) for each in request.partitions]
        self._runtime.respond(reply, ReadShareGroupStateSummaryResult(partitions=summaries))

    # --- within

    def _ask_all(
        self,
        group_id: str,
        requests: Sequence[StateRequest],
        refused: Callable[[bytes, int, ErrorCode, str], OutcomeT],
        done: Callable[[list[Any]], None],
    ) -> None:
        """Handle the requests for several share partitions, and pass on their outcomes when there are all of them."""
        outcomes: list[OutcomeT | None] = [None] * len(requests)
        left = len(requests)
        if not left:
            done([])

        def one(position: int, outcome: OutcomeT) -> None:
            nonlocal left
            outcomes[position] = outcome
            left -= 1
            if not left:
                done(outcomes)

        for position, request in enumerate(requests):
            key = SharePartitionKey(group_id, request.topic_id, request.partition)
            error, text = self._check(key)
            entry = self._table.get(str(key)) if error is ErrorCode.NONE else None
            if error is ErrorCode.NONE and entry is None and not isinstance(request, StatePartition):
                error, text = self._check_topic(key)
            if error is not ErrorCode.NONE:
                one(position, refused(request.topic_id, request.partition, error, text))
                continue

            def reply(outcome: Any, position: int = position) -> None:
                one(position, outcome)

            entry = entry or self._create(key)
            self._runtime.apply(entry, entry.state.ask(StateAsked(request, reply), self._clock.now_ms()))

    def _check(self, key: SharePartitionKey) -> tuple[ErrorCode, str]:
        """Return why a share partition cannot be handled here and now, or NONE."""
        if not key.group_id or key.partition < 0:
            return ErrorCode.INVALID_REQUEST, "A share partition has a group, a topic id and a partition."
        error = self._table.check_key(str(key))
        return error, f"This broker cannot coordinate the share partition now: {error.name}."

    def _check_topic(self, key: SharePartitionKey) -> tuple[ErrorCode, str]:
        if self._has_partition(key.topic_id, key.partition):
            return ErrorCode.NONE, ""
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition of a topic."

    def _create(self, key: SharePartitionKey) -> ShareEntry:
        """Add a share partition; an event of it must follow."""
        state = SharePartitionState(key, updates_per_snapshot=self._config.updates_per_snapshot)
        text = str(key)
        entry = ShareEntry(key=text, partition=self._table.partition_of(text), state=state)
        self._table.add(entry)
        return entry

    def _summary(self, group_id: str, request: ReadPartition) -> StateSummary:
        key = SharePartitionKey(group_id, request.topic_id, request.partition)
        error, text = self._check(key)
        if error is not ErrorCode.NONE:
            return StateSummary(request.topic_id, request.partition, error, text)
        entry = self._table.get(str(key))
        return summary_of(request, None if entry is None else entry.state.offset)

    # --- care of the log

    def _every(self, interval_ms: int, name: str, work: Callable[[], Iterator[None]]) -> None:
        """Do work at this interval, a step at a time in turns with other work."""

        def begin() -> None:
            step(work())

        def step(steps: Iterator[None]) -> None:
            try:
                next(steps)
            except StopIteration:
                wait(interval_ms, begin)
            else:
                wait(0, lambda: step(steps))

        def wait(delay_ms: float, then: Callable[[], None]) -> None:
            self._timers[name] = self._scheduler.call_later(delay_ms, then)

        wait(interval_ms, begin)

    def _look_at_all(self) -> Iterator[None]:
        """Delete the states of topics that are deleted, and write snapshots of share partitions without writes."""
        now_ms = self._clock.now_ms()
        entries = tuple(self._table)
        counts = Counter(entry.partition for entry in entries)
        for number, entry in enumerate(entries, 1):
            if self._table.is_current(entry):
                self._look_at(entry, now_ms, counts[entry.partition])
            if not number % _LOOK_AT_ONCE:
                yield

    def _look_at(self, entry: ShareEntry, now_ms: int, count: int) -> None:
        """Delete the state or write a snapshot of it, if need be; `count` states are in its partition."""
        state = entry.state
        is_cold = (
            state.is_idle
            and state.snapshot is not None
            and now_ms - state.snapshot.written_ms >= self._config.cold_snapshot_interval_ms
        )
        if not is_cold:
            return
        behind = self._log_end_offset(entry.partition) - state.first_offset
        if not self._has_partition(state.key.topic_id, state.key.partition):
            request = StatePartition(state.key.topic_id, state.key.partition)
            self._runtime.apply(entry, state.ask(StateAsked(request, _ignore), now_ms))
        elif state.updates or behind > _RECORDS_BEHIND + 2 * count:
            self._runtime.apply(entry, state.ask(StateAsked(None, _ignore), now_ms))

    def _prune(self) -> Iterator[None]:
        """Delete the records below the earliest snapshot that is needed, in each partition."""
        needed = {partition: self._log_end_offset(partition) for partition in self._table.loaded}
        for entry in self._table:
            needed[entry.partition] = min(needed[entry.partition], entry.state.first_offset)
        for partition, offset in needed.items():
            if self._table.leads(partition):
                self._delete_records(partition, offset)
            yield


def _ignore(_outcome: object) -> None:
    """Take the outcome of an event that no request has caused."""
