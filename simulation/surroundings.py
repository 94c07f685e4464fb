"""The surroundings of the machines of a world: time, chance, a network, a coordination service. One seed, one story."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..adapters.coord_memory import MemoryTree
from ..adapters.system import ManualClock, ManualScheduler, SeededEntropy
from ..adapters.transport_memory import NetworkFaults
from ..core.security.sasl.client import SaslFactory
from ..core.tree.tree import Change
from ..ports.coordination import NoNode
from ..ports.entropy import Entropy
from ..ports.errors import ClosedError
from ..ports.remote_storage import RemoteStorage
from ..ports.scheduler import Outcome
from .coroutine_thread import CoroutineThread, Killed
from .life import Life
from .network import SimulatedNetwork

LATENCY_MS = 3.0
COORDINATION_MS = 10.0


# Work off the reactor: it takes simulated time, and may wait in its middle.

Work = Callable[[], Any]


class _Worker:
    """A thread for one work after the other."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.outcome: Outcome[Any] | None = None
        self.wait_ms = 0.0
        self.killed = False
        self._thread = CoroutineThread(self._run, "simulated-worker")

    def step(self) -> None:
        self._thread.step()

    def wait(self, ms: float) -> None:
        """Called by the thread itself."""
        self.wait_ms = ms
        self._thread.wait()
        if self.killed:
            raise ClosedError("the power was cut")

    def end(self) -> None:
        """End an idle worker."""
        self._thread.kill()

    def _run(self) -> None:
        while True:
            work = self.work
            assert work is not None
            try:
                self.outcome = Outcome(value=work())
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001  # it travels to `done`
                self.outcome = Outcome(error=error)
            self._thread.wait()


def _never(_work: Work) -> bool:
    return False


class Workers:
    """Offloaded work: it begins and ends after some time, and calls in it may let others go first."""

    def __init__(
        self,
        scheduler: ManualScheduler,
        entropy: Entropy,
        *,
        wait_ms_max: float,
        waits: float = 0.0,
        waits_within: Callable[[Work], bool] = _never,
    ) -> None:
        """`waits_within`: the works that may wait in their middle, which need a thread for that; `waits`: how likely
        each of their calls waits, on its way there and on its way back."""
        self._scheduler = scheduler
        self._entropy = entropy
        self._wait_ms_max = wait_ms_max
        self._waits = waits
        self._waits_within = waits_within
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, None] = {}
        self._current: _Worker | None = None

    def start(self, life: Life, work: Work, done: Callable[[Outcome[Any]], None]) -> None:
        """Do the work for a process, then call `done` with the outcome: both only while the process runs."""
        if not self._waits or not self._waits_within(work):

            def run() -> None:
                outcome = Outcome.of(work)
                self._scheduler.call_later(self._some_ms(life), lambda: life.run(lambda: done(outcome)))

            self._scheduler.call_later(self._some_ms(life), lambda: life.run(run))
            return

        def begin() -> None:
            worker = self._idle.pop() if self._idle else _Worker()
            worker.work, worker.outcome, worker.killed = work, None, False
            self._busy[worker] = None
            self._step(life, worker, done)

        self._scheduler.call_later(self._some_ms(life), lambda: life.run(begin))

    def pause(self) -> None:
        """Called by a call of the work: time passes, maybe. Raises `ClosedError` when the power is cut meanwhile."""
        worker = self._current
        if worker is None:
            return
        if worker.killed:
            raise ClosedError("the power was cut")
        if self._entropy.fraction() < self._waits:
            worker.wait(self._some_ms())

    @property
    def is_working(self) -> bool:
        """True within a work that may wait in its middle."""
        return self._current is not None

    def wait(self, ms: float) -> None:
        """Called by a call of the work: let so much time pass. Raises as `pause`."""
        if self._current is not None:
            self._current.wait(ms)

    def kill_current(self) -> None:
        """Called by a call of the work, whose process has been killed: its further calls raise `ClosedError`."""
        if self._current is not None:
            self._current.killed = True

    def close(self) -> None:
        """End all threads."""
        for worker in list(self._busy):
            worker.killed = True
            self._switch(worker)
            self._idle.append(worker)
        self._busy.clear()
        while self._idle:
            self._idle.pop().end()

    def _some_ms(self, life: Life | None = None) -> float:
        more_ms = 0.0 if life is None else life.work_ms_more
        return self._entropy.fraction() * (self._wait_ms_max + more_ms)

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
            self._scheduler.call_later(self._some_ms(life), lambda: life.run(lambda: done(outcome)))
            return

        def resume() -> None:
            if life.alive:
                life.run(lambda: self._step(life, worker, done))
            else:
                worker.killed = True
                self._step(life, worker, done)

        self._scheduler.call_later(worker.wait_ms, resume)


