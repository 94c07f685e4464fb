"""A member's partitions, and the events about them for its user."""

from collections import deque
from collections.abc import Iterable, Mapping

from ....ports.types import TopicPartition
from .events import Assigned, CommittedOffset, Failed, GroupEvent, Lost, Revoke


class OwnedPartitions:
    """Partitions of one member, and the events that wait for its user. At most one `Revoke` is open at a time."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        """The partitions of the last assignment, without those given up since."""
        self.user_partitions: set[TopicPartition] = set()
        """The partitions that the user has, or will have when all events are taken."""
        self.events: deque[GroupEvent] = deque()
        self._open: Revoke | None = None
        self._taken = False

    @property
    def revoking(self) -> bool:
        """True while the user has something to give up."""
        return self._open is not None

    @property
    def has_lost(self) -> bool:
        """True while the user has not taken the event of a loss."""
        return any(isinstance(event, Lost) for event in self.events)

    def add_assignment(self, positions: Mapping[TopicPartition, CommittedOffset | None], generation_id: int) -> None:
        """Give the user these partitions, if they are the member's and new to the user."""
        new = {tp: positions[tp] for tp in sorted(positions) if tp in self.assigned - self.user_partitions}
        self.user_partitions |= new.keys()
        self.events.append(Assigned(positions=new, generation_id=generation_id))

    def revoke(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        """Add a `Revoke` of these partitions; those that the user does not have are given up at once."""
        wanted = set(partitions)
        self.assigned -= wanted - self.user_partitions
        asked = sorted(wanted & self.user_partitions)
        if asked:
            self._open = Revoke(partitions=asked, reason=reason)
            self._taken = False
            self.events.append(self._open)

    def take_event(self) -> GroupEvent | None:
        if not self.events:
            return None
        event = self.events[0]
        if not (isinstance(event, Failed) and event.final):
            self.events.popleft()
        if event is self._open:
            self._taken = True
        return event

    def revoked_done(self) -> None:
        """Note that the user has given up the partitions of the open `Revoke`; does nothing if it has taken none."""
        if self._open is not None and self._taken:
            self._drop(self._open.partitions)
            self._open = None

    def lose_partitions(self, reason: str, *, report_empty: bool = False) -> None:
        """Drop everything, and report by `Lost` what the user has, without the partitions of a taken `Revoke`.

        If the user has no others, the event is added only on request.
        """
        if self._open is not None:
            if self._taken:
                self._drop(self._open.partitions)
            else:
                self.events.remove(self._open)
            self._open = None
        if self.user_partitions or report_empty:
            self.events.append(Lost(partitions=sorted(self.user_partitions), reason=reason))
        self.user_partitions.clear()
        self.assigned.clear()

    def clear(self) -> None:
        """Drop everything without events, because the user has given it up."""
        self.assigned.clear()
        self.user_partitions.clear()
        self.events.clear()
        self._open = None

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        self.user_partitions.difference_update(partitions)
        self.assigned.difference_update(partitions)
