"""Contract suite for sources of randomness."""

from collections import Counter

import pytest

from ...ports.entropy import Entropy


class EntropyContract:
    """Inherit, and give a fixture `entropy`."""

    def test_below_covers_exactly_its_range(self, entropy: Entropy) -> None:
        counts = Counter(entropy.below(6) for _ in range(6000))
        assert set(counts) == set(range(6))
        assert min(counts.values()) > 700

    def test_below_one_is_zero(self, entropy: Entropy) -> None:
        assert entropy.below(1) == 0

    def test_below_nothing_is_an_error(self, entropy: Entropy) -> None:
        with pytest.raises(ValueError):
            entropy.below(0)

    def test_fractions_are_in_the_unit_interval(self, entropy: Entropy) -> None:
        values = [entropy.fraction() for _ in range(2000)]
        assert all(0.0 <= value < 1.0 for value in values)
        assert min(values) < 0.05 < 0.95 < max(values)

    @pytest.mark.parametrize("size", [0, 1, 16, 100])
    def test_tokens_have_their_size(self, entropy: Entropy, size: int) -> None:
        assert len(entropy.token(size)) == size

    def test_tokens_differ(self, entropy: Entropy) -> None:
        assert len({entropy.token(16) for _ in range(100)}) == 100
