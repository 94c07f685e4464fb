"""Connections inside one process: for clients beside their broker, for tests, and as the simulated network."""

from .faults import Faults
from .network import MemoryNetwork, MemoryTransport

__all__ = ["Faults", "MemoryNetwork", "MemoryTransport"]
