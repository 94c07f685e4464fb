"""What a group wants done after an event. The group itself does nothing: who drives it does, in this order."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from attrs import field

from ....ports.broker_api.groups import JoinGroupResult, LeaveGroupResult, SyncGroupResult
from ....ports.values import frozen
from .records import StoredGroup

To = Callable[[Any], None]
"""Where an answer goes: the reply of the request."""

Result = JoinGroupResult | SyncGroupResult | LeaveGroupResult


@frozen
class Answer:
    """Give this result to who asked."""

    to: To
    result: Result


class StoreReason(Enum):
    """Why a group is written."""

    ASSIGNED = "the leader has assigned"
    REPLACED = "a static member has a new id"
    EMPTIED = "the last member has gone"


@frozen(kw_only=True, eq=False)
class Store:
    """Append the group to its log; then tell the group by `stored`, once, with how it went."""

    reason: StoreReason
    group: StoredGroup
    assignments: Mapping[str, bytes] = field(factory=dict)
    """By member id, as the leader gave them (ASSIGNED)."""
    member_id: str = ""
    answer: Answer | None = None
    """What the member with the new id is told if nothing changes meanwhile (REPLACED)."""


Effect = Answer | Store
Effects = list[Effect]
