"""A cluster under a seeded clock, network and disk, with the faults that real ones have: for tests of your own code.

See `World`, and docs/simulation.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..adapters.transport_memory import NetworkFaults
    from .broker import SimulatedBroker
    from .disasters import Disasters
    from .network import COORDINATION
    from .program import Program
    from .world import World

_HOMES = {
    "COORDINATION": ".network",
    "Disasters": ".disasters",
    "NetworkFaults": "..adapters.transport_memory",
    "Program": ".program",
    "SimulatedBroker": ".broker",
    "World": ".world",
}

__all__ = ["COORDINATION", "Disasters", "NetworkFaults", "Program", "SimulatedBroker", "World"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
