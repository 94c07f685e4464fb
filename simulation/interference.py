"""Interference at named points of a broker's work: just before or after a call of a port, where a fault is rare."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..core.cluster import layout
from ..core.log.names import DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from ..ports.coordination import CoordinationError
from ..ports.errors import ClosedError
from .coroutine_thread import Killed

if TYPE_CHECKING:
    from .surroundings import Surroundings

LATE_MS = 1500.0
"""A late call of the coordination service waits for up to this time between the decision and the write."""
_BELOW = {
    "a topic": layout.TOPICS,
    "partition states": layout.STATES,
    "a deleted topic": layout.DELETED,
    "a registration": layout.BROKER_IDS,
    "the controller": layout.CONTROLLER,
    "producer ids": layout.PRODUCER_IDS,
}
_WRITE = ("is refused", "is late", "has no answer", "kill before", "kill after")
_FILE = ("kill before", "kill after")
COORDINATOR_LOGS = ("__consumer_offsets-", "__transaction_state-")
POINTS: dict[str, tuple[str, ...]] = {
    **{f"write of {what}": _WRITE for what in _BELOW},
    "swap of a cleaned segment": _FILE,
    "deletion of a segment": _FILE,
    "deletion of a folder": _FILE,
    "write of a checkpoint": _FILE,
    "append to a coordinator's log": ("session expires", "kill after"),
}
"""By point: what may happen there."""


def point_of_write(paths: Iterable[str]) -> str | None:
    """Return the point at which these nodes are written in one commit."""
    names = list(paths)
    for what, root in _BELOW.items():
        if any(path == root or path.startswith(f"{root}/") for path in names):
            return f"write of {what}"
    return None


def point_of_rename(old: str, new: str) -> str | None:
    """Return the point at which a file gets another name."""
    if SWAP_SUFFIX in (old[-len(SWAP_SUFFIX) :], new[-len(SWAP_SUFFIX) :]):
        return "swap of a cleaned segment"
    return "deletion of a segment" if new.endswith(DELETED_SUFFIX) else None


def point_of_append(folder: str, name: str) -> str | None:
    """Return the point at which something is appended to a file."""
    is_coordinators = folder.startswith(COORDINATOR_LOGS) and name.endswith(LOG_SUFFIX)
    return "append to a coordinator's log" if is_coordinators else None


class Interference:
    """A list of what is to happen when one broker comes to a point, once. It costs nothing until it is armed.

    kill:   ends the process of the broker.
    expire: lets the coordination service end its sessions.
    """

    def __init__(
        self, world: "Surroundings", name: str, *, kill: Callable[[str], None], expire: Callable[[], None]
    ) -> None:
        self._world, self._name = world, name
        self._kill, self._expire = kill, expire
        self._armed: dict[str, tuple[str, Callable[[], None]]] = {}

    @property
    def is_armed(self) -> bool:
        """True if something is to happen somewhere."""
        return bool(self._armed)

    def arm(self, point: str, act: str, struck: Callable[[], None] = lambda: None) -> None:
        """Let the act of `POINTS` happen at the point. `struck` is called when the process has been killed there."""
        assert act in POINTS[point], act
        self._armed[point] = act, struck

    def disarm(self, point: str | None = None) -> None:
        """Let nothing happen at the point, or at any point."""
        if point is None:
            self._armed.clear()
        else:
            self._armed.pop(point, None)

    def before(self, point: str | None) -> None:
        """Call this before the work. Raises what the work is to raise instead."""
        if self._armed and point in self._armed:
            act = self._armed[point][0]
            if act == "kill before":
                self._kill_at(point)
            elif act == "is refused":
                self._strike(point)
                raise CoordinationError("no connection for this call")
            elif act == "is late" and self._world.workers.is_working:
                self._strike(point)
                self._world.workers.wait(LATE_MS * self._world.entropy.fraction())

    def after(self, point: str | None) -> None:
        """Call this after the work. Raises what the work is to raise in place of its result."""
        if self._armed and point in self._armed:
            act = self._armed[point][0]
            if act == "kill after":
                self._kill_at(point)
            elif act == "has no answer":
                self._strike(point)
                raise CoordinationError("no answer came in time")
            elif act == "session expires":
                self._strike(point)
                self._world.scheduler.call_soon(self._expire)

    def _strike(self, point: str) -> Callable[[], None]:
        act, struck = self._armed.pop(point)
        self._world.report(f"--- {self._name}, {point}: {act}")
        self._world.reached[f"point: {point}: {act}"] += 1
        return struck

    def _kill_at(self, point: str) -> None:
        """End the process here: nothing that it does from now on has an effect."""
        works = self._world.workers.is_working
        struck = self._strike(point)
        self._kill(f"is killed at the {point}")
        struck()
        if works:
            self._world.workers.kill_current()
            raise ClosedError("the process was killed")  # it travels to a callback that never runs
        raise Killed
