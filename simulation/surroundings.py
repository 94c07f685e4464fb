"""The surroundings of the machines of a world: time, chance, a network, a coordination service. One seed, one story."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..adapters.coord_memory import MemoryTree
from ..adapters.system import ManualClock, ManualScheduler, SeededEntropy
from ..adapters.transport_memory import NetworkFaults
from ..core.tree.tree import Change
from ..ports.coordination import NoNode
from .network import SimulatedNetwork
from .workers import Work, Workers

LATENCY_MS = 3.0
COORDINATION_MS = 10.0


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
