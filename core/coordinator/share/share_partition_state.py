"""One share partition at its share coordinator: decides on requests, and returns what to write and to answer."""

from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import evolve

from ....ports.broker_api.share_state import (
    NO_LEADER_EPOCH,
    InitializePartition,
    ReadPartition,
    ReadStatePartition,
    StateOutcome,
    StatePartition,
    WritePartition,
)
from ....ports.error_codes import ErrorCode
from ....ports.values import frozen
from ...share.persister import SharePartitionKey
from ...share.share_group_offset import (
    CheckFailure,
    ShareGroupOffset,
    check_initialize,
    check_read,
    check_write,
    combine_state_batches,
    initialized,
)
from ..log import Record
from ..runtime import write_error
from .records import SNAPSHOT, UPDATE, ShareSnapshot, ShareUpdate, encode_key, encode_snapshot, encode_update

StateRequest = InitializePartition | ReadPartition | WritePartition | StatePartition
"""A request for one share partition; a `StatePartition` asks to delete its state."""

_APPENDED = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""With these outcomes the record is in the log, so the state has the change. Unless the outcome is NONE, it may be lost
with this broker, and the caller gets an error."""
_BASE_BYTES, _BATCH_BYTES = 700, 60


@frozen(eq=False)
class StateAsked:
    """A request with the callback for its outcome. A `request` of None asks for a snapshot, and has no outcome."""

    request: StateRequest | None
    reply: Callable[[Any], None]


@frozen(eq=False)
class StateAnswer:
    """Send this outcome to the caller."""

    asked: StateAsked
    outcome: Any


@frozen(eq=False)
class StoreState:
    """Append this record; then call `written` of the share partition with the outcome, once."""

    record: Record


Effect = StateAnswer | StoreState


@frozen(eq=False)
class _Change:
    """A change that is being written: the snapshot and the number of updates after it."""

    asked: StateAsked
    outcome: Any
    snapshot: ShareSnapshot | None
    updates: int


class SharePartitionState:
    """The state of a share partition as it is in the log, and the requests that wait.

    One change is written at a time, so that no change is decided on a state that does not come into the log.

    `first_offset` is an offset of the log, and the latest snapshot is there or above: records below it are not needed.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        *,
        updates_per_snapshot: int,
        snapshot: ShareSnapshot | None = None,
        updates: int = 0,
        first_offset: int = 0,
    ) -> None:
        self.key = key
        self.snapshot = snapshot
        """The present state; None: there is none."""
        self.updates = updates
        """The updates in the log since the latest snapshot."""
        self.first_offset = first_offset
        self._updates_per_snapshot = updates_per_snapshot
        self._change: _Change | None = None
        self._waiting: deque[tuple[StateAsked, int]] = deque()

    @property
    def offset(self) -> ShareGroupOffset | None:
        """The state; None: the share partition was not initialized, or its state was deleted."""
        return None if self.snapshot is None else self.snapshot.offset

    @property
    def is_idle(self) -> bool:
        """True while nothing is being written."""
        return self._change is None

    @property
    def is_void(self) -> bool:
        """True if there is no state, and no request that could begin one."""
        return self.snapshot is None and self._change is None and not self._waiting

    @property
    def size_bytes(self) -> int:
        """Roughly the memory that the state takes."""
        offset = self.offset
        return _BASE_BYTES + (0 if offset is None else _BATCH_BYTES * len(offset.state_batches))

    def ask(self, asked: StateAsked, now_ms: int) -> list[Effect]:
        """Handle a request, after those that came before it. `now_ms` is the wall-clock time."""
        self._waiting.append((asked, now_ms))
        return self._decide()

    def written(self, error: ErrorCode, log_end_offset: int) -> list[Effect]:
        """Handle the outcome of the append. `log_end_offset` is the end of the log before it."""
        change, self._change = self._change, None
        if change is None:
            return []
        outcome = change.outcome
        if error in _APPENDED:
            self.snapshot, self.updates = change.snapshot, change.updates
            if not change.updates:
                self.first_offset = log_end_offset
        if error is not ErrorCode.NONE and change.asked.request is not None:
            text = f"The state of the share partition could not be written: {error.name}."
            outcome = _refused(change.asked.request, (write_error(error), text))
        return [StateAnswer(change.asked, outcome), *self._decide()]

    def die(self) -> list[Effect]:
        """Refuse all requests: another broker is the coordinator."""
        left = [] if self._change is None else [self._change.asked]
        left += [asked for asked, _ in self._waiting]
        self._change = None
        self._waiting.clear()
        refusal = ErrorCode.NOT_COORDINATOR, "Another broker coordinates the share partition."
        return [
            StateAnswer(asked, None if asked.request is None else _refused(asked.request, refusal)) for asked in left
        ]

    def _decide(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self._change is None:
            asked, now_ms = self._waiting.popleft()
            effects.append(self._decide_one(asked, now_ms))
        return effects

    def _decide_one(self, asked: StateAsked, now_ms: int) -> Effect:
        match asked.request:
            case InitializePartition() as request:
                refusal = check_initialize(self.offset, request)
                if refusal is not None:
                    return StateAnswer(asked, _refused(request, refusal))
                return self._store_snapshot(asked, initialized(request), now_ms, created_ms=now_ms)
            case ReadPartition() as request:
                return self._read(asked, request)
            case WritePartition() as request:
                return self._write(asked, request, now_ms)
            case StatePartition() as request:
                outcome = StateOutcome(request.topic_id, request.partition)
                if self.snapshot is None:
                    return StateAnswer(asked, outcome)
                self._change = _Change(asked, outcome, None, 0)
                return StoreState((encode_key(SNAPSHOT, self.key), None))
        if self.snapshot is None:
            return StateAnswer(asked, None)
        return self._store_snapshot(asked, self.snapshot.offset, self.snapshot.written_ms)

    def _read(self, asked: StateAsked, request: ReadPartition) -> Effect:
        refusal = check_read(self.offset, request.leader_epoch)
        if refusal is not None or self.snapshot is None:
            return StateAnswer(asked, _refused(request, refusal))
        offset = self.snapshot.offset
        outcome = ReadStatePartition(
            request.topic_id,
            request.partition,
            state_epoch=offset.state_epoch,
            start_offset=offset.start_offset,
            state_batches=offset.state_batches,
        )
        if request.leader_epoch in (NO_LEADER_EPOCH, offset.leader_epoch):
            return StateAnswer(asked, outcome)
        update = ShareUpdate(
            snapshot_epoch=self.snapshot.snapshot_epoch,
            leader_epoch=request.leader_epoch,
            start_offset=offset.start_offset,
            delivery_complete_count=offset.delivery_complete_count,
        )
        return self._store_update(asked, outcome, update, self.snapshot)

    def _write(self, asked: StateAsked, request: WritePartition, now_ms: int) -> Effect:
        refusal = check_write(self.offset, request)
        if refusal is not None or self.snapshot is None:
            return StateAnswer(asked, _refused(request, refusal))
        before = self.snapshot.offset
        if self.updates >= self._updates_per_snapshot or request.state_epoch > before.state_epoch:
            return self._store_snapshot(asked, before.written(request), now_ms)
        update = ShareUpdate(
            snapshot_epoch=self.snapshot.snapshot_epoch,
            leader_epoch=max(before.leader_epoch, request.leader_epoch),
            start_offset=request.start_offset,
            delivery_complete_count=request.delivery_complete_count,
            state_batches=request.state_batches,
        )
        outcome = StateOutcome(request.topic_id, request.partition)
        return self._store_update(asked, outcome, update, evolve(self.snapshot, written_ms=now_ms))

    def _store_update(self, asked: StateAsked, outcome: Any, update: ShareUpdate, before: ShareSnapshot) -> Effect:
        self._change = _Change(asked, outcome, updated(before, update), self.updates + 1)
        return StoreState((encode_key(UPDATE, self.key), encode_update(update)))

    def _store_snapshot(
        self, asked: StateAsked, offset: ShareGroupOffset, written_ms: int, *, created_ms: int | None = None
    ) -> Effect:
        before = self.snapshot
        if created_ms is None:
            created_ms = written_ms if before is None else before.created_ms
        snapshot = ShareSnapshot(
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            offset=offset,
            created_ms=created_ms,
            written_ms=written_ms,
        )
        outcome = None if asked.request is None else _succeeded(asked.request)
        self._change = _Change(asked, outcome, snapshot, 0)
        return StoreState((encode_key(SNAPSHOT, self.key), encode_snapshot(snapshot)))


def updated(before: ShareSnapshot | None, update: ShareUpdate) -> ShareSnapshot:
    """Return the state after an update. An update without a snapshot begins a state of its own, as in Kafka."""
    known = ShareSnapshot(snapshot_epoch=update.snapshot_epoch, offset=ShareGroupOffset(state_epoch=0))
    known = before or known
    offset = known.offset
    start_offset = offset.start_offset if update.start_offset == -1 else update.start_offset
    return evolve(
        known,
        offset=ShareGroupOffset(
            state_epoch=offset.state_epoch,
            leader_epoch=max(offset.leader_epoch, update.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combine_state_batches(offset.state_batches, update.state_batches, start_offset),
        ),
    )


def _succeeded(request: StateRequest) -> StateOutcome:
    return StateOutcome(request.topic_id, request.partition)


def _refused(request: StateRequest, refusal: CheckFailure | None) -> StateOutcome | ReadStatePartition:
    error, text = refusal or (ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator has failed.")
    outcome = ReadStatePartition if isinstance(request, ReadPartition) else StateOutcome
    return outcome(request.topic_id, request.partition, error, text)
