"""Contract suite for partitioners."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.client.producer.partitioner import Partitioner

inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
keys = st.none() | st.binary(max_size=40)


class _Dice:
    """Fulfils `ports.entropy.Entropy`, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)


class PartitionerContract:
    """Inherit, and give `make`; `by_key` says whether equal keys always meet."""

    by_key = False

    def make(self) -> Partitioner:
        raise NotImplementedError

    def _started(self, seed: int = 1) -> Partitioner:
        partitioner = self.make()
        partitioner.start(_Dice(seed))
        return partitioner

    @inherited
    @given(keys, st.integers(1, 50), st.data())
    def test_the_partition_exists(self, key: bytes | None, partitions: int, data: st.DataObject) -> None:
        available = data.draw(st.lists(st.integers(0, partitions - 1), min_size=1, unique=True).map(sorted))
        partitioner = self._started()
        for _ in range(3):
            chosen = partitioner.partition("topic", key, b"value", partitions, available)
            assert type(chosen) is int
            assert 0 <= chosen < partitions
            partitioner.next_batch("topic", chosen)

    @inherited
    @given(st.binary(min_size=1, max_size=40), st.integers(1, 50))
    def test_equal_keys_have_one_partition_for_all_producers(self, key: bytes, partitions: int) -> None:
        if not self.by_key:
            return
        one, other = self._started(1), self._started(2)
        everything, few = range(partitions), [partitions - 1]
        chosen = one.partition("topic", key, b"a", partitions, everything)
        assert other.partition("topic", key, b"b", partitions, few) == chosen

    def test_without_keys_every_partition_gets_its_share(self) -> None:
        partitioner = self._started()
        counts = [0] * 4
        for number in range(4000):
            key = b"%d" % number if self.by_key else None
            chosen = partitioner.partition("topic", key, b"", 4, range(4))
            counts[chosen] += 1
            partitioner.next_batch("topic", chosen)
        assert min(counts) > 700

    def test_without_keys_only_available_partitions_are_chosen(self) -> None:
        partitioner = self._started()
        chosen = set()
        for _ in range(100):
            chosen.add(partitioner.partition("topic", None, b"", 4, [1, 3]))
            partitioner.next_batch("topic", max(chosen))
        if self.spreads_none:
            assert chosen <= {1, 3}

    spreads_none = True
