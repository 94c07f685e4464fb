"""The membership of a consumer in its group: it starts rebalances and repeats failed ones (facts A8)."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from ....ports.coordination import SessionState
from ....ports.errors import ClosedError
from ....ports.scheduler import Outcome, Scheduler, Timer
from ..registry.group import Owned, OwnershipConflict
from ..registry.layout import ClassicBroker
from ..registry.offload import Lane
from .registry import ConsumerRegistry, PartitionClaim, Survey
from .settings import ConnectorSettings, ConsumerRebalanceFailed

_EARLY = 0.05
"""The part of the back-off to wait when a claim's conflict has gone. The other owner may have more to release."""


FirstEnded = Callable[[ConsumerRebalanceFailed | None], None]


class PartitionReader(Protocol):
    """The reader of the partitions that a membership claims."""

    def give_up(self, owned: Collection[Owned]) -> dict[Owned, int]:
        """Hand out nothing more of these, now; returns the offsets consumed up to, where they are known."""
        ...

    def take_up(
        self, gained: Mapping[Owned, str], starts: Mapping[Owned, int], brokers: Mapping[int, ClassicBroker]
    ) -> None:
        """Read these too, by those threads; continue to read the earlier ones, from these brokers."""
        ...

    def rebalance_failed(self, error: ConsumerRebalanceFailed) -> None: ...

    def hold(self, held: bool) -> None:
        """Hand out nothing for now, or (False) continue."""
        ...


