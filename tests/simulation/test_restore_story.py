"""Clusters whose coordination service is restored from a backup; `make sim STORY=restore` plays more of them."""

import pytest
from simulation.restore_story import RestoreStory


@pytest.mark.slow
def test_restore_story_holds_for_seed(seed: int) -> None:
    RestoreStory(seed).play()
