"""The coordination of a test cluster: one tree, whose sessions end when their broker is not heard of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..app.compose.memory import memory_tree
from ..core.cluster import layout
from ..core.cluster.brokers import live_brokers, stored_controller
from ..core.cluster.topic_store import StoredTopic, read_topics, states_change, write_states
from ..core.cluster.topics import BrokerRegistration, PartitionState
from ..ports.coordination import Coordination
from ..ports.errors import ClosedError

_TICK_S = 0.01
_TICK_MAX_MS = 20.0
_STILL_MAX_S = 20.0
"""The longest wait for a broker that should be heard of."""


class SteadyClock:
    """Fulfils `Clock`: time that passes while this process runs.

    When the machine stands still for a second, so do the sessions, and when it is slow, they are: no broker had a
    chance to be heard of meanwhile. On a busy machine a broker's threads may get no turn for longer than a session
    lasts, so time also stands still while a broker is behind that should be heard of.
    """

    def __init__(self) -> None:
        self._passed_ms = 0.0
        self._seen = self._passed = time.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return milliseconds that have passed."""
        return self._passed_ms

    def tick(self, *, is_behind: bool) -> None:
        """Let time pass, unless a broker is behind; one thread only."""
        seen = time.monotonic()
        if not is_behind or seen - self._passed > _STILL_MAX_S:
            self._passed_ms += min((seen - self._seen) * 1000, _TICK_MAX_MS)
        if not is_behind:
            self._passed = seen
        self._seen = seen


class ClusterTree:
    """The tree, the thread that ends sessions, and what the test itself reads there. Thread-safe."""

    def __init__(self, session_timeout_ms: float, report: Callable[[str], None]) -> None:
        self.clock = SteadyClock()
        """The clock of the sessions, of the leases that brokers have on them, and of how long followers lag."""
        self._session_timeout_ms = session_timeout_ms
        self._report = report
        self.nodes = memory_tree(self.clock, report)
        """The tree itself, with the faults that its sessions can have."""
        self._own: Coordination = self.nodes.session()
        self._sessions: list[TreeSession] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def session(self, deliver: Callable[[Callable[[], None]], None]) -> TreeSession:
        """Return the session of one life of a broker; `deliver` runs its callbacks."""
        made = TreeSession(self, deliver, self._session_timeout_ms)
        self._sessions.append(made)
        return made

    def forget(self, session: TreeSession) -> None:
        """Expect nothing more of the session of a life that has ended."""
        with suppress(ValueError):
            self._sessions.remove(session)

    def start(self) -> None:
        """Let time pass. Twice is harmless."""
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._run, name="barnabas-test-coordination", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Let time stand still. Twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._over.set()
            thread.join()

    def topic(self, name: str) -> StoredTopic | None:
        """Return the stored state of a topic; None: there is no such topic."""
        found = read_topics(self._own, [name], self._report).get(name)
        return None if found is None or found.topic is None or found.deleting else found

    def brokers(self) -> list[BrokerRegistration]:
        """Return the registered brokers."""
        return live_brokers(self._own, self._report)

    def controller(self) -> int | None:
        """Return the broker that elects leaders; None while there is none."""
        found = stored_controller(self._own, self._report)
        return None if found is None else found.broker_id

    def set_state(self, stored: StoredTopic, partition: int, state: PartitionState) -> None:
        """Write the state of a partition unless it was changed meanwhile. Raises `BadVersion`."""
        assert stored.topic is not None
        node = layout.states_node(partition)
        states = {**stored.states, partition: state}
        write_states(self._own, [states_change(stored.topic, node, states, stored.states_versions.get(node))])

    def _run(self) -> None:
        while not self._over.wait(_TICK_S):
            self.clock.tick(is_behind=any(each.is_behind for each in tuple(self._sessions)))
            self.nodes.expire_overdue()


class TreeSession:
    """One session, and the faults that it can have."""

    def __init__(self, tree: ClusterTree, deliver: Callable[[Callable[[], None]], None], timeout_ms: float) -> None:
        self._nodes = tree.nodes
        self._timeout_ms = timeout_ms
        self._is_cut = False
        self.is_paused = False
        """True while its broker stands still."""
        self.coordination = tree.nodes.session(deliver=deliver, session_timeout_ms=timeout_ms)

    @property
    def is_behind(self) -> bool:
        """True if the service should have heard of the broker by now, and has not."""
        return not (self._is_cut or self.is_paused) and self.coordination.left_ms < self._timeout_ms / 2

    def expire(self) -> None:
        """The service ends the session, and says so."""
        self._nodes.expire(self.coordination)

    def cut(self) -> None:
        """Make the service unreachable; after its timeout the session ends."""
        self._is_cut = True
        with suppress(ClosedError):  # it has ended in order
            self._nodes.disconnect(self.coordination)

    def mend(self) -> None:
        """Undo `cut`."""
        self._is_cut = False
        self._nodes.reconnect(self.coordination)
