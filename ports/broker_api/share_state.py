"""The durable state of share partitions (KIP-932): InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86) and ReadShareGroupStateSummary (87).

Brokers send them to the share coordinator. Each result has one outcome for each partition of its request.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen, quick_frozen
from .envelope import Request

NO_START_OFFSET = -1
"""The start offset is not known yet: `share.auto.offset.reset` decides. In a write: it stays as it is."""
NO_LEADER_EPOCH = -1
"""The caller is not the leader: no check, and the epoch that is stored stays."""
NO_COUNT = -1
"""The delivery complete count is not known, or not written."""


@quick_frozen
class StateBatch:
    """The records from `first_offset` to `last_offset` of a share partition, which have the same state.

    `delivery_state` is Kafka's `RecordState`: AVAILABLE 0, ACKNOWLEDGED 2, ARCHIVING 3, ARCHIVED 4. ACQUIRED (1) is
    never stored.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@quick_frozen
class StatePartition:
    """A partition of a topic, by the id of the topic."""

    topic_id: bytes
    partition: int


@quick_frozen
class StateOutcome:
    """The outcome for a share partition whose answer has nothing else."""

    topic_id: bytes
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


# --- 83


@quick_frozen
class InitializePartition:
    """A share partition that begins, or begins again, with no record delivered. A `state_epoch` below the stored one is
    refused with FENCED_STATE_EPOCH; a higher one fences the leaders that have read an earlier state."""

    topic_id: bytes
    partition: int
    state_epoch: int
    start_offset: int = NO_START_OFFSET


@frozen(kw_only=True)
class InitializeShareGroupState(Request["InitializeShareGroupStateResult"]):
    """Create the state of share partitions, or replace it."""

    group_id: str
    partitions: Sequence[InitializePartition]

    def failed(self, error: ApiError) -> "InitializeShareGroupStateResult":
        return InitializeShareGroupStateResult(partitions=_failed(StateOutcome, self.partitions, error))


@frozen(kw_only=True)
class InitializeShareGroupStateResult:
    """The outcomes, when the state is durable."""

    partitions: Sequence[StateOutcome]


# --- 84


@quick_frozen
class ReadPartition:
    """A share partition that its leader begins to serve. The epoch is stored and fences earlier leaders."""

    topic_id: bytes
    partition: int
    leader_epoch: int = NO_LEADER_EPOCH


@frozen(kw_only=True)
class ReadShareGroupState(Request["ReadShareGroupStateResult"]):
    """Read the state of share partitions that this broker leads."""

    group_id: str
    partitions: Sequence[ReadPartition]

    def failed(self, error: ApiError) -> "ReadShareGroupStateResult":
        return ReadShareGroupStateResult(partitions=_failed(ReadStatePartition, self.partitions, error))


@quick_frozen
class ReadStatePartition:
    """The state of a share partition. The batches are in the order of their offsets and do not overlap; records at or
    above `start_offset` that are in none of them have not been delivered."""

    topic_id: bytes
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    state_batches: Sequence[StateBatch] = ()


@frozen(kw_only=True)
class ReadShareGroupStateResult:
    partitions: Sequence[ReadStatePartition]


# --- 85


@quick_frozen
class WritePartition:
    """Changes of a share partition: `state_batches` has only those that have changed, and `start_offset` removes what
    is below it.

    A `leader_epoch` below the stored one is refused with FENCED_LEADER_EPOCH, a `state_epoch` below the stored one with
    FENCED_STATE_EPOCH, a partition that was not initialized with INVALID_REQUEST. The same write may come twice: of two
    states of a record the one with the higher delivery count, then the higher state, is stored.

    `delivery_complete_count`: the records at or above the start offset that are acknowledged or archived.
    """

    topic_id: bytes
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int = NO_START_OFFSET
    state_batches: Sequence[StateBatch] = ()
    delivery_complete_count: int = NO_COUNT


@frozen(kw_only=True)
class WriteShareGroupState(Request["WriteShareGroupStateResult"]):
    """Store changes of share partitions that this broker leads."""

    group_id: str
    partitions: Sequence[WritePartition]

    def failed(self, error: ApiError) -> "WriteShareGroupStateResult":
        return WriteShareGroupStateResult(partitions=_failed(StateOutcome, self.partitions, error))


@frozen(kw_only=True)
class WriteShareGroupStateResult:
    """The outcomes, when the changes are durable."""

    partitions: Sequence[StateOutcome]


# --- 86


@frozen(kw_only=True)
class DeleteShareGroupState(Request["DeleteShareGroupStateResult"]):
    """Delete the state of share partitions. A partition that has none is no error."""

    group_id: str
    partitions: Sequence[StatePartition]

    def failed(self, error: ApiError) -> "DeleteShareGroupStateResult":
        return DeleteShareGroupStateResult(partitions=_failed(StateOutcome, self.partitions, error))


@frozen(kw_only=True)
class DeleteShareGroupStateResult:
    partitions: Sequence[StateOutcome]


# --- 87


@frozen(kw_only=True)
class ReadShareGroupStateSummary(Request["ReadShareGroupStateSummaryResult"]):
    """Read the start offsets of share partitions, without their batches. Nothing changes."""

    group_id: str
    partitions: Sequence[ReadPartition]

    def failed(self, error: ApiError) -> "ReadShareGroupStateSummaryResult":
        return ReadShareGroupStateSummaryResult(partitions=_failed(StateSummary, self.partitions, error))


@quick_frozen
class StateSummary:
    """The start of a share partition. A partition that was not initialized has the defaults, and no error."""

    topic_id: bytes
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT


@frozen(kw_only=True)
class ReadShareGroupStateSummaryResult:
    partitions: Sequence[StateSummary]


OutcomeT = TypeVar("OutcomeT")


def _failed(
    make: Callable[[bytes, int, ErrorCode, str], OutcomeT],
    partitions: Sequence[StatePartition | InitializePartition | ReadPartition | WritePartition],
    error: ApiError,
) -> list[OutcomeT]:
    return [make(each.topic_id, each.partition, error.code, error.message) for each in partitions]
