"""Transactions under seeded disasters: nothing is lost, doubled or there in part, and positions go with messages.

A failing seed says how it is played again. `make sim` plays many more.
"""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from simulation.cluster_checker import Broken
from simulation.cluster_mutations import Mutation, by_cost
from simulation.transaction_actors import Commitments, SeenItems
from simulation.transaction_mutations import MUTATIONS
from simulation.transaction_story import TransactionStory, check_items


def test_transaction_story_holds_under_seeded_disasters(seed: int) -> None:
    TransactionStory(seed).play()


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 1])
def test_transactions_of_one_version_hold_under_seeded_disasters(seed: int, version: int) -> None:
    """With version 2 requests and markers arrive in the producer's next transaction, too."""
    TransactionStory(seed, version=version, late_requests=version == 2).play()


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds_bugs_of_version_2(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)


def trace(seed: int) -> str:
    """Return all events."""
    story = TransactionStory(seed, seconds=4)
    story.play()
    observed = repr((story.world.reports, story.seen, story.commitments, story.world.clock.monotonic_ms()))
    return sha256(observed.encode()).hexdigest()


@pytest.mark.slow
def test_another_process_plays_the_same_transaction_story(checkout: Path) -> None:
    """Else a failing seed could not be replayed."""
    code = "from simulation.test_transaction_story import trace; print(trace(3))"
    environment = {**os.environ, "PYTHONHASHSEED": "3", "PYTHONPATH": str(checkout / "tests")}
    command = [sys.executable, "-P", "-c", code]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert played.stdout.strip() == trace(3)


RIGHT = [{0: "a t1 0 2", 5: "a t2 2 1"}, {1: "a t1 1 2"}]


@pytest.mark.parametrize(
    ("seen", "position", "word"),
    [
        (RIGHT, 3, ""),
        (RIGHT, 4, "exactly once"),
        (RIGHT, 2, "exactly once"),
        ([{**RIGHT[0], 7: "a t3 1 1"}, RIGHT[1]], 3, "exactly once"),
        ([RIGHT[0], {1: "a t9 1 1"}], 3, "half a transaction"),
        ([{0: "a t2 2 1", 5: "a t1 0 2"}, RIGHT[1]], 3, "order"),
    ],
)
def test_wrong_positions_of_a_transaction_are_found(seen: list[dict[int, str]], position: int, word: str) -> None:
    book = Commitments(acknowledged=position)
    if word:
        with pytest.raises(Broken, match=word):
            check_items("a", book, SeenItems(seen))
    else:
        check_items("a", book, SeenItems(seen))
