"""The effects that a group returns after an event. The group itself does no I/O: its driver carries the effects out,
in this order."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from attrs import field

from ....ports.broker_api.groups import JoinGroupResult, LeaveGroupResult, SyncGroupResult
from ....ports.values import frozen
from .records import StoredGroup

To = Callable[[Any], None]
"""The callback for an answer: the reply of the request."""

Result = JoinGroupResult | SyncGroupResult | LeaveGroupResult


@frozen
class Answer:
    """Send this result to the caller."""

    to: To
    result: Result


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


Effect = Answer | Store
Effects = list[Effect]