class ClassicMembership:
    """One consumer among those of its group. Owner thread only.

    A change of what is watched sets a flag; rebalances run one at a time. Each looks around first: if our share is what
    we have, nothing happens. Otherwise what is no longer ours is given up and committed, and what is new is claimed; as
    0.7 does, except that what stays ours is read on meanwhile, so that nothing of it is handed out twice. A failed
    attempt is repeated after `rebalance.backoff.ms`, from looking around on. A new member finds its partitions owned
    for the moment that the others need to release them: it tries again as soon as they have, which is no new attempt.

    When the session expires, everything is given up at once; the consumer registers again and starts over. While the
    connection is only suspended, it reads on what it owns for `zk.suspended.stop.ms`, and no attempt is made until the
    connection is back.
    """

    def __init__(
        self,
        registry: ConsumerRegistry,
        reading: PartitionReader,
        lane: Lane,
        scheduler: Scheduler,
        settings: ConnectorSettings,
        report: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._reading = reading
        self._lane = lane
        self._scheduler = scheduler
        self._settings = settings
        self._report = report
        self.claims: dict[Owned, str] = {}
        """The partitions that we own and read."""
        self.unsaved: dict[Owned, int] = {}
        """Consumed offsets of what was given up, still to be committed."""
        self.exchanges = 0
        """The number of times that partitions came or went."""
        self._doubtful: dict[PartitionClaim, None] = {}
        """Owner nodes of ours that may stand without our reading the partition."""
        self._session = 0
        self._registered = 0
        """The session in which our id was registered."""
        self._wanted = False
        self._running = False
        self._failures = 0
        self._early = 0
        """The number of early retries, each after a release, since the last rebalance that ended."""
        self._freed = False
        self._timer: Timer | None = None
        self._suspended = False
        self._holding: Timer | None = None
        self._open = False
        self._closed = False
        self._idle: tuple[str, ...] = ()
        self._first: FirstEnded | None = None

    def open(self, opened: Callable[[BaseException | None], None], first: FirstEnded) -> None:
        """Register; `opened` gets the outcome of that, `first` the failure, or None, of the first rebalance."""

        def done(outcome: Outcome[None]) -> None:
            opened(outcome.error)
            if outcome.error is None and not self._closed:
                self._first = first
                self._open = True
                self.trigger()

        triggered, freed = partial(self._hop, self.trigger), partial(self._hop, self._conflict_gone)
        self._lane.run(lambda: self._registry.open(triggered, freed, self._state_changed), done)

    def trigger(self) -> None:
        """Something changed: look around soon."""
        self._wanted = True
        self._rebalance_if_wanted()

    @property
    def held(self) -> set[PartitionClaim]:
        """Whatever may have an owner node of ours."""
        return {*self.claims.items(), *self._doubtful}

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True
        self._cancel_timer()
        if self._holding is not None:
            self._holding.cancel()

    # --- the session

    def _hop(self, call: Callable[[], None]) -> None:
        with suppress(ClosedError):  # the scheduler has stopped, and with it the consumer
            self._scheduler.call_soon(call)

    def _state_changed(self, state: SessionState) -> None:
        self._hop(partial(self._in_session, state))

    def _in_session(self, state: SessionState) -> None:
        if self._closed:
            return
        was_suspended, self._suspended = self._suspended, state is SessionState.SUSPENDED
        if self._suspended:
            if not was_suspended and self._settings.zk_suspended_stop_ms >= 0:
                self._holding = self._scheduler.call_later(self._settings.zk_suspended_stop_ms, self._hold)
            return
        if state is SessionState.EXPIRED:
            self._session += 1
            self._report("the session expired: giving up all partitions, registering again")
            self.unsaved |= self._reading.give_up(list(self.claims))
            self._doubtful |= dict.fromkeys(self.claims.items())
            self.claims = {}
            self._failures = 0
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
            self._reading.hold(False)
        if self._timer is not None:
            self._cancel_timer()
            self._running = False
        self.trigger()

    def _hold(self) -> None:
        self._report("no connection to the registries: handing out nothing until it is back")
        self._reading.hold(True)

    # --- one rebalance

    def _rebalance_if_wanted(self) -> None:
        if self._running or not self._wanted or self._suspended or self._closed or not self._open:
            return
        self._wanted = False
        self._running = True
        session, register = self._session, self._registered != self._session
        claims = dict(self.claims)
        self._lane.run(
            lambda: self._registry.survey(claims, register=register), lambda outcome: self._surveyed(session, outcome)
        )

    def _surveyed(self, session: int, outcome: Outcome[Survey]) -> None:
        if self._overtaken(session):
            return
        if outcome.error is not None:
            self._failed(outcome.error)
            return
        survey = outcome.get()
        self._registered = session
        self._report_idle(survey.idle)
        retained = {owned: thread for owned, thread in self.claims.items() if survey.share.get(owned) == thread}
        if not survey.still_owned:
            retained = {}  # as after an expired session: nothing is known of who reads them now
        lost = {owned: thread for owned, thread in self.claims.items() if owned not in retained}
        claimed = {owned: thread for owned, thread in survey.share.items() if owned not in retained}
        if not (lost or claimed or self._doubtful or self.unsaved):
            self._reading.take_up({}, {}, survey.brokers)
            self._settled()
            return
        given_up = self._reading.give_up(list(lost))
        self.claims = retained
        self.unsaved |= given_up
        self._doubtful |= dict.fromkeys(lost.items())
        self._give_back(session, survey, claimed, given_up if survey.still_owned else {})

    def _give_back(
        self, session: int, survey: Survey, claimed: Mapping[Owned, str], starts: Mapping[Owned, int]
    ) -> None:
        saving = self._settings.autocommit_enable
        unsaved = dict(self.unsaved) if saving else {}
        released = dict(self._doubtful)

        def done(outcome: Outcome[None]) -> None:
            if self._overtaken(session):
                return
            if outcome.error is not None:
                self._failed(outcome.error)
                return
            self.unsaved = {}
            self._doubtful = {}
            self._claim(session, survey, claimed, starts)

        self._lane.run(lambda: self._registry.give_back(unsaved, released), done)

    def _claim(self, session: int, survey: Survey, claimed: Mapping[Owned, str], starts: Mapping[Owned, int]) -> None:
        self._doubtful = dict.fromkeys(claimed.items())
        self._freed = False

        def done(outcome: Outcome[dict[Owned, int]]) -> None:
            if self._overtaken(session):
                return
            if outcome.error is not None:
                self._failed(outcome.error)
                return
            self._doubtful = {}
            self.claims |= claimed
            self.exchanges += 1
            self._reading.take_up(claimed, outcome.get(), survey.brokers)
            self._settled()

        self._lane.run(lambda: self._registry.claim(claimed, starts), done)

    def _overtaken(self, session: int) -> bool:
        """Return True if the work is obsolete, because its session has expired or the member is closed."""
        if self._closed:
            return True
        if session == self._session:
            return False
        self._running = False
        self._wanted = True
        self._rebalance_if_wanted()
        return True

    def _settled(self) -> None:
        self._failures = self._early = 0
        self._ended()

    def _failed(self, error: BaseException) -> None:
        self._failures += 1
        attempts = self._settings.rebalance_retries_max
        if self._failures > 1 or not isinstance(error, OwnershipConflict):
            self._report(f"rebalance failed, attempt {self._failures} of {attempts}: {error or type(error).__name__}")
        if self._failures < attempts or (self._freed and self._early < attempts):
            self._wanted = True
            self._timer = self._scheduler.call_later(self._settings.rebalance_backoff_ms, self._try_again)
            if self._freed:
                self._conflict_gone()
            return
        self._failures = self._early = 0
        self._wanted |= self._freed
        self._freed = False
        failure = ConsumerRebalanceFailed(f"no share of the topics after {attempts} attempts; the last: {error}")
        failure.__cause__ = error
        self._reading.rebalance_failed(failure)
        self._ended(failure)

    def _conflict_gone(self) -> None:
        self._freed = True
        if not self._running:
            self.trigger()  # the attempts were over
        if self._timer is None or self._early >= self._settings.rebalance_retries_max:
            return
        self._early += 1
        self._failures -= 1
        self._freed = False
        self._timer.cancel()
        self._timer = self._scheduler.call_later(self._settings.rebalance_backoff_ms * _EARLY, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._running = False
        self._rebalance_if_wanted()

    def _ended(self, failure: ConsumerRebalanceFailed | None = None) -> None:
        self._running = False
        first, self._first = self._first, None
        if first is not None:
            first(failure)
        self._rebalance_if_wanted()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_idle(self, idle: tuple[str, ...]) -> None:
        for thread in idle:
            if thread not in self._idle:
                self._report(f"no partition is left for {thread}: it waits")
        self._idle = idle