def _nothing_waits(_work: Work) -> bool:
    return False


_BUG = re.compile(r"\b(Assertion|Attribute|Broken|Index|Key|Name|NotImplemented|Runtime|Type|Value)(Error)?: ")
"""Error names that show a bug of the program, as no code raises them on purpose."""


class CountingTree(MemoryTree):
    """Counts what changes in it, and reports each change."""

    changes = 0
    changed: Callable[[Sequence[Change]], None] = staticmethod(lambda _changes: None)
    """Called (settable) after each change, with the lock held."""

    @property
    def session_count(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    def change(self, changes: Iterable[Change]) -> None:
        self.changes += 1
        made = list(changes)
        super().change(made)
        self.changed(made)


class Surroundings:
    """Everything but the machines, and the faults that end by themselves."""

    def __init__(
        self,
        seed: int | str,
        *,
        session_ms: float = 2000.0,
        waits: float = 0.0,
        waits_within: Callable[[Work], bool] = _nothing_waits,
    ) -> None:
        """`session_ms` is the session timeout of the coordination service; for `waits` see `Workers`."""
        self.seed = seed
        self.entropy = SeededEntropy(seed)
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.workers = Workers(
            self.scheduler,
            self.entropy.child("workers"),
            wait_ms_max=COORDINATION_MS,
            waits=waits,
            waits_within=waits_within,
        )
        self.network = SimulatedNetwork(
            self.scheduler,
            self.entropy.child("network"),
            NetworkFaults(latency_ms_max=LATENCY_MS),
            self._report_network,
        )
        self.failures: list[str] = []
        """Callbacks that raised what no callback should: such an error is kept from what called it."""
        self.tree = CountingTree(deliver=self.scheduler.call_soon, report=self.failures.append)
        self.session_ms = session_ms
        self.reports: list[str] = []
        """The log lines of the brokers, and the events that happened to them, each with the time."""
        self.reached: Counter[str] = Counter()
        """Counts of rare states by name: faults that struck, refused calls, and states that checks count."""
        self.given_up: list[str] = []
        """Brokers that ended their process because of an error, after they had started, and why."""
        self.abandoned_sessions = 0
        """Sessions whose user is gone, which the service does not know yet."""
        self.service_is_down = False
        self.remote_storage: RemoteStorage | None = None
        """The remote storage of all brokers; None: there is none."""
        self.remote_ms_max = 50.0
        """The longest time until a call of remote storage begins."""
        self.sasl: SaslFactory | None = None
        """Settable: how programs log in, where the listeners of the brokers have SASL."""
        self.writes: Callable[[str, bytes], None] = lambda _path, _data: None
        """Called with every path and data that a session wants to write into the tree."""
        self._fault_ends: dict[object, Callable[[], None]] = {}

    def report(self, text: str) -> None:
        """Write it down, with the time."""
        self.reports.append(f"{self.clock.monotonic_ms():9.2f} {text}")

    def _report_network(self, text: str) -> None:
        """Report an exception of a connection handler; it costs that connection only, as with TCP."""
        self.report(text)
        self.note_bug(text)

    def note_bug(self, text: str) -> None:
        """A line that names an error of the program, not of its surroundings, is a failure."""
        if _BUG.search(text):
            self.failures.append(text)

    def node(self, path: str) -> bytes | None:
        """Return the data of a node of the tree; None: there is no such node."""
        try:
            return self.tree.nodes.get(path).data
        except NoNode:
            return None

    def fault_ends_in(self, ms: float, end: Callable[[], None]) -> None:
        """Call `end` then, or when all faults are to end."""
        token = object()
        self._fault_ends[token] = end

        def due() -> None:
            if self._fault_ends.pop(token, None) is not None:
                end()

        self.scheduler.call_later(ms, due)

    def end_faults(self) -> None:
        """End all faults that last."""
        ends = list(self._fault_ends.values())
        self._fault_ends.clear()
        for end in ends:
            end()

    def close(self) -> None:
        """End the threads of the world."""
        self.workers.close()
