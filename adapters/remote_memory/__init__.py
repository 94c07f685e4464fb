"""Remote storage in memory, for tests: `memory://NAME` names one for all brokers of this process."""

from .memory import MemoryRemoteStorage, open_memory_remote_storage

__all__ = ["MemoryRemoteStorage", "open_memory_remote_storage"]
