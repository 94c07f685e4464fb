"""The consumer's side of its group: the user's thread carries out the events of the membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ports.errors import ConfigError

if TYPE_CHECKING:
    from ....plugins.host import PluginHost


import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ....core.client.consumer.fetcher import Fetcher
from ....core.client.consumer.subscription_state import AtOffset, AtTime
from ....core.client.effects import NEVER, Poll
from ....core.client.errors import ClientTimeout, CommitFailed, NoOffset
from ....core.client.group.assignor import Assignor
from ....core.client.group.consumer_coordinator import ConsumerCoordinator
from ....core.client.group.events import (
    Assigned,
    CommittedOffset,
    Failed,
    GroupEvent,
    GroupMetadata,
    GroupSettings,
    Lost,
    Revoke,
)
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.types import TopicPartition
from ..shared.blocking_shell import GRACE_S, logger
from ..shared.client_shell import ClientShell
from ..shared.settings import ConsumerSettings, copy_settings
from .fetch_buffer import FetchBuffer
from .rebalance_listener import RebalanceListener

Offsets = Mapping[TopicPartition, CommittedOffset]
CommitCallback = Callable[[Offsets, BarnabasError | None], object]
"""A callback of a commit: gets the offsets, and None or the error."""

_LOOKS_PER_POLL_INTERVAL = 20
"""The number of times within `max.poll.interval.ms` that the reactor checks the progress of the user."""
_MISSING_MS = 3000.0
"""The time after which a consumer warns of a subscribed topic that does not exist: it may just be created."""
_NOT_A_MEMBER = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class GroupCoordinatorClient:
    """The group's side of a consumer: applies membership events to reading and the listener, and commits.

    It is also a part of the client: on the reactor it checks whether the user's thread is needed, and then ends the
    running iteration before its next message. So a message costs no more than without a group.
    """

    def __init__(
        self,
        shell: ClientShell,
        fetcher: Fetcher,
        reading: FetchBuffer,
        assignors: Sequence[Assignor],
        settings: ConsumerSettings,
    ) -> None:
        view, entropy = shell.view, shell.connector.entropy
        self.membership = ConsumerCoordinator(
            view,
            entropy,
            copy_settings(
                GroupSettings,
                settings,
                group_instance_id=settings.group_instance_id or None,
                client_rack=settings.client_rack or None,
                group_protocol=settings.joins_by,
                group_remote_assignor=settings.group_remote_assignor or None,
            ),
            assignors,
            self._request_user_thread,
        )
        self.wanted = False
        """True while the user's thread has something to carry out."""
        self._shell = shell
        self._fetcher = fetcher
        self._reading = reading
        self._settings = settings
        self._listener = RebalanceListener()
        self._attending = False
        self._waiting = False
        self._progress: object = None
        self._look_ms = NEVER
        self._auto_due_ms = NEVER
        self._commits_fail = False
        """True after a failed automatic commit was logged, until one succeeds."""
        self._as_member: GroupMetadata | None = None
        """The identity of the member when its user had last received all its events."""
        self._paused: set[TopicPartition] = set()
        self._left: dict[TopicPartition, tuple[int, bytes]] = {}
        """The position (and the topic id) of each partition that this member gave up."""
        self._known: dict[TopicPartition, int] = {}
        self._ready_callbacks: deque[Callable[[], object]] = deque()
        self._unanswered: dict[int, Callable[[BarnabasError], None]] = {}
        self._missing: dict[str, float] = {}
        """The subscribed topics that do not exist, and when to warn of each; NEVER after the warning."""
        self._views_seen = -1
        shell.add_part(self)
        shell.add_part(self.membership)

    # --- the reactor's side

    def poll(self, now_ms: float) -> Poll:
        """Check whether the user makes progress, and whether its thread is needed. Lock held; sends nothing."""
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + self._settings.max_poll_interval_ms / _LOOKS_PER_POLL_INTERVAL
            progress = self._reading.progress
            if self._waiting or progress != self._progress:
                self._progress = progress
                self.membership.polled(now_ms)
        if not self.wanted and (self.membership.has_event or self._ready_callbacks or now_ms >= self._auto_due_ms):
            self._request_user_thread()
        missing_ms = self._warn_of_missing(now_ms)
        return Poll([], min(self._look_ms, missing_ms, NEVER if self.wanted else self._auto_due_ms))

    def _warn_of_missing(self, now_ms: float) -> float:
        """Log each subscribed topic once that does not exist for a while; return the time of the next check."""
        view = self._shell.view
        if self._views_seen != view.updates:
            self._views_seen = view.updates
            for topic in self.membership.topics:
                if view.topic_errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._missing.setdefault(topic, now_ms + _MISSING_MS)
                else:
                    self._missing.pop(topic, None)
        for topic in [topic for topic, due_ms in self._missing.items() if due_ms <= now_ms]:
            self._missing[topic] = NEVER
            logger.warning(
                "topic %s, to which group %s is subscribed, does not exist, and is read once it does; create it "
                "(`Admin.create_topic`, `barnabas topics create`), or compare its name with `barnabas topics list`",
                topic,
                self._settings.group_id,
            )
        return min(self._missing.values(), default=NEVER)

    def _request_user_thread(self) -> None:
        """Make the user's thread come back before its next message. Lock held."""
        self.wanted = True
        self._reading.suspend_current()
        self._shell.changed.notify_all()

    # --- the user's side

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener) -> None:
        with self._shell.lock:
            self._listener = listener
            self._missing.clear()
            self._views_seen = -1
            now = self._shell.now_ms()
            if isinstance(topics, re.Pattern):
                self.membership.subscribe_matching(topics, now)
            else:
                self.membership.subscribe(list(topics), now)
            self._look_ms = now
            self.keep_committing()
            self._shell.wake()

    def keep_committing(self) -> None:
        """Start automatic commits at their interval, if `enable.auto.commit` is set. Lock held."""
        if self._settings.enable_auto_commit and self._auto_due_ms == NEVER:
            self._auto_due_ms = self._shell.now_ms() + self._settings.auto_commit_interval_ms

    def handle_events(self) -> None:
        """Carry out pending events when the user asks for messages. Raises the listener's errors, and failures."""
        if self._attending:
            raise BarnabasError("a rebalance listener or a commit's callback must not ask for messages")
        if not self.wanted:
            return
        self._attending, self.wanted = True, False
        try:
            self._call_back()
            while (event := self._take_event()) is not None:
                self._carry_out(event)
            with self._shell.lock:
                if not self.membership.has_lost:
                    self._as_member = self._metadata()
            self._commit_at_interval()
        finally:
            self._attending = False
            self._shell.wake()  # the reactor looks again whether something is left

    def wait(self, came: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait for messages, for the user. Lock held."""
        if self.membership.polled(self._shell.now_ms()):
            self._shell.wake()
        self._waiting = True
        try:
            self._shell.wait(came, timeout_s)
        finally:
            self._waiting = False

    @property
    def settled(self) -> bool:
        """True while the group has nothing for this member to do, and has handled all of it. Lock held."""
        return self.membership.settled and not self.membership.has_event

    def give_up(self, timeout_s: float, *, auto_commit: bool = True) -> None:
        """Leave the group in order: commit, call the listener's `on_revoked`, then leave at the coordinator.

        Waits for the coordinator at most `timeout_s` seconds.
        """
        deadline_ms = self._shell.now_ms() + timeout_s * 1000
        partitions = list(self._fetcher.partitions)
        if auto_commit and self._auto_due_ms < NEVER:
            self._commit_quietly(timeout_s)
        try:
            if self.membership.subscribed and partitions:
                self._listener.on_revoked(partitions)
        finally:
            self._leave(partitions, max(0.0, deadline_ms - self._shell.now_ms()) / 1000)
            self._call_back()

    def end(self) -> None:
        """Fail the commits without a response, after the client was closed."""
        for done in list(self._unanswered.values()):
            done(ClosedError("the client was closed before the commit was answered"))
        self._call_back()

    # --- positions

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, CommittedOffset]:
        """Return the user's positions in all partitions that are read (or in these). Lock held."""
        states = self._fetcher.partitions
        chosen = [states[tp] for tp in (states if partitions is None else partitions) if tp in states]
        return {
            state.tp: CommittedOffset(state.read_offset, self._reading.epoch_of(state), topic_id=state.topic_id)
            for state in chosen
            if state.read_offset >= 0
        }

    def metadata(self) -> GroupMetadata:
        """Return the identity in the group of which the user knows.

        A member that lost its membership and joined again keeps its old identity until its user has received that
        event: in between, other members may have had its partitions.
        """
        with self._shell.lock:
            now, known = self._metadata(), self._as_member
            is_known = not self.membership.has_lost and (now.generation_id >= 0 or not self.membership.subscribed)
            return now if is_known or known is None else known

    def _metadata(self) -> GroupMetadata:
        """Return the present identity of the member. Lock held."""
        return GroupMetadata(
            group_id=self._settings.group_id,
            generation_id=self.membership.generation_id,
            member_id=self.membership.member_id,
            group_instance_id=self._settings.group_instance_id or None,
        )

    def commit(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit, and wait for the coordinator. Raises `CommitFailed`, `ApiError`, `ClientTimeout`."""
        answers: list[BarnabasError | None] = []
        with self._shell.lock:
            self._check_open()
            deadline_ms = self._shell.now_ms() + timeout_s * 1000
            self.membership.commit(offsets, self._shell.putter(answers), deadline_ms=deadline_ms)
            self._await(answers, timeout_s)
            if answers[0] is None:
                self._know(offsets)
        if not self._attending:
            self._call_back()
        if answers[0] is not None:
            raise _named(answers[0])

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None, timeout_s: float) -> None:
        """Commit without waiting; the callback runs when the user next asks for messages, commits or closes."""

        def done(error: BarnabasError | None) -> None:
            if self._unanswered.pop(id(done), None) is None:
                return
            if error is None:
                self._know(offsets)
            elif callback is None:
                logger.warning("positions were not committed: %s", error)
            if callback is not None:
                self._ready_callbacks.append(partial(callback, offsets, None if error is None else _named(error)))

        with self._shell.lock:
            self._check_open()
            self._unanswered[id(done)] = done
            self.membership.commit(offsets, done, deadline_ms=self._shell.now_ms() + timeout_s * 1000)
            self._shell.wake()

    def committed(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, Any]:
        """Return for each partition the `CommittedOffset`, or None. Raises `ApiError`, `ClientTimeout`."""
        answers: list[Mapping[TopicPartition, CommittedOffset | None] | BarnabasError] = []
        with self._shell.lock:
            self._check_open()
            deadline_ms = self._shell.now_ms() + timeout_s * 1000
            self.membership.committed(list(partitions), self._shell.putter(answers), deadline_ms=deadline_ms)
            self._await(answers, timeout_s)
        if isinstance(answers[0], BarnabasError):
            raise answers[0]
        return dict(answers[0])

    # --- inside

    def _take_event(self) -> GroupEvent | None:
        with self._shell.lock:
            return self.membership.take_event()

    def _carry_out(self, event: GroupEvent) -> None:
        if isinstance(event, Assigned):
            self._assigned(event)
        elif isinstance(event, Revoke):
            self._revoke(event)
        elif isinstance(event, Lost):
            logger.info("lost %s: %s", ", ".join(map(str, event.partitions)) or "no partitions", event.reason)
            with self._shell.lock:
                self._forget(event.partitions)
            if event.partitions:
                self._listener.on_lost(list(event.partitions))
        elif isinstance(event, Failed):
            raise event.error

    def _assigned(self, event: Assigned) -> None:
        reset = self._settings.auto_offset_reset.value
        default = AtTime(reset) if reset else None
        starts = {
            tp: default if at is None else AtOffset(at.offset, at.leader_epoch, self._topic_of(tp, at.offset))
            for tp, at in event.positions.items()
        }
        with self._shell.lock:
            self._fetcher.add(starts)
            self._fetcher.pause(self._paused & starts.keys(), True)
            self._paused.clear()
            self._known |= {tp: at.offset for tp, at in event.positions.items() if at is not None}
            for tp in starts:
                self._left.pop(tp, None)
        try:
            self._listener.on_assigned(list(starts))
        finally:
            with self._shell.lock:
                self._refuse_nowhere(starts)
                self._shell.wake()

    def _topic_of(self, tp: TopicPartition, offset: int) -> bytes:
        """Return the id of the topic of a committed offset, if this member gave up the partition at that offset.

        Its commit may have arrived after that topic was deleted and another one got its name.
        """
        left_at, topic_id = self._left.get(tp, (-1, NO_TOPIC_ID))
        return topic_id if left_at == offset else NO_TOPIC_ID

    def _refuse_nowhere(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            state = self._fetcher.partitions.get(tp)
            if state is not None and state.lookup is None and state.fetch_offset < 0:
                text = f"the group has no offset of {tp}, and auto.offset.reset is none: seek"
                self._fetcher.surface(tp, NoOffset(text))

    def _revoke(self, event: Revoke) -> None:
        partitions = list(event.partitions)
        try:
            if self._auto_due_ms < NEVER:
                settings = self._settings
                self._commit_quietly(min(settings.default_api_timeout_ms, settings.max_poll_interval_ms / 2) / 1000)
            self._listener.on_revoked(partitions)
        finally:
            with self._shell.lock:
                self._forget(partitions)
                self.membership.revoked_done()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions. Lock held."""
        for tp in partitions:
            state = self._fetcher.partitions.get(tp)
            if state is not None and state.paused:
                self._paused.add(tp)
            if state is not None:
                self._left[tp] = (state.read_offset, state.topic_id)
            self._known.pop(tp, None)
        self._reading.drop(partitions)
        self._fetcher.remove(partitions)

    def _leave(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        left: list[bool] = []
        with self._shell.lock:
            self._auto_due_ms = self._look_ms = NEVER
            self._forget(partitions)
            self._paused.clear()
            self._left.clear()
            if not self._shell.closed:
                self.membership.leave(self._shell.now_ms(), lambda: left.append(True))
                self._shell.wake()
                self._shell.wait(lambda: bool(left), timeout_s)

    def _commit_at_interval(self) -> None:
        with self._shell.lock:
            now = self._shell.now_ms()
            if now < self._auto_due_ms:
                return
            interval = self._settings.auto_commit_interval_ms
            self._auto_due_ms = now + interval
            positions = self._news()
            if positions:
                done = partial(self._committed_quietly, positions)
                self.membership.commit(positions, done, deadline_ms=now + max(interval, 1000), retry=False)
                self._shell.wake()

    def _commit_quietly(self, timeout_s: float) -> None:
        """Commit before partitions are given up; a failure is only logged, for it merely repeats messages."""
        with self._shell.lock:
            positions = self._news()
        if positions:
            try:
                self.commit(positions, timeout_s)
            except ClosedError:
                raise
            except BarnabasError as error:
                logger.warning("positions were not committed before partitions are given up: %s", error)

    def _committed_quietly(self, positions: Offsets, error: BarnabasError | None) -> None:
        if error is None:
            self._know(positions)
        elif not self._commits_fail:
            logger.warning("positions were not committed; retrying: %s", error)
        self._commits_fail = error is not None

    def _news(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions that are not committed yet. Lock held."""
        return {tp: position for tp, position in self.positions().items() if position.offset != self._known.get(tp)}

    def _know(self, offsets: Offsets) -> None:
        self._known |= {tp: at.offset for tp, at in offsets.items() if tp in self._fetcher.partitions}

    def _call_back(self) -> None:
        while self._ready_callbacks:
            self._ready_callbacks.popleft()()

    def _check_open(self) -> None:
        if self._shell.closed:
            raise ClosedError("the client is closed")

    def _await(self, answers: list[Any], timeout_s: float) -> None:
        self._shell.wake()
        if not self._shell.wait(lambda: bool(answers), timeout_s + GRACE_S):
            raise ClientTimeout("the client's reactor does not answer")


def _named(error: BarnabasError) -> BarnabasError:
    if isinstance(error, ApiError) and error.code in _NOT_A_MEMBER:
        return CommitFailed(error.code, error.message)
    return error


def assignors_of(chosen: ConsumerSettings, host: PluginHost) -> list[Assignor]:
    """Return the assignors: names are looked up, objects stay as they are. Raises `ConfigError`."""
    found: list[Assignor] = []
    for each in chosen.partition_assignment_strategy:
        if not isinstance(each, str):
            missing = [name for name in ("name", "cooperative", "user_data", "assign") if not hasattr(each, name)]
            if missing:
                raise ConfigError(f"partition.assignment.strategy: {each!r:.100} has no {missing[0]}, see Assignor")
        found.append(host.rebalance_strategy(each) if isinstance(each, str) else each)
    return found
