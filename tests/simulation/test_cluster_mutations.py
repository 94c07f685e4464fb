"""The story of a cluster finds bugs: each of `MUTATIONS` is one, and some seed tells it from a cluster without it."""

import pytest
from simulation.cluster_mutations import MUTATIONS, Mutation
from support.long_tests import first_is_quick

SEEDS = 15


@pytest.mark.parametrize("mutation", first_is_quick(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.make(monkeypatch)
    said = []
    for seed in range(SEEDS):
        try:
            mutation.play(seed)
        except AssertionError as error:
            said.append(str(error))
            if said[-1].partition(":")[0] in mutation.says:
                return
    pytest.fail(f"{SEEDS} seeds do not find it; they say {said}")
