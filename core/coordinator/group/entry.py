"""One group of a coordinator: its members, its positions, and the timer that wakes it."""

from attrs import field

from ....ports.scheduler import Timer
from ....ports.values import define
from ..log import Record
from ..table import CoordinatorTable
from .effects import Answer
from .group import Group
from .loading import Loading
from .offsets import GroupOffsets
from .states import GroupState


class PendingWrite:
    """A write of a modern group that has not ended, and the answers that wait for it."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: list[Answer] = []


@define(kw_only=True, eq=False)
class GroupEntry:
    """A group as the coordinator holds it: `partition` is that of `__consumer_offsets` which stores it,
    `state_since_ms` is wall-clock time, -1 unknown."""

    group: Group
    offsets: GroupOffsets
    partition: int
    state_since_ms: int
    state: GroupState = GroupState.EMPTY
    """The state that was last seen, like `generation`: later changes are reported in the broker's log."""
    generation: int = 0
    size_bytes: int = 0
    """The memory of its members, as counted so far."""
    timer: Timer | None = None
    timer_due_ms: float = 0.0
    last_write: PendingWrite | None = None
    """The last write of a modern group, until it ends."""
    ended: list[Record] = field(factory=list)
    """Records that end a former group of another type, until they are written."""
    is_silenced: bool = False
    """One of its deadlines passed while this broker had no lease."""

    @property
    def key(self) -> str:
        return self.group.group_id

    @property
    def is_void(self) -> bool:
        """True if nothing of the group is stored, nor need be."""
        return not self.group.is_stored and self.is_over

    @property
    def is_over(self) -> bool:
        """True if it has neither members nor positions."""
        return self.group.is_unused and self.offsets.is_void


GroupTable = CoordinatorTable[GroupEntry, Loading]
