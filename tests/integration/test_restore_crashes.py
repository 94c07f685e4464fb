"""`barnabas topics restore` that dies after any of its steps: the next attempt completes it, and until then no topic
says that it is whole (`support/restore_search.py`).

The counts of crashes are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from support.long_tests import first_is_quick
from support.restore_search import search

from barnabas.app.mirror.restoring import TierRestore
from barnabas.ports.errors import BarnabasError


@pytest.mark.slow
@pytest.mark.parametrize("twice", [pytest.param(False, id="once"), pytest.param(True, id="twice")])
def test_restore_that_dies_anywhere_is_continued_and_leaves_the_bucket_as_it_was(*, twice: bool) -> None:
    print(f"{search(twice=twice)} crashes")


def _without_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics that this cluster has restored itself count as topics to restore."""
    monkeypatch.setattr(TierRestore, "topic_ids", lambda _: set())


def _opened_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is opened to producers before its partitions are there."""
    real = TierRestore._bring_all_back

    def opening(self: TierRestore, topic: str, parts: Any, source: str, outcome: Any, moved: Any) -> None:
        self._open_to_producers(topic, {}, outcome)
        real(self, topic, parts, source, outcome, moved)

    monkeypatch.setattr(TierRestore, "_bring_all_back", opening)


def _groups_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of groups come after producers are let in."""
    restore_groups, open_topic = TierRestore._restore_groups, TierRestore._open_to_producers
    given: list[Any] = []

    def opening(self: TierRestore, *args: Any) -> None:
        open_topic(self, *args)
        restore_groups(self, *given.pop())

    monkeypatch.setattr(TierRestore, "_restore_groups", lambda _, *args: given.append(args))
    monkeypatch.setattr(TierRestore, "_open_to_producers", opening)


@pytest.mark.parametrize(
    ("mutation", "why"),
    first_is_quick(
        [
            (_without_own_ids, "several topics in remote storage are named"),
            (_opened_early, "mirrors no other one"),
            (_groups_last, "late"),
        ],
        2,
    ),
)
def test_search_finds_a_restore_that_cannot_be_continued(
    monkeypatch: pytest.MonkeyPatch, mutation: Callable[[pytest.MonkeyPatch], None], why: str
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, BarnabasError, KeyError), match=why):
        search(twice=False)
