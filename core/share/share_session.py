"""Share sessions: the partitions that a member of a share group fetches from this broker (KIP-932, facts D3)."""

from collections.abc import Callable, Hashable, Iterable

from ...ports.broker_api.share_groups import (
    FINAL_SHARE_SESSION_EPOCH,
    INITIAL_SHARE_SESSION_EPOCH,
    ForgottenSharePartition,
    ShareFetchPartition,
    next_share_session_epoch,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError

SessionPartition = tuple[bytes, int]
"""The topic id and the number of a partition."""


class ShareSession:
    """One session. Not frozen: it is the state itself.

    `epoch` is the one that the next request must have. `partitions` has the topic name of each partition.
    """

    __slots__ = ("connection", "epoch", "group_id", "is_closed", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: Hashable) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = next_share_session_epoch(INITIAL_SHARE_SESSION_EPOCH)
        self.partitions: dict[SessionPartition, str] = {}
        self.is_closed = False

    def update(self, partitions: Iterable[ShareFetchPartition], forgotten: Iterable[ForgottenSharePartition]) -> None:
        """Add partitions, and remove those that the member has forgotten."""
        for each in partitions:
            self.partitions[each.topic_id, each.partition] = each.topic
        for gone in forgotten:
            self.partitions.pop((gone.topic_id, gone.partition), None)

    def in_turn(self) -> list[tuple[SessionPartition, str]]:
        """Return the partitions, each time from another one on, so that none waits for the others."""
        partitions = list(self.partitions.items())
        if len(partitions) > 1:
            turn = self.epoch % len(partitions)
            return partitions[turn:] + partitions[:turn]
        return partitions


class ShareSessionCache:
    """The share sessions of a broker, at most `max_sessions()` of them. Owner thread only."""

    def __init__(self, max_sessions: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[Hashable, dict[tuple[str, str], ShareSession]] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(each.partitions) for each in self._sessions.values())

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session."""
        return any(each.group_id == group_id for each in self._sessions.values())

    def session_for_fetch(
        self, group_id: str, member_id: str, epoch: int, connection: Hashable, *, has_acknowledgements: bool
    ) -> ShareSession:
        """Return the session of a ShareFetch, with its next epoch. Epoch 0 opens one in place of an earlier one.

        Raises `ApiError`: INVALID_REQUEST for acknowledgements in epoch 0, SHARE_SESSION_LIMIT_REACHED, and as
        `session_for_acknowledge`.
        """
        if epoch != INITIAL_SHARE_SESSION_EPOCH:
            return self._continued(group_id, member_id, epoch)
        if has_acknowledgements:
            text = "The first request of a share session must have no acknowledgements."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        earlier = self._sessions.get((group_id, member_id))
        if earlier is None and len(self._sessions) >= self._max_sessions():
            text = "The broker has the most share sessions that group.share.max.share.sessions allows."
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, text)
        if earlier is not None:
            self.remove(earlier)
        session = ShareSession(group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._by_connection.setdefault(connection, {})[group_id, member_id] = session
        return session

    def session_for_acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a ShareAcknowledge, with its next epoch.

        Raises `ApiError`: SHARE_SESSION_NOT_FOUND, and INVALID_SHARE_SESSION_EPOCH, which epoch 0 always is.
        """
        if epoch == INITIAL_SHARE_SESSION_EPOCH:
            text = "A share session begins with a fetch, not with an acknowledgement."
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, text)
        return self._continued(group_id, member_id, epoch)

    def _continued(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            text = f"There is no share session of member {member_id[:64]} in group {group_id[:260]}."
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, text)
        if epoch == FINAL_SHARE_SESSION_EPOCH:
            self.remove(session)
            return session
        if epoch != session.epoch:
            text = f"The share session epoch is {epoch}, and not {session.epoch}."
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, text)
        session.epoch = next_share_session_epoch(epoch)
        return session

    def remove(self, session: ShareSession) -> None:
        """Close a session."""
        key = (session.group_id, session.member_id)
        session.is_closed = True
        if self._sessions.get(key) is session:
            del self._sessions[key]
        of_connection = self._by_connection.get(session.connection)
        if of_connection is not None and of_connection.get(key) is session:
            del of_connection[key]
            if not of_connection:
                del self._by_connection[session.connection]

    def remove_connection(self, connection: Hashable) -> list[ShareSession]:
        """Close the sessions of a connection that was lost, and return them."""
        if connection not in self._by_connection:  # as nearly every connection
            return []
        sessions = list(self._by_connection[connection].values())
        for each in sessions:
            self.remove(each)
        return sessions
