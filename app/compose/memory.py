"""Storage in memory for a broker while it is stopped, and the tree that several brokers of one process share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ports.report import Report
from ..logs import log_report

if TYPE_CHECKING:
    from ...adapters.coord_memory import MemoryTree
    from ...ports.clock import Clock
    from ...ports.coordination import Coordination
    from ...ports.storage import LogDir


def memory_tree(clock: Clock, report: Report = log_report) -> MemoryTree:
    """Return a tree for several brokers. Its maker calls `expire_overdue` to end the sessions without heartbeats."""
    from ...adapters.coord_memory import MemoryTree

    return MemoryTree(clock=clock, report=report)


class MemoryLogDirs:
    """Log folders in memory, for a broker that is stopped and started again."""

    def __init__(self) -> None:
        from ...adapters.storage_memory import MemoryDisk

        self._disk = MemoryDisk()

    def open_log_dirs(self) -> Sequence[LogDir]:
        """Open the only folder, and lock it until it is closed."""
        from ...adapters.storage_memory import MemoryLogDir

        return [MemoryLogDir(self._disk)]

    def crash(self, *, power_cut: bool = False) -> None:
        """Crash the broker that has the folder open: its later writes are lost (see `MemoryDisk.after_crash`)."""
        self._disk = self._disk.after_crash(power_cut=power_cut)


class MemoryStorage(MemoryLogDirs):
    """Log directories and a coordination tree in memory, for a single broker."""

    def __init__(self, report: Report = log_report) -> None:
        from ...adapters.coord_memory import MemoryTree

        super().__init__()
        self._tree = MemoryTree(report=report)

    def open_coordination(self) -> Coordination:
        """Open a new session with the tree."""
        return self._tree.session()
