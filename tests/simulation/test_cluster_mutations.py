"""The story of a cluster finds bugs: each of `MUTATIONS` is one, and some seed shows it."""

import pytest
from simulation.cluster_mutations import MUTATIONS, Mutation, by_cost


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
