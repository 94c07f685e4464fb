"""Clusters over a remote storage that fails; `make sim STORY=tiering` plays many more of them."""

from collections.abc import Callable

import pytest
from simulation.cluster_checker import Broken
from simulation.tiering_story import TieringStory

from barnabas.core.tiering import remote_log_manager
from barnabas.core.tiering.manifest import Manifest


@pytest.mark.parametrize("number", [3, 11])
def test_tiering_story_holds_for_a_quick_seed(number: int) -> None:
    TieringStory(number, seconds=4).play()


@pytest.mark.slow
def test_tiering_story_holds_for_seed(seed: int) -> None:
    TieringStory(seed).play()


def deletes_local_segments_that_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Manifest, "covered_to", lambda _self, offset: offset + 200)


def takes_the_lineage_of_the_log_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_log_manager, "merged_lineage", lambda _stored, own: tuple(own[-1:]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        deletes_local_segments_that_are_not_copied,
        takes_the_lineage_of_the_log_alone,
    ],
)
def test_the_story_finds_a_mutation(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(40):
        try:
            TieringStory(seed).play()
        except (Broken, AssertionError, TimeoutError):
            return
    pytest.fail("no seed has found it")
