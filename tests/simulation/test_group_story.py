"""Seeded disasters with a group: members come, go and vanish; the broker loses its power, its disk, its connections.

An acknowledged commit is never lost; no two members of one generation own the same partition, and no commit of a member
is accepted after another one got its partition; soon after the last disaster the group has agreed. A failing seed
replays: `pytest tests/simulation -k "group and 17"`. Bugs that are put in are found.
"""

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.consumer_group_story import ConsumerGroupStory
from simulation.group_mutations import MUTATIONS
from simulation.group_story import GroupStory


def test_groups_agree_and_forget_nothing(seed: int) -> None:
    GroupStory(seed).play()


def test_consumer_groups_agree_and_forget_nothing(seed: int) -> None:
    ConsumerGroupStory(seed).play()


def test_the_same_seed_plays_the_same_group_story() -> None:
    def trace() -> tuple[object, ...]:
        story = GroupStory(3)
        story.play()
        return (story.world.clock.monotonic_ms(), story.book)

    assert trace() == trace()


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_group_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
