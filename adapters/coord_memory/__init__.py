"""The coordination tree in the memory of one process: for `Broker(coordination="memory")`, tests and the simulation."""

from .session import MemorySession
from .tree import MemoryTree

__all__ = ["MemorySession", "MemoryTree"]
