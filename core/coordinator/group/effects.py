"""The effects that a group returns after an event. The group itself does no I/O: its driver carries the effects out,
in this order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import field

from ....ports.broker_api.consumer_groups import ConsumerGroupHeartbeatResult
from ....ports.broker_api.groups import JoinGroupResult, LeaveGroupResult, SyncGroupResult
from ....ports.broker_api.share_group_offsets import AlterShareGroupOffsetsResult, DeleteShareGroupOffsetsResult
from ....ports.broker_api.share_groups import ShareGroupHeartbeatResult
from ....ports.broker_api.share_state import DeleteShareGroupState, InitializeShareGroupState, StateOutcome
from ....ports.error_codes import ErrorCode
from ....ports.values import frozen
from ..log import Record
from .records import StoredGroup

To = Callable[[Any], None]
"""The callback for an answer: the reply of the request."""

Result = (
    JoinGroupResult
    | SyncGroupResult
    | LeaveGroupResult
    | ConsumerGroupHeartbeatResult
    | ShareGroupHeartbeatResult
    | AlterShareGroupOffsetsResult
    | DeleteShareGroupOffsetsResult
    | ErrorCode
)


@frozen
class Answer:
    """Send this result to the caller; with `on_written` once all writes of the group so far have ended."""

    to: To
    result: Result
    on_written: "OnWritten | None" = None


OnWritten = Callable[[ErrorCode], Result | None]
"""Called with the outcome of the last write, the error being the one for clients; returns what to send instead of the
result, or None."""


class StoreReason(Enum):
    """The reason for which a group is written."""

    ASSIGNED = "the leader has assigned"
    REPLACED = "a static member has a new id"
    EMPTIED = "the last member has gone"


@frozen(kw_only=True, eq=False)
class Store:
    """Append the group to its log; then call the group's `stored` with the outcome, once."""

    reason: StoreReason
    group: StoredGroup
    assignments: Mapping[str, bytes] = field(factory=dict)
    """By member id, as the leader gave them (ASSIGNED)."""
    member_id: str = ""
    answer: Answer | None = None
    """The answer for the member with the new id if nothing changes meanwhile (REPLACED)."""


@frozen(eq=False)
class CallPersister:
    """A call of the share coordinator, made when the write that names it has succeeded. `ended` returns what follows
    from the outcomes, at a time; if the write fails, so does the call."""

    request: InitializeShareGroupState | DeleteShareGroupState
    ended: "Callable[[Sequence[StateOutcome], float], Effects]"


@frozen(eq=False)
class WriteRecords:
    """Append records of a modern group; then call its `written` with the keys and the outcome, once, and answer."""

    records: Sequence[Record]
    keys: Collection[tuple[int, str]]
    answer: Answer | None = None
    calls: Sequence[CallPersister] = ()


Effect = Answer | Store | WriteRecords
Effects = list[Effect]
