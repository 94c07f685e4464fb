"""One computer of a world: its power, its network, its sessions with the coordination service."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ports.coordination import Coordination, CoordinationError
from ..ports.transport import Transport
from .held_transport import HeldTransport
from .interference import Interference
from .life import Life
from .session import SessionFaults, SimulatedSession

if TYPE_CHECKING:
    from .surroundings import Surroundings

NOTIFICATION_MS_MAX = 5.0
"""The longest delay of a notification by the coordination service."""


class Machine:
    """A machine of the world. Its processes end when its power is cut; its sessions then expire after their timeout."""

    def __init__(self, world: "Surroundings", name: str, *, session_blocks: bool = True) -> None:
        """`session_blocks`: the service is on another machine, not in this process."""
        self.world: Surroundings = world
        self.name = name
        self.life = Life(world.scheduler, world.workers)
        self.sessions: list[SimulatedSession] = []
        self.session_faults = SessionFaults()
        self.interference: Interference | None = None
        self._session_blocks = session_blocks
        self._cut_off = False

    def session(self) -> Coordination:
        """A session whose callbacks end with the power. Raises `CoordinationError` while the service is down."""
        if self.world.service_is_down or self._cut_off:
            raise CoordinationError("the service is down")
        life, faults = self.life, self.session_faults

        def deliver(callback: Callable[[], None]) -> None:
            delay_ms = self.world.entropy.fraction() * NOTIFICATION_MS_MAX

            def notify() -> None:
                if faults.is_behind:
                    faults.report(report)  # it reports changes made since, too, which no read shows yet
                else:
                    callback()

            def report() -> None:
                self.world.scheduler.call_later(delay_ms, lambda: life.run(notify))

            faults.report(report)

        self.sessions = [each for each in self.sessions if not each.closed]
        self.sessions.append(
            SimulatedSession(
                self.world,
                self.world.tree.session(deliver=deliver),
                blocking=self._session_blocks,
                faults=faults,
                interference=self.interference,
            )
        )
        return self.sessions[-1]

    def transport(self) -> Transport:
        """Return a transport in the network, for the process that runs on it now."""
        return HeldTransport(self.world.network.transport(self.name), self.life)

    def cut_power(self) -> None:
        """Everything stops; the coordination service finds out when the session has not been heard of for its time."""
        self.life.alive = False
        self.world.network.crash(self.name)
        for session in self.sessions:
            session.abandon()
        self.sessions = []

    def switch_on(self) -> None:
        """A new life begins."""
        self.life = Life(self.world.scheduler, self.world.workers)
        self.session_faults = SessionFaults()

    def expire(self) -> None:
        """Let the service end the sessions of the machine, which keeps running."""
        for session in self.sessions:
            if not session.is_away:  # it would have to wait for its time
                session.expire()

    def lose_coordination(self, ms: float, *, may_expire: bool = True) -> None:
        """Cut the machine off from the service for a while; if that is longer than the session timeout, the session
        expires.
        """
        for session in self.sessions:
            session.leave(may_expire=may_expire)
            self.world.fault_ends_in(ms, session.come_back)

    def reach_coordination(self, reaches: bool) -> None:
        """Say whether the machine can reach the service, until the next call."""
        if self._cut_off is reaches:
            self._cut_off = not reaches
            for session in self.sessions:
                session.come_back() if reaches else session.leave()

    def get_stuck(self, ms: float) -> None:
        """The thread that does the work waits for a disk; what keeps the session has a thread of its own."""
        life = self.life
        if not life.still and life.alive:
            life.stand_still()
            self.world.fault_ends_in(ms, life.resume)

    def stand_still(self, ms: float, again_ms: float = 0.0) -> None:
        """Stop the process and continue it later; if that is longer than the session timeout, the session expires.

        The process is notified of that `again_ms` after it continues.
        """
        life = self.life
        if life.still or not life.alive:
            return
        life.stand_still()
        for session in self.sessions:
            session.stand_still()
            self.world.fault_ends_in(ms, session.resume)
        self.world.fault_ends_in(ms, life.resume)
        if ms > self.world.session_ms:
            for session in self.sessions:
                session.leave()
                self.world.fault_ends_in(ms + again_ms, session.come_back)
