"""The durable state of one share partition (Kafka's `ShareGroupOffset`), and the rules for its changes (facts D5)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...ports.broker_api.share_state import (
    NO_COUNT,
    NO_LEADER_EPOCH,
    NO_START_OFFSET,
    InitializePartition,
    StateBatch,
    WritePartition,
)
from ...ports.error_codes import ErrorCode
from ...ports.values import frozen

CheckFailure = tuple[ErrorCode, str]
"""The error for a request, and its text."""

_FENCED_LEADER: CheckFailure = (
    ErrorCode.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than that of the share coordinator.",
)
_FENCED_STATE: CheckFailure = (
    ErrorCode.FENCED_STATE_EPOCH,
    "The state epoch in the request is older than that of the share coordinator.",
)


@frozen(kw_only=True)
class ShareGroupOffset:
    """The state of a share partition: its epochs, its start offset, and the records above that were delivered."""

    state_epoch: int
    leader_epoch: int = NO_LEADER_EPOCH
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT
    state_batches: tuple[StateBatch, ...] = ()

    def written(self, change: WritePartition) -> "ShareGroupOffset":
        """Return the state after a write that `check_write` has allowed."""
        start_offset = self.start_offset if change.start_offset == NO_START_OFFSET else change.start_offset
        return ShareGroupOffset(
            state_epoch=max(self.state_epoch, change.state_epoch),
            leader_epoch=max(self.leader_epoch, change.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=combine_state_batches(self.state_batches, change.state_batches, start_offset),
        )


def initialized(request: InitializePartition) -> ShareGroupOffset:
    """Return the state of a share partition that begins, or begins again."""
    return ShareGroupOffset(state_epoch=request.state_epoch, start_offset=request.start_offset)


def check_initialize(current: ShareGroupOffset | None, request: InitializePartition) -> CheckFailure | None:
    """Return why a partition cannot be initialized in this epoch, or None."""
    if current is not None and current.state_epoch > request.state_epoch:
        return _FENCED_STATE
    return None


def check_read(current: ShareGroupOffset | None, leader_epoch: int) -> CheckFailure | None:
    """Return why a leader of this epoch cannot read the state, or None."""
    if current is None:
        return ErrorCode.INVALID_REQUEST, "The read operation on uninitialized share partition not allowed."
    if leader_epoch != NO_LEADER_EPOCH and current.leader_epoch > leader_epoch:
        return _FENCED_LEADER
    return None


def check_write(current: ShareGroupOffset | None, request: WritePartition) -> CheckFailure | None:
    """Return why a change cannot be stored, or None."""
    if current is None:
        return ErrorCode.INVALID_REQUEST, "The write operation on uninitialized share partition not allowed."
    if request.leader_epoch != NO_LEADER_EPOCH and current.leader_epoch > request.leader_epoch:
        return _FENCED_LEADER
    if request.state_epoch != -1 and current.state_epoch > request.state_epoch:
        return _FENCED_STATE
    if any(each.first_offset > each.last_offset or each.first_offset < 0 for each in request.state_batches):
        return ErrorCode.INVALID_REQUEST, "A state batch ends before its beginning."
    return None


def combine_state_batches(
    stored: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches after the changes, in the order of their offsets, without overlaps, from `start_offset` on
    (Kafka's `PersisterStateBatchCombiner`). Neighbours with the same state become one batch.

    Where batches overlap, the higher delivery count counts, then the higher state. So it makes no difference how often
    or in which order changes come.
    """
    batches = [*stored, *changes]
    edges = sorted({edge for each in batches for edge in (each.first_offset, each.last_offset + 1)})
    if len(edges) <= 1:
        return ()
    ranks = sorted(batches, key=lambda each: each.first_offset)
    active: list[StateBatch] = []
    combined: list[StateBatch] = []
    position = 0
    for edge, following in pairwise(edges):
        while position < len(ranks) and ranks[position].first_offset <= edge:
            active.append(ranks[position])
            position += 1
        active = [each for each in active if each.last_offset >= edge]
        last = following - 1
        if not active or last < start_offset:
            continue
        first = max(edge, start_offset)
        count, state = max((each.delivery_count, each.delivery_state) for each in active)
        before = combined[-1] if combined else None
        if (
            before is not None
            and before.last_offset + 1 == first
            and (before.delivery_count, before.delivery_state) == (count, state)
        ):
            combined[-1] = StateBatch(before.first_offset, last, state, count)
        else:
            combined.append(StateBatch(first, last, state, count))
    return tuple(combined)
