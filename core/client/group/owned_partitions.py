"""What a member has, and what its user has been told of that."""

from collections import deque
from collections.abc import Iterable, Mapping

from ....ports.types import TopicPartition
from .events import Assigned, CommittedOffset, Failed, GroupEvent, Lost, Revoke


class OwnedPartitions:
    """Partitions of one member, and the events that wait for its user. At most one `Revoke` is open at a time."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        """By the last assignment, without what has been given up since."""
        self.told: set[TopicPartition] = set()
        """What the user has, or will have when all events are taken."""
        self.events: deque[GroupEvent] = deque()
        self._open: Revoke | None = None
        self._taken = False

    @property
    def revoking(self) -> bool:
        """True while the user has something to give up."""
        return self._open is not None

    @property
    def has_lost(self) -> bool:
        """True while the user does not know that it has lost what it had."""
        return any(isinstance(event, Lost) for event in self.events)

    def give(self, positions: Mapping[TopicPartition, CommittedOffset | None], generation_id: int) -> None:
        """The user gets these, as far as they are the member's and new to the user."""
        new = {place: positions[place] for place in sorted(positions) if place in self.assigned - self.told}
        self.told |= new.keys()
        self.events.append(Assigned(positions=new, generation_id=generation_id))

    def revoke(self, places: Iterable[TopicPartition], reason: str) -> None:
        """The user is to give up these; what it does not know of is given up at once."""
        wanted = set(places)
        self.assigned -= wanted - self.told
        asked = sorted(wanted & self.told)
        if asked:
            self._open = Revoke(partitions=asked, reason=reason)
            self._taken = False
            self.events.append(self._open)

    def take(self) -> GroupEvent | None:
        if not self.events:
            return None
        event = self.events[0]
        if not (isinstance(event, Failed) and event.final):
            self.events.popleft()
        if event is self._open:
            self._taken = True
        return event

    def revoked_done(self) -> None:
        """The user has given up what it was told to; nothing happens if that was another time."""
        if self._open is not None and self._taken:
            self._drop(self._open.partitions)
            self._open = None

    def lose(self, reason: str, *, tell: bool = False) -> None:
        """Everything is gone. What the user is giving up just now is not told again; nothing at all only if `tell`."""
        if self._open is not None:
            if self._taken:
                self._drop(self._open.partitions)
            else:
                self.events.remove(self._open)
            self._open = None
        if self.told or tell:
            self.events.append(Lost(partitions=sorted(self.told), reason=reason))
        self.told.clear()
        self.assigned.clear()

    def clear(self) -> None:
        """Everything is given up, and the user knows."""
        self.assigned.clear()
        self.told.clear()
        self.events.clear()
        self._open = None

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        self.told.difference_update(places)
        self.assigned.difference_update(places)
