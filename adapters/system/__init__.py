"""Time and chance: the machine's, and twins that tests and the simulation drive."""

from .clock import ManualClock, SystemClock
from .entropy import SeededEntropy, SystemEntropy
from .scheduler import ManualScheduler

__all__ = ["ManualClock", "ManualScheduler", "SeededEntropy", "SystemClock", "SystemEntropy"]
