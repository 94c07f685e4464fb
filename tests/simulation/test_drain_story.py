"""Brokers are drained and removed while others die, and no promise is broken."""

from collections import Counter

import pytest
from simulation.cluster_story import ClusterStory

KINDS = ("kill", "restart", "partition", "pause", "kill_program", "lose_answers")
ACTS = ("drain", "remove", "write", "elect")


def _played(seed: int, brokers: int = 4) -> Counter[str]:
    story = ClusterStory(seed, brokers=brokers, seconds=15.0, kinds=KINDS, acts=ACTS, every=2.5)
    story.play()
    return story.world.reached


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_drains_under_kills_and_partitions_lose_nothing(number: int) -> None:
    _played(number)


@pytest.mark.slow
def test_some_seeds_drain_a_broker_and_remove_it() -> None:
    reached: Counter[str] = Counter()
    for seed in range(100, 106):
        reached += _played(seed)
        if reached["drain: complete"] and reached["drain: removed"]:
            return
    pytest.fail(f"no broker was drained and removed: {reached}")


@pytest.mark.slow
def test_drain_of_three_brokers_lowers_the_replication_factor() -> None:
    _played(3, brokers=3)
