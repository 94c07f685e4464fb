"""Clusters with a topic of many partitions; `make sim STORY=partitions` plays more of them."""

import pytest
from simulation.cluster_checker import Broken
from simulation.cluster_mutations import Mutation
from simulation.partitions_story import PartitionsStory

from barnabas.core.cluster import layout
from barnabas.core.cluster.registry import ClusterRegistry


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_partitions_story_holds_for_seed(number: int) -> None:
    PartitionsStory(number).play()


def writes_all_states_into_one_node(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layout, "states_node", lambda _partition: 0)
    patch.setattr(layout, "partitions_of_node", lambda _node: range(1_000))


def writes_the_first_commit_of_a_change_only(patch: pytest.MonkeyPatch) -> None:
    """A change that takes several commits is taken for done after the first."""
    portions = ClusterRegistry._portions
    patch.setattr(ClusterRegistry, "_portions", lambda *arguments: list(portions(*arguments))[:1])


@pytest.mark.slow
def test_the_story_finds_states_that_do_not_fit_into_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    writes_all_states_into_one_node(monkeypatch)
    with pytest.raises(Broken, match="a node holds at most"):
        for seed in range(3):
            PartitionsStory(seed, kinds=("kill_all", "kill", "restart"), acts=("elect",)).play()


@pytest.mark.slow
def test_the_story_finds_a_change_of_which_only_the_first_commit_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    says = frozenset({"liveness", "leaderless"})
    kinds = ("kill_all", "kill", "restart")
    Mutation(writes_the_first_commit_of_a_change_only, says, kinds, story=PartitionsStory).find(monkeypatch)
