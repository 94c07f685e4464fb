"""The clock, entropy, disk, remote storage and coordination tree of a broker that a test drives by hand."""

from ..adapters.coord_memory import MemoryTree
from ..adapters.metrics_memory import MemoryMetrics
from ..adapters.remote_memory import MemoryRemoteStorage
from ..adapters.storage_memory import MemoryDisk, MemoryLogDir
from ..adapters.system import ManualClock, ManualScheduler, SeededEntropy
from ..adapters.transport_memory import MemoryNetwork

__all__ = [
    "ManualClock",
    "ManualScheduler",
    "MemoryDisk",
    "MemoryLogDir",
    "MemoryMetrics",
    "MemoryNetwork",
    "MemoryRemoteStorage",
    "MemoryTree",
    "SeededEntropy",
]
