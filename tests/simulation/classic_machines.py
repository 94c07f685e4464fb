"""Computers of the classic story: their power, the calls that wait for the coordination service, their network."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.adapters.coord_memory import MemorySession
from barnabas.adapters.system import ManualScheduler, SeededEntropy
from barnabas.ports.coordination import (
    Cancel,
    Coordination,
    CoordinationError,
    DeleteNode,
    Node,
    NodeChange,
    SessionState,
)
from barnabas.ports.errors import ClosedError
from barnabas.ports.scheduler import Outcome, Timer
from barnabas.ports.transport import Address, Connection, ConnectionHandler, Limits, Listener, Transport, TransportError

if TYPE_CHECKING:
    from simulation.classic_world import ClassicWorld

TOLD_MS_MAX = 5.0
"""How long the service takes to tell of a change."""

T = TypeVar("T")
Callback = Callable[[], None]


class _LifeTimer:
    """Can be cancelled also after its time, while the life stands still."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


class Life:
    """The scheduler of one process: it ends with the power, and may stand still in between."""

    def __init__(self, scheduler: ManualScheduler, workers: "Workers") -> None:
        self.alive = True
        self._scheduler = scheduler
        self._workers = workers
        self._held: deque[Callback] | None = None

    def run(self, callback: Callback) -> None:
        """Now, or when the process goes on, or never."""
        if not self.alive:
            return
        if self._held is None:
            callback()
        else:
            self._held.append(callback)

    def stand_still(self) -> None:
        if self._held is None:
            self._held = deque()

    def go_on(self) -> None:
        """What became due meanwhile runs now, in its order."""
        held, self._held = self._held, None
        for callback in held or ():
            self.run(callback)

    @property
    def still(self) -> bool:
        return self._held is not None

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        timer = _LifeTimer(callback)
        self._scheduler.call_later(delay_ms, lambda: self.run(timer.fire))
        return timer

    def call_soon(self, callback: Callback) -> None:
        if not self.alive:
            raise ClosedError("the power was cut")
        self._scheduler.call_soon(lambda: self.run(callback))

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        self._workers.start(self, work, done)


