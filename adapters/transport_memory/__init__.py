"""Connections inside one process: for clients beside their broker, for tests, and as the simulated network."""

from .faults import NetworkFaults
from .network import MemoryNetwork, MemoryTransport, PretendedTls

__all__ = ["NetworkFaults", "MemoryNetwork", "MemoryTransport", "PretendedTls"]
