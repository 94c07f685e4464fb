"""Randomness from the machine, and from a seed."""

import os
import random


class SystemEntropy:
    """Fulfils `Entropy`: tokens come from the system, other values from a generator that the system seeded."""

    def __init__(self) -> None:
        self._random = random.Random()

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound)."""
        return self._random.randrange(bound)

    def fraction(self) -> float:
        """A uniform number in [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """Return `size` unpredictable random bytes."""
        return os.urandom(size)


class SeededEntropy:
    """Fulfils `Entropy`; the same seed gives the same values on every machine."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        """The next uniform integer in [0, bound)."""
        return self._random.randrange(bound)

    def fraction(self) -> float:
        """The next uniform number in [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """The next `size` bytes."""
        return self._random.randbytes(size)

    def child(self, name: str) -> "SeededEntropy":
        """An independent stream of values for one part of a simulation: what others draw does not change it."""
        return SeededEntropy(f"{self._seed}/{name}")
