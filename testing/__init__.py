"""A Kafka broker, or a cluster of them, for tests: in the process, in memory, with faults on demand; and
what a broker is made of, to be driven by hand (docs/unit-testing.md).

The names below are loaded on first use; the fixtures of pytest are in `pytest_plugin`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.message.message import Message
    from .broker import TEST_DEFAULTS, JumpingClock, TestBroker
    from .by_hand import (
        ManualClock,
        ManualScheduler,
        MemoryDisk,
        MemoryLogDir,
        MemoryMetrics,
        MemoryRemoteStorage,
        MemoryTree,
        SeededEntropy,
    )
    from .cluster import CLUSTER_DEFAULTS, COORDINATION, ClusterBroker, TestCluster
    from .faults import Fault, Faults
    from .manual_broker import ManualBroker
    from .produced import assert_produced

_HOMES = {
    "CLUSTER_DEFAULTS": ".cluster",
    "COORDINATION": ".cluster",
    "ClusterBroker": ".cluster",
    "Fault": ".faults",
    "Faults": ".faults",
    "JumpingClock": ".broker",
    "ManualBroker": ".manual_broker",
    "ManualClock": ".by_hand",
    "ManualScheduler": ".by_hand",
    "MemoryDisk": ".by_hand",
    "MemoryLogDir": ".by_hand",
    "MemoryMetrics": ".by_hand",
    "MemoryRemoteStorage": ".by_hand",
    "MemoryTree": ".by_hand",
    "Message": "..core.message.message",
    "SeededEntropy": ".by_hand",
    "TEST_DEFAULTS": ".broker",
    "TestBroker": ".broker",
    "TestCluster": ".cluster",
    "assert_produced": ".produced",
}

__all__ = [
    "CLUSTER_DEFAULTS",
    "COORDINATION",
    "ClusterBroker",
    "Fault",
    "Faults",
    "JumpingClock",
    "ManualBroker",
    "ManualClock",
    "ManualScheduler",
    "MemoryDisk",
    "MemoryLogDir",
    "MemoryMetrics",
    "MemoryRemoteStorage",
    "MemoryTree",
    "Message",
    "SeededEntropy",
    "TEST_DEFAULTS",
    "TestBroker",
    "TestCluster",
    "assert_produced",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with import_module("..app.background", __name__).loading("a test broker"):
        value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
