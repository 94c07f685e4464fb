"""Connections inside one process: for clients beside their broker, for tests, and as the simulated network."""

from .faults import NetworkFaults
from .network import MemoryNetwork, MemoryTransport

__all__ = ["NetworkFaults", "MemoryNetwork", "MemoryTransport"]
