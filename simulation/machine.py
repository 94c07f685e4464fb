"""One computer of a world: its power, its network, its sessions with the coordination service."""

import copy
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..adapters.coord_memory import MemorySession
from ..core.tree.tree import Tree
from ..ports.coordination import (
    BadVersion,
    Cancel,
    Coordination,
    CoordinationError,
    DeleteNode,
    Node,
    NodeChange,
    SessionState,
)
from ..ports.scheduler import Outcome
from ..ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    ServerTls,
    Transport,
    TransportError,
)
from .interference import Interference, point_of_write
from .life import Life

if TYPE_CHECKING:
    from .surroundings import Surroundings

NOTIFICATION_MS_MAX = 5.0
"""The longest delay of a notification by the coordination service."""


# The network as a process sees it that may stand still.


class _Handler:
    """Hands on what comes over a connection when the process runs."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.handler: ConnectionHandler | None = None

    def on_frame(self, content: memoryview) -> None:
        handler = self.handler
        if self._life.still or handler is None:
            copy = bytearray(content)
            self._life.run(lambda: self.handler.on_frame(memoryview(copy)) if self.handler is not None else None)
        elif self._life.alive:
            self._life.enter(lambda: handler.on_frame(content))

    def on_closed(self, error: TransportError | None) -> None:
        self._life.run(lambda: self.handler.on_closed(error) if self.handler is not None else None)


class HeldTransport:
    """Fulfils `Transport` for a process that may stand still: what comes meanwhile waits."""

    def __init__(self, transport: Transport, life: Life) -> None:
        self._transport = transport
        self._life = life

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        def accepted(connection: Connection) -> ConnectionHandler:
            handler = _Handler(self._life)

            def hand_over() -> None:
                handler.handler = accept(connection)

            self._life.run(hand_over)
            return handler

        return self._transport.listen(address, accepted, limits, tls)

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection | TransportError], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
        tls: ClientTls | None = None,
    ) -> None:
        handler = _Handler(self._life)

        def on_opened(outcome: Connection | TransportError) -> ConnectionHandler | None:
            def hand_over() -> None:
                handler.handler = opened(outcome)
                if handler.handler is None and not isinstance(outcome, TransportError):
                    outcome.close()

            self._life.run(hand_over)
            return handler if self._life.alive else None

        self._transport.connect(address, on_opened, timeout_ms=timeout_ms, limits=limits, tls=tls)


# Sessions with the coordination service of a world: their way there may be cut, and they expire.

T = TypeVar("T")


class SessionFaults:
    """Faults of the sessions of one machine, other than those of their connection."""

    def __init__(self) -> None:
        self.answers_lost_chance = 0.0
        """The probability that the answer to a call is lost, whatever the call has done; the session stays open."""
        self._nodes: Tree | None = None
        self._held: deque[Callable[[], None]] = deque()

    def lag(self, nodes: Tree) -> None:
        """The server that the machine is connected to falls behind: reads show the tree as it is now, and no change is
        reported, until `catch_up`. A server catches up when it has forwarded a write of this machine."""
        if self._nodes is None:
            self._nodes = copy.deepcopy(nodes)

    def catch_up(self) -> None:
        """Report what was held back."""
        self._nodes = None
        held, self._held = self._held, deque()
        for report in held:
            report()

    def report(self, change: Callable[[], None]) -> None:
        """Report the change now, or when the server has caught up."""
        if self._nodes is None:
            change()
        else:
            self._held.append(change)

    @property
    def is_behind(self) -> bool:
        """True from `lag` to `catch_up`."""
        return self._nodes is not None

    def nodes(self, now: Tree) -> Tree:
        """Return the tree that reads show."""
        return now if self._nodes is None else self._nodes


class SimulatedSession:
    """Fulfils `Coordination`: a session of the tree; one that says it blocks lets its users go the way they go with
    ZooKeeper and etcd.

    Its connection may be lost, also between a change and the answer to it, and the session with it.
    """

    def __init__(
        self,
        world: "Surroundings",
        session: MemorySession,
        *,
        blocking: bool,
        faults: SessionFaults | None = None,
        interference: Interference | None = None,
    ) -> None:
        self.blocking = blocking
        self._interference = interference
        self._faults = faults or SessionFaults()
        self.closed = False
        self._world = world
        self._session = session
        self._outages = 0
        self._outage: object | None = None
        self._interruptions = 0
        self._renewed_ms = math.nan
        self._expiry_untold = False
        self._notified_ms = -1.0
        self._stood_still = False
        self._ended_without_outage = False

    # --- Coordination

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._world.writes(path, data)
        self._call(lambda: self._session.create(path, data, ephemeral=ephemeral), paths=(path,))

    def get(self, path: str) -> Node:
        return self._call(lambda: self._read(lambda: self._session.get(path), lambda old: old.get(path)), writes=False)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._call(
            lambda: self._read(lambda: self._session.get_many(paths), lambda old: old.get_many(paths)), writes=False
        )

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        self._world.writes(path, data)
        return self._call(lambda: self._session.set(path, data, version=version), paths=(path,))

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._call(lambda: self._session.delete(path, version=version), paths=(path,))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        for change in changes:
            if not isinstance(change, DeleteNode):
                self._world.writes(change.path, change.data)
        paths = [change.path for change in changes]
        self._call(lambda: self._session.commit(changes, guards=guards), paths=paths)

    def children(self, path: str) -> list[str]:
        return self._call(
            lambda: self._read(lambda: self._session.children(path), lambda old: old.children(path)), writes=False
        )

    def heartbeat(self) -> float:
        if not self.blocking:
            return math.inf

        def renewed() -> float:
            self._session.heartbeat()
            self._renewed_ms = self._world.clock.monotonic_ms()
            return self._world.session_ms

        return self._call(renewed)

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        return self._session.watch_below(path, changed)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        return self._session.watch(path, changed)

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        def notified(state: SessionState) -> None:
            self._notified_ms = self._world.clock.monotonic_ms()
            if state is SessionState.EXPIRED:
                self._expiry_untold = self._ended_without_outage = False
            if state is not SessionState.SUSPENDED:
                self._stood_still = False
            on_state_changed(state)

        return self._session.add_session_listener(notified)

    def close(self) -> None:
        if self._outages:
            self.abandon()
        else:
            self.closed = True
            self._session.close()

    def _read(self, now: Callable[[], T], earlier: Callable[[Tree], T]) -> T:
        """Read from the server that the session is connected to, which may be behind. Raises as `now` does."""
        nodes = self._faults.nodes(self._world.tree.nodes)
        if nodes is self._world.tree.nodes or self._outages or self.closed:
            return now()
        self._world.reached["tree: a read that was out of date"] += 1
        return earlier(nodes)

    def _call(self, operation: Callable[[], T], *, writes: bool = True, paths: Iterable[str] = ()) -> T:
        pause, interference = self._world.workers.pause, self._interference
        point = point_of_write(paths) if interference is not None and interference.is_armed else None
        before = self._interruptions
        pause()
        if interference is not None:
            interference.before(point)
        if before != self._interruptions:
            raise CoordinationError("the connection was lost")
        outcome = Outcome.of(operation)
        if isinstance(outcome.error, BadVersion):
            self._world.reached["tree: a write by an old version"] += 1
        if writes:
            self._faults.catch_up()
        pause()
        if before != self._interruptions:
            self._world.reached["tree: an answer lost with the connection"] += 1
            raise CoordinationError("the connection was lost, and the answer with it")
        if interference is not None and outcome.error is None:
            interference.after(point)
        lost = self._faults.answers_lost_chance
        if lost and self._world.entropy.fraction() < lost:
            self._world.reached["tree: a single answer lost"] += 1
            raise CoordinationError("no answer came in time")
        return outcome.get()

    # --- faults

    @property
    def is_in_the_dark(self) -> bool:
        """True while the user of this session cannot know that it is over.

        A user that only lost the connection knows how long ago, and that nothing is certain after the session timeout;
        a user that stood still meanwhile does not.
        """
        notified_now = self._notified_ms == self._world.clock.monotonic_ms()
        return notified_now or self._stood_still or (self._expiry_untold and not self._outages)

    @property
    def ended_without_outage(self) -> bool:
        """True if the service has ended the session while it was connected, and the user cannot know it yet."""
        return self._ended_without_outage or self._notified_ms == self._world.clock.monotonic_ms()

    @property
    def is_away(self) -> bool:
        """True while there is no way to the service."""
        return bool(self._outages)

    def leave(self, *, may_expire: bool = True) -> None:
        """The connection is lost; for as long as the session's time, and that is over."""
        self._outages += 1
        if self._outages > 1 or self.closed:
            return
        self._interruptions += 1
        self._faults.catch_up()
        self._world.tree.disconnect(self._session)
        outage = self._outage = object()
        if may_expire:
            later = self._world.scheduler.call_later
            later(self._expires_in_ms(), lambda: self.expire() if self._outage is outage else None)

    def come_back(self) -> None:
        """Restore the connection."""
        self._outages -= 1
        if not self._outages and not self.closed:
            self._outage = None
            self._world.tree.reconnect(self._session)

    def stand_still(self) -> None:
        """The user does nothing for a while."""
        self._stood_still = True

    def resume(self) -> None:
        """Continue the user; if the service was connected all the time, it will deliver the notifications."""
        self._stood_still = self.is_away or self._expiry_untold

    def expire(self) -> None:
        """The service gives the session up."""
        if not self.closed:
            self._interruptions += 1
            self._expiry_untold = True
            self._ended_without_outage = not self._outages
            self._world.tree.expire(self._session)

    def abandon(self) -> None:
        """Leave the session without its user; the service was not notified."""
        world = self._world
        if self.closed:
            return
        self.closed = True
        self._outage = None
        if not self.blocking:
            self._session.close()
            return
        world.tree.disconnect(self._session)
        world.abandoned_sessions += 1

        def end() -> None:
            world.abandoned_sessions -= 1
            self._session.close()

        world.scheduler.call_later(self._expires_in_ms(), end)

    def _expires_in_ms(self) -> float:
        """Return the time until a silent session expires: not before the promised time, not later than the session
        timeout.
        """
        session_ms = self._world.session_ms
        if math.isnan(self._renewed_ms):
            return session_ms
        left_ms = max(0.0, self._renewed_ms + session_ms - self._world.clock.monotonic_ms())
        return left_ms + (session_ms - left_ms) * self._world.entropy.fraction()


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
        """Return a session whose callbacks end with the power. Raises `CoordinationError` while the service is down."""
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
        """Cut the machine off from the service for a while; if that is longer than the session timeout, and
        `may_expire`, the session expires.
        """
        for session in self.sessions:
            session.leave(may_expire=may_expire)
            self.world.fault_ends_in(ms, session.come_back)

    def reach_coordination(self, reaches: bool) -> None:
        """Say whether the machine `reaches` the service, until the next call."""
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
