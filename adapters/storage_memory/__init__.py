"""Logs in memory: the same contract as the file system, for tests and for brokers that keep nothing."""

from .memory import MemoryDisk, MemoryLogDir

__all__ = ["MemoryDisk", "MemoryLogDir"]
