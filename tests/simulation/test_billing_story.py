"""Transactions and compaction in clusters under seeded disasters: readers of committed messages get them whole, once,
and the last of every key; `make sim STORY=billing` plays more seeds. Bugs that are put in are found."""

import pytest
from simulation.billing_mutations import MUTATIONS
from simulation.billing_story import BillingStory
from simulation.cluster_mutations import Mutation
from support.long_tests import first_is_quick

from barnabas.simulation import Disasters

SEEDS = 15


def test_billing_story(billing_seed: int) -> None:
    story = BillingStory(billing_seed)
    story.play()
    assert story.ledger.committed


@pytest.mark.parametrize("mutation", first_is_quick(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.make(monkeypatch)
    said = []
    for seed in range(SEEDS):
        try:
            BillingStory(seed, kinds=mutation.kinds or Disasters.KINDS).play()
        except AssertionError as error:
            said.append(str(error))
            if said[-1].partition(":")[0] in mutation.says:
                return
    pytest.fail(f"{SEEDS} seeds do not find it; they say {said}")