class _Worker:
    """A thread that runs only while the thread of the simulation waits for it, and the other way round."""

    def __init__(self) -> None:
        self.work: Callable[[], Any] | None = None
        self.outcome: Outcome[Any] | None = None
        self.wait_ms = 0.0
        self.killed = False
        self._go, self._back = Lock(), Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = Thread(target=self._run, name="simulated-worker", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let the thread run until it waits for something, or has done its work."""
        self._go.release()
        self._back.acquire()

    def wait(self, ms: float) -> None:
        """Called by the thread itself."""
        self.wait_ms = ms
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise ClosedError("the power was cut")

    def end(self) -> None:
        """For an idle one."""
        self.work = None
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            if self.work is None:
                return
            try:
                self.outcome = Outcome(value=self.work())
            except BaseException as error:  # noqa: BLE001  it travels to `done`
                self.outcome = Outcome(error=error)
            self._back.release()


def _is_registry_work(work: Callable[[], Any]) -> bool:
    """Other work asks nothing of the coordination service, and needs no thread to wait in."""
    return getattr(work, "__module__", "").startswith("barnabas.core.classic")


class Workers:
    """Offloaded work that waits for simulated time in its middle, so that other things happen between its calls."""

    def __init__(self, scheduler: ManualScheduler, entropy: SeededEntropy, *, wait_ms_max: float, waits: float) -> None:
        """`waits`: how likely a call waits at all, on its way there and on its way back."""
        self._scheduler = scheduler
        self._entropy = entropy
        self._wait_ms_max = wait_ms_max
        self._waits = waits
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, None] = {}
        self._current: _Worker | None = None

    def start(self, life: Life, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        if not self._waits or not _is_registry_work(work):

            def run() -> None:
                outcome = Outcome.of(work)
                self._scheduler.call_later(self._some_ms(), lambda: life.run(lambda: done(outcome)))

            self._scheduler.call_later(self._some_ms(), lambda: life.run(run))
            return

        def begin() -> None:
            worker = self._idle.pop() if self._idle else _Worker()
            worker.work, worker.outcome, worker.killed = work, None, False
            self._busy[worker] = None
            self._step(life, worker, done)

        self._scheduler.call_later(self._some_ms(), lambda: life.run(begin))

    def pause(self) -> None:
        """Called by a call of the work: time passes, maybe."""
        worker = self._current
        if worker is None:
            return
        if worker.killed:
            raise ClosedError("the power was cut")
        if self._entropy.fraction() < self._waits:
            worker.wait(self._some_ms())

    def close(self) -> None:
        """End all threads."""
        for worker in list(self._busy):
            worker.killed = True
            self._switch(worker)
            self._idle.append(worker)
        self._busy.clear()
        while self._idle:
            self._idle.pop().end()

    def _some_ms(self) -> float:
        return self._entropy.fraction() * self._wait_ms_max

    def _switch(self, worker: _Worker) -> None:
        self._current = worker
        worker.step()
        self._current = None

    def _step(self, life: Life, worker: _Worker, done: Callable[[Outcome[Any]], None]) -> None:
        self._switch(worker)
        outcome = worker.outcome
        if outcome is not None:
            del self._busy[worker]
            self._idle.append(worker)
            self._scheduler.call_later(self._some_ms(), lambda: life.run(lambda: done(outcome)))
            return

        def go_on() -> None:
            if life.alive:
                life.run(lambda: self._step(life, worker, done))
            else:
                worker.killed = True
                self._step(life, worker, done)

        self._scheduler.call_later(worker.wait_ms, go_on)


class RemoteSession:
    """A session of the tree that says it blocks, so that its users go the way they go with ZooKeeper and etcd.

    Its connection may be lost, also between a change and the answer to it, and the session with it.
    """

    blocking = True

    def __init__(self, world: "ClassicWorld", session: MemorySession) -> None:
        self.closed = False
        self._world = world
        self._session = session
        self._outages = 0
        self._outage: object | None = None
        self._interruptions = 0
        self._expiry_untold = False
        self._told_ms = -1.0
        self._stood_still = False

    # --- Coordination

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._world.writes(path, data)
        self._call(lambda: self._session.create(path, data, ephemeral=ephemeral))

    def get(self, path: str) -> Node:
        return self._call(lambda: self._session.get(path))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._call(lambda: self._session.get_many(paths))

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        self._world.writes(path, data)
        return self._call(lambda: self._session.set(path, data, version=version))

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._call(lambda: self._session.delete(path, version=version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        for change in changes:
            if not isinstance(change, DeleteNode):
                self._world.writes(change.path, change.data)
        self._call(lambda: self._session.commit(changes, guards=guards))

    def children(self, path: str) -> list[str]:
        return self._call(lambda: self._session.children(path))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        return self._session.watch_below(path, changed)

    def keep(self) -> float:
        return self._call(self._session.keep)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        return self._session.watch(path, changed)

    def listen(self, state_changed: Callable[[SessionState], None]) -> Cancel:
        def told(state: SessionState) -> None:
            self._told_ms = self._world.clock.monotonic_ms()
            if state is SessionState.EXPIRED:
                self._expiry_untold = False
            if state is not SessionState.SUSPENDED:
                self._stood_still = False
            state_changed(state)

        return self._session.listen(told)

    def close(self) -> None:
        if self._outages:
            self.abandon()
        else:
            self.closed = True
            self._session.close()

    def _call(self, operation: Callable[[], T]) -> T:
        pause = self._world.workers.pause
        before = self._interruptions
        pause()
        if before != self._interruptions:
            raise CoordinationError("the connection was lost")
        result = operation()
        pause()
        if before != self._interruptions:
            raise CoordinationError("the connection was lost, and the answer with it")
        return result

    # --- faults

    @property
    def is_in_the_dark(self) -> bool:
        """True while nobody could have told the user of this session that it is over.

        Who only lost the connection knows how long ago, and that nothing can be known after the session's time; not so
        who stood still meanwhile.
        """
        told_now = self._told_ms == self._world.clock.monotonic_ms()
        return told_now or self._stood_still or (self._expiry_untold and not self._outages)

    @property
    def is_away(self) -> bool:
        return bool(self._outages)

    def leave(self, *, may_expire: bool = True) -> None:
        """The connection is lost."""
        self._outages += 1
        if self._outages > 1 or self.closed:
            return
        self._interruptions += 1
        self._world.tree.disconnect(self._session)
        outage = self._outage = object()
        if may_expire:
            later = self._world.scheduler.call_later
            later(self._world.session_ms, lambda: self.expire() if self._outage is outage else None)

    def come_back(self) -> None:
        """It is made anew."""
        self._outages -= 1
        if not self._outages and not self.closed:
            self._outage = None
            self._world.tree.reconnect(self._session)

    def stand_still(self) -> None:
        """The user does nothing for a while."""
        self._stood_still = True

    def go_on(self) -> None:
        """If the service was there all the time, it will tell what there is to tell."""
        self._stood_still = self.is_away or self._expiry_untold

    def expire(self) -> None:
        """The service gives the session up."""
        if not self.closed:
            self._interruptions += 1
            self._expiry_untold = True
            self._world.tree.expire(self._session)

    def abandon(self) -> None:
        """Its user is gone, and nobody has told the service."""
        world = self._world
        if self.closed:
            return
        self.closed = True
        self._outage = None
        world.tree.disconnect(self._session)
        world.ghosts += 1

        def end() -> None:
            world.ghosts -= 1
            self._session.close()

        world.scheduler.call_later(world.session_ms, end)


class _Handler:
    """Hands on what comes over a connection when the process runs."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.handler: ConnectionHandler | None = None

    def frame(self, content: memoryview) -> None:
        handler = self.handler
        if self._life.still or handler is None:
            copy = bytearray(content)
            self._life.run(lambda: self.handler.frame(memoryview(copy)) if self.handler is not None else None)
        elif self._life.alive:
            handler.frame(content)

    def closed(self, error: TransportError | None) -> None:
        self._life.run(lambda: self.handler.closed(error) if self.handler is not None else None)


class ClientTransport:
    """Fulfils `Transport` for a process that may stand still: what comes meanwhile waits."""

    def __init__(self, transport: Transport, life: Life) -> None:
        self._transport = transport
        self._life = life

    def listen(self, address: Address, accept: Callable[[Connection], ConnectionHandler], limits: Limits) -> Listener:
        return self._transport.listen(address, accept, limits)

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection | TransportError], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
    ) -> None:
        handler = _Handler(self._life)

        def told(outcome: Connection | TransportError) -> ConnectionHandler | None:
            def tell() -> None:
                handler.handler = opened(outcome)
                if handler.handler is None and not isinstance(outcome, TransportError):
                    outcome.close()

            self._life.run(tell)
            return handler if self._life.alive else None

        self._transport.connect(address, told, timeout_ms=timeout_ms, limits=limits)


