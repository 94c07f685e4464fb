"""Randomness."""

import pytest

from barnabas.adapters.system import SeededEntropy, SystemEntropy
from barnabas.testing.contracts.entropy import EntropyContract


class TestSystemEntropy(EntropyContract):
    @pytest.fixture
    def entropy(self) -> SystemEntropy:
        return SystemEntropy()


class TestSeededEntropy(EntropyContract):
    @pytest.fixture
    def entropy(self) -> SeededEntropy:
        return SeededEntropy(11)

    def test_a_seed_gives_the_same_values(self) -> None:
        one, other = SeededEntropy(5), SeededEntropy(5)
        assert [one.below(1000) for _ in range(10)] == [other.below(1000) for _ in range(10)]
        assert one.token(8) == other.token(8)
        assert one.fraction() == other.fraction()

    def test_different_seeds_give_different_tokens(self) -> None:
        assert SeededEntropy(5).token(16) != SeededEntropy(6).token(16)

    def test_children_are_independent_of_what_others_draw(self) -> None:
        one, other = SeededEntropy(5), SeededEntropy(5)
        other.token(100)
        assert one.child("network").token(16) == other.child("network").token(16)
        assert one.child("network").token(16) != one.child("disk").token(16)
