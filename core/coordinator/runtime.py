"""The runtime that all coordinators share (Kafka's `CoordinatorRuntime`): it executes their state machines' effects.

How a coordinator is driven:

1. This broker comes to lead a partition of the internal topic: `begin_load`, then the records, then `finish_load`.
2. An event: the coordinator finds the entry in `table`, calls its state machine, and passes the effects to `apply`.
3. Another broker leads the partition: `unload`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ...ports.broker_api.envelope import Caller, Reply
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import broker_failed
from ...ports.scheduler import Outcome, Scheduler
from ..traffic.steps import StepRunner, Steps
from .log import ProducerEpoch, Record
from .table import CoordinatorTable, EntryT, LoadedT

T = TypeVar("T")
EffectT = TypeVar("EffectT")
EntryT_contra = TypeVar("EntryT_contra", contravariant=True)
EffectT_contra = TypeVar("EffectT_contra", contravariant=True)

Append = Callable[[int, Sequence[Record], Callable[[ErrorCode], None], ProducerEpoch | None], None]
"""Append the records as one batch to a partition of the internal topic, with acks=all; records of a producer belong to
its transaction. See `CoordinatorLog.append`."""

_BATCH_BYTES = 900_000
"""Longer writes become several batches, each below the default of message.max.bytes."""
_RECORD_OVERHEAD = 20

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
}


def write_error(error: ErrorCode, other: ErrorCode | None = None) -> ErrorCode:
    """Return the error that clients get when an append to the internal topic failed with `error`; `other` replaces
    errors that say nothing about the coordinator."""
    return _WRITE_ERRORS.get(error, error if other is None else other)


class CoordinatorShard(Protocol[EntryT_contra, EffectT_contra]):
    """The part of a coordinator that differs from others (Kafka's `CoordinatorShard`). Owner thread only."""

    def execute(self, entry: EntryT_contra, effect: EffectT_contra) -> None:
        """Carry out one effect of the entry's state machine. The entry may have left the table meanwhile."""
        ...

    def on_event(self, entry: EntryT_contra) -> None:
        """Called after each event of an entry and before its effects. It removes entries without state and sets
        timers."""
        ...

    def size_of(self, entry: EntryT_contra) -> int:
        """Return roughly how many bytes of memory an entry takes."""
        ...

    def on_unloaded(self, entry: EntryT_contra) -> None:
        """Called for an entry that has left the table because another broker leads its partition."""
        ...


class CoordinatorRuntime(Generic[EntryT, LoadedT, EffectT]):
    """Executes effects, sends responses, writes to the internal topic, and counts memory. Owner thread only."""

    def __init__(
        self,
        shard: CoordinatorShard[EntryT, EffectT],
        *,
        topic: str,
        partition_count: int,
        bad_key: ErrorCode,
        leads: Callable[[int], bool],
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        steps: StepRunner,
        report: Callable[[str], None],
    ) -> None:
        """`topic` is the internal topic, `bad_key` the error for a key that no entry can have. `leads` says whether
        this broker may still answer for a partition. Long answers run on `steps`, in turns with other work."""
        self.table = CoordinatorTable[EntryT, LoadedT](partition_count, leads, bad_key=bad_key)
        self.clock = clock
        self.scheduler = scheduler
        self.report = report
        self.size_bytes = 0
        """The memory of all entries, roughly."""
        self._shard = shard
        self._topic = topic
        self._append = append
        self._steps = steps
        self._effects: deque[tuple[EntryT, EffectT]] = deque()
        self.is_executing = False
        """True while effects are executed."""

    # --- partitions

    def begin_load(self, loading: LoadedT) -> LoadedT:
        """Start to load a partition that this broker leads now. Until `finish_load` its keys are answered with
        COORDINATOR_LOAD_IN_PROGRESS."""
        return self.table.start_loading(loading)

    def finish_load(self, loading: LoadedT) -> bool:
        """Accept a partition that has been read to its end; the entries are to follow. Return False if another broker
        leads it, or if another load of it has begun."""
        if not self.table.finish(loading):
            return False
        text = loading.report()
        if text is not None:
            self.report(text)
        return True

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker leads no longer."""
        for entry in self.table.drop(partition):
            self._shard.on_unloaded(entry)

    # --- entries

    def apply(self, entry: EntryT, effects: Iterable[EffectT]) -> None:
        """Account for an event of an entry and execute its effects.

        Effects of all entries are executed in the order in which they arose, also if executing one of them causes
        others: a later decision is written later.
        """
        self.on_event(entry)
        for effect in effects:
            self._effects.append((entry, effect))
        if self.is_executing:
            return
        self.is_executing = True
        try:
            while self._effects:
                self._shard.execute(*self._effects.popleft())
        finally:
            self.is_executing = False

    def on_event(self, entry: EntryT) -> None:
        """Account for an event of an entry that has no effects."""
        self._shard.on_event(entry)
        size_bytes = self._shard.size_of(entry) if self.table.is_current(entry) else 0
        self.size_bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes

    def has_memory_for(self, entry: EntryT, size_bytes: int, max_bytes: int) -> bool:
        """Return whether all entries stay within `max_bytes` if this one takes `size_bytes`."""
        return self.size_bytes - entry.size_bytes + size_bytes <= max_bytes

    # --- responses

    def respond(self, reply: Callable[[Any], None], result: Any) -> None:
        """Send a response. A failure concerns its receiver only, and is reported: the other clients wait for theirs."""
        try:
            reply(result)
        except Exception as error:  # noqa: BLE001  reported; the event belongs to another client
            self.report(f"{self._topic}: sending a response failed: {type(error).__name__}: {error}")

    def respond_in_steps(self, steps: Steps[T], caller: Caller, reply: Reply[T]) -> None:
        """Send a response that takes long to make, in turns with other work."""

        def done(made: Outcome[T]) -> None:
            if made.error is None:
                self.respond(reply, made.value)
                return
            self.report(f"{self._topic}: making a response failed: {type(made.error).__name__}: {made.error}")
            self.respond(reply, broker_failed())

        self._steps.run(steps, done, caller.connection or None)

    # --- the internal topic

    def write(
        self,
        partition: int,
        records: Iterable[Record],
        done: Callable[[ErrorCode], None],
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append records, in several batches if they are many. `done` gets the first error, once, after the last."""
        batches = list(_batches(records))
        unfinished, first_error = len(batches), ErrorCode.NONE
        if not batches:
            done(ErrorCode.NONE)

        def on_appended(error: ErrorCode) -> None:
            nonlocal unfinished, first_error
            unfinished -= 1
            if first_error is ErrorCode.NONE:
                first_error = error
            if not unfinished:
                done(first_error)

        for batch in batches:
            self._append(partition, batch, on_appended, producer)

    def report_failed_write(self, what: str, partition: int, error: ErrorCode) -> None:
        """Report an error of a write. NOT_LEADER_OR_FOLLOWER is none: another broker is the coordinator by now."""
        if error not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self.report(f"{self._topic}-{partition}: {what} could not be written: {error.name}")


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
