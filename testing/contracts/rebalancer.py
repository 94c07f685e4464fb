"""Contract suite for rebalancers of the classic generation."""

import random
from collections.abc import Mapping, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.classic.rebalancer import Rebalancer
from ...core.classic.registry.layout import BrokerPartition, thread_id

inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
counts = st.dictionaries(st.integers(0, 120), st.integers(0, 15), max_size=8)
members = st.dictionaries(st.text("ab-019\uffff\U0001f600", min_size=1, max_size=5), st.integers(1, 3), max_size=6)


def places_of(partitions: Mapping[int, int]) -> list[BrokerPartition]:
    """Broker → how many partitions it has, as the partitions."""
    return [BrokerPartition(broker, number) for broker, count in partitions.items() for number in range(count)]


def threads_of(streams: Mapping[str, int]) -> list[str]:
    """Consumer → how many streams it has, as the names of the streams; two consumers never share one."""
    return sorted({thread_id(consumer, number) for consumer, count in streams.items() for number in range(count)})


class RebalancerContract:
    """Inherit, and give `make`; `even` says whether shares differ by one partition at most."""

    even = False

    def make(self) -> Rebalancer:
        raise NotImplementedError

    @inherited
    @given(counts, members)
    def test_every_partition_has_one_owner_of_the_group(
        self, partitions: dict[int, int], streams: dict[str, int]
    ) -> None:
        threads, places = threads_of(streams), places_of(partitions)
        shares = self.make().assign(threads, places)
        assert set(shares) <= set(threads)
        if threads:
            assert sorted(place for found in shares.values() for place in found) == sorted(places)
        if threads and self.even:
            sizes = [len(shares.get(thread, ())) for thread in threads]
            assert max(sizes) - min(sizes) <= 1

    @inherited
    @given(counts, members, st.integers(0, 2**32))
    def test_every_member_comes_to_the_same(
        self, partitions: dict[int, int], streams: dict[str, int], seed: int
    ) -> None:
        """Each has a rebalancer of its own, has read the registries in another order, and may find things twice."""
        threads, places = threads_of(streams), places_of(partitions)
        expected = _owners(self.make().assign(threads, places))
        shuffler = random.Random(seed)
        used = self.make()
        used.assign(threads[:1], places)  # what was decided before does not matter
        for _ in range(2):
            shuffler.shuffle(threads)
            shuffler.shuffle(places)
            assert _owners(used.assign([*threads, *threads[:1]], [*places, *places[:1]])) == expected

    def test_what_it_is_given_is_left_alone(self) -> None:
        threads, places = ["b-0", "a-1", "a-0"], places_of({2: 3, 1: 2})
        given_threads, given_places = tuple(threads), tuple(places)
        self.make().assign(threads, places)
        assert tuple(threads) == given_threads
        assert tuple(places) == given_places


def _owners(shares: Mapping[str, Sequence[BrokerPartition]]) -> dict[BrokerPartition, str]:
    return {place: thread for thread, found in shares.items() for place in found}
