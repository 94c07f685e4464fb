"""Seeded disasters with a group: members come, go and vanish; the broker loses its power, its disk, its connections.
In a cluster the coordinator moves. Members of both protocols share a group, which is converted as they come and go.

An acknowledged commit is never lost; no two members of one generation own the same partition, and no commit of a member
is accepted after another one got its partition; soon after the last disaster the group has agreed, and then its members
stay in it when their coordinator is restarted. Bugs that are put in are found. A failing seed replays:
`pytest tests/simulation -k "group and 17"`.
"""

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.consumer_group_story import ConsumerGroupStory
from simulation.group_mutations import MUTATIONS
from simulation.group_story import GroupStory
from support.long_tests import first_is_quick


def test_groups_agree_and_forget_nothing(seed: int) -> None:
    GroupStory(seed).play()


def test_consumer_groups_agree_and_forget_nothing(seed: int) -> None:
    ConsumerGroupStory(seed).play()


@pytest.mark.parametrize("brokers", first_is_quick([1, 3]))
def test_members_of_both_protocols_and_patterns_agree_and_forget_nothing(brokers: int) -> None:
    ConsumerGroupStory(1, brokers=brokers, mixed=True, patterns=True).play()


@pytest.mark.slow
def test_partitions_added_while_a_static_leader_is_away_get_a_reader() -> None:
    """The leader comes back and skips the assignment; the seed found partitions that were assigned to no member."""
    ConsumerGroupStory(863).play()


def test_the_same_seed_plays_the_same_group_story() -> None:
    def trace() -> tuple[object, ...]:
        story = GroupStory(3)
        story.play()
        return (story.world.clock.monotonic_ms(), story.book)

    assert trace() == trace()


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_group_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