class Machine:
    """One computer: what runs on it ends when its power is cut; its session then expires in its time."""

    def __init__(self, world: "ClassicWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.life = Life(world.scheduler, world.workers)
        self.sessions: list[RemoteSession] = []

    def session(self) -> Coordination:
        """A session whose callbacks end with the power. Raises `CoordinationError` while the service is down."""
        if self.world.service_is_down:
            raise CoordinationError("the service is down")
        life = self.life

        def deliver(callback: Callback) -> None:
            delay_ms = self.world.entropy.fraction() * TOLD_MS_MAX
            self.world.scheduler.call_later(delay_ms, lambda: life.run(callback))

        self.sessions = [each for each in self.sessions if not each.closed]
        self.sessions.append(RemoteSession(self.world, self.world.tree.session(deliver=deliver)))
        return self.sessions[-1]

    def transport(self) -> Transport:
        return ClientTransport(self.world.network.transport(self.name), self.life)

    def cut_power(self) -> None:
        """Everything stops; the coordination service finds out when the session has not been heard of for its time."""
        self.life.alive = False
        self.world.network.crash(self.name)
        for session in self.sessions:
            session.abandon()
        self.sessions = []

    def switch_on(self) -> None:
        self.life = Life(self.world.scheduler, self.world.workers)

    def expire(self) -> None:
        """The service gives the machine's sessions up, which goes on."""
        for session in self.sessions:
            if not session.is_away:  # it would have to wait for its time
                session.expire()

    def lose_coordination(self, ms: float, *, may_expire: bool = True) -> None:
        """No way to the service for a while; longer than the session's time, and the session is over."""
        for session in self.sessions:
            session.leave(may_expire=may_expire)
            self.world.fault_ends_in(ms, session.come_back)

    def stand_still(self, ms: float, again_ms: float) -> None:
        """The process is stopped, and goes on later: for longer than the session's time, and that is over.

        It hears of that `again_ms` after it goes on.
        """
        life = self.life
        if life.still or not life.alive:
            return
        life.stand_still()
        for session in self.sessions:
            session.stand_still()
            self.world.fault_ends_in(ms, session.go_on)
        self.world.fault_ends_in(ms, life.go_on)
        if ms > self.world.session_ms:
            for session in self.sessions:
                session.leave()
                self.world.fault_ends_in(ms + again_ms, session.come_back)
