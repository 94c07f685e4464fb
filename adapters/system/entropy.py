"""Randomness from the machine, and from a seed."""

import os


class SystemEntropy:
    """Fulfils `Entropy`: all values come from the system, without the module `random`, which takes 0.2 MB."""

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        if bound <= 0:
            raise ValueError(f"no integer is in [0, {bound})")
        return int.from_bytes(os.urandom(16)) % bound

    def fraction(self) -> float:
        """Return a uniform number in [0, 1)."""
        return (int.from_bytes(os.urandom(8)) >> 11) / (1 << 53)

    def token(self, size: int) -> bytes:
        """Return `size` unpredictable random bytes."""
        return os.urandom(size)


class SeededEntropy:
    """Fulfils `Entropy`; the same seed gives the same values on every machine."""

    def __init__(self, seed: int | str) -> None:
        from random import Random

        self._seed = seed
        self._random = Random(seed)

    def below(self, bound: int) -> int:
        """Return the next uniform integer in [0, bound)."""
        return self._random.randrange(bound)

    def fraction(self) -> float:
        """Return the next uniform number in [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return self._random.randbytes(size)

    def child(self, name: str) -> "SeededEntropy":
        """Return an independent stream of values for one part of a simulation: what others draw does not change it."""
        return SeededEntropy(f"{self._seed}/{name}")
