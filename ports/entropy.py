"""Randomness, from outside."""

from typing import Protocol


class Entropy(Protocol):
    """Random values; from a seed in tests and in the simulation. Callable from any thread."""

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound); `bound` ≥ 1."""
        ...

    def fraction(self) -> float:
        """Return a uniform number in [0, 1)."""
        ...

    def token(self, size: int) -> bytes:
        """`size` random bytes, for identifiers."""
        ...
