"""A group of any type, as the coordinator sees it (Kafka's interface `Group`)."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Protocol

from ....ports.broker_api.groups import OffsetCommit, OffsetFetchGroup
from ....ports.broker_api.transactions import TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ..log import Record
from .config import GroupCoordinatorConfig
from .states import GroupState


class GroupType(Enum):
    """The type of a group; the value is Kafka's word, as ListGroups returns it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


CommitPartitionValidator = Callable[[bytes, int], ErrorCode]
"""Returns whether a member with an earlier epoch may commit for a partition, by topic id (KIP-1251)."""


class Group(Protocol):
    """Events take the time (monotonic milliseconds) and return effects; `next_due_ms` returns when to call `tick`."""

    group_id: str
    config: GroupCoordinatorConfig

    @property
    def group_type(self) -> GroupType: ...

    @property
    def state(self) -> GroupState: ...

    @property
    def generation(self) -> int:
        """The number of the present assignment: the generation, or the assignment epoch."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """None for a group that has only committed offsets."""
        ...

    @property
    def member_count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Return roughly how much memory the members take; 0 without members."""
        ...

    @property
    def is_unused(self) -> bool:
        """True if the group has no members, no member ids given out, and nothing to keep but offsets."""
        ...

    @property
    def is_stored(self) -> bool:
        """True if the log has records of the group, other than offsets."""
        ...

    @property
    def next_due_ms(self) -> float | None: ...

    def tick(self, now_ms: float) -> Sequence[Any]:
        """Handle the deadlines that are due."""
        ...

    def restart_sessions(self, now_ms: float) -> None:
        """Give each member a whole session from now on, after a time in which the broker could not serve them."""
        ...

    def die(self, error: ErrorCode) -> Sequence[Any]:
        """End the group, which was deleted or moved elsewhere: every waiting request is answered with `error`."""
        ...

    def tombstones(self) -> list[Record]:
        """Return the records that take the group out of the log, without its offsets."""
        ...

    def subscribed_topics(self) -> AbstractSet[str] | None:
        """Return the topics of all members together; None where that cannot be known."""
        ...

    def check_commit(self, request: OffsetCommit, now_ms: float) -> ErrorCode:
        """Return NONE if the commit is allowed, else the error."""
        ...

    def check_transactional_commit(self, request: TxnOffsetCommit) -> ErrorCode: ...

    def commit_validator(self, member_id: str, epoch: int) -> CommitPartitionValidator | None:
        """Return the validator of each partition of an allowed commit; None if all partitions are allowed."""
        ...

    def check_fetch(self, request: OffsetFetchGroup) -> ErrorCode:
        """Return NONE if the offsets may be fetched, else the error."""
        ...
