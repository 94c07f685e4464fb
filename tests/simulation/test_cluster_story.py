"""Whole clusters under seeded disasters; what must hold is checked after everything that happens.

A failing seed says how it is played again. `make sim` plays many more.
"""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from simulation.cluster_story import ClusterStory


def test_cluster_story_holds_under_seeded_disasters(cluster_seed: int) -> None:
    ClusterStory(cluster_seed).play()


def test_cluster_story_of_one_broker(seed: int) -> None:
    ClusterStory(seed, brokers=1).play()


def trace(seed: int) -> str:
    """Return all events."""
    story = ClusterStory(seed, seconds=4)
    story.play()
    books = [sorted(book.seen.items()) for book in story.books]
    observed = repr((story.world.reports, books, story.positions, story.world.clock.monotonic_ms()))
    return sha256(observed.encode()).hexdigest()


@pytest.mark.slow
def test_another_process_plays_the_same_cluster_story(checkout: Path) -> None:
    """Else a failing seed could not be replayed."""
    code = "from simulation.test_cluster_story import trace; print(trace(4))"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(checkout / "tests")}
    command = [sys.executable, "-P", "-c", code]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert played.stdout.strip() == trace(4)
