"""Transactions and compaction in clusters under seeded disasters: readers of committed messages get them whole, once,
and the last of every key; `make sim STORY=billing` plays more seeds. Bugs that are put in are found."""

import pytest
from simulation.billing_mutations import MUTATIONS
from simulation.billing_story import BillingStory
from simulation.cluster_mutations import Mutation, by_cost


def test_billing_story_preserves_committed_messages_under_disasters(billing_seed: int) -> None:
    story = BillingStory(billing_seed)
    story.play()
    assert story.ledger.committed


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
