"""Every interleaving of small scopes over a group coordinator while leaders change and leader epochs rise: what it
answers is committed, and stays.

A coordinator stays loaded while the epoch of the same leader rises, and no history shows that in an answer.

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from support import coordinator_search
from support.coordinator_search import BrokenPromise, Scope, play, search
from support.long_tests import first_is_quick

from barnabas.core.coordinator import log as coordinator_log
from barnabas.core.coordinator.log_loader import _Reading
from barnabas.core.replica.partition.partition import Partition

STEPS: Mapping[str, int | None] = {"run": None, "fetch": None, "see": None}
LEADERS_CHANGE = Scope(most={**STEPS, "commit": 1, "elect": 2})
SCOPES = {
    "commits_while_an_epoch_rises": Scope(most={**STEPS, "commit": 2, "raise_epoch": 1}),
    "leaders_that_change": LEADERS_CHANGE,
    "epochs_that_rise_twice": Scope(most={**STEPS, "commit": 1, "raise_epoch": 2}),
    "commits_at_two_leaders": Scope(most={**STEPS, "commit": 2, "elect": 1}),
    "an_isr_that_changes": Scope(most={**STEPS, "commit": 1, "shrink": 1, "expand": 1, "elect": 1}),
    "commits_that_time_out": Scope(most={**STEPS, "commit": 2, "wait": 1, "raise_epoch": 1}),
    "leaders_and_epochs": Scope(most={**STEPS, "commit": 1, "elect": 1, "raise_epoch": 1}),
}


class OtherRule:
    """A copy of `follow_leaders`, with a part left out."""

    def __init__(self, *, unloads: bool, gives_up: bool, again: bool) -> None:
        self.unloads = unloads
        self.gives_up = gives_up
        self.again = again

    def follow(self, state: Any, _topic: str, coordinator: Any, loader: Any, log: Any) -> None:
        """Replace `follow_leaders`."""
        loaded: list[Partition] = []

        def led(partition: Partition) -> None:
            if self.again or not loaded:
                resigned(partition)
                loader.load(partition)
                loaded.append(partition)

        def resigned(partition: Partition) -> None:
            number = partition.topic_partition.partition
            if self.unloads:
                coordinator.unload(number)
            if self.gives_up:
                log.give_up(number)

        state.replicas.add_leadership_listener(led, resigned)


def _rule(*, unloads: bool = True, gives_up: bool = True, again: bool = True) -> Any:
    return coordinator_search, "follow_leaders", OtherRule(unloads=unloads, gives_up=gives_up, again=again).follow


MUTATIONS: Mapping[str, tuple[Scope, tuple[Any, str, Any]]] = {
    "answers_before_the_high_watermark_reaches_what_it_loaded": (
        LEADERS_CHANGE,
        (_Reading, "is_committed", property(lambda _: True)),
    ),
    "writes_as_the_next_leader_what_it_decided_before": (LEADERS_CHANGE, _rule(gives_up=False)),
    "is_not_loaded_when_it_leads_again": (LEADERS_CHANGE, _rule(unloads=False, again=False)),
    "acknowledges_what_its_followers_lack": (LEADERS_CHANGE, (coordinator_log, "ALL_IN_SYNC", 1)),
}


@pytest.mark.parametrize("name", first_is_quick([*SCOPES], 2))
def test_a_coordinator_answers_by_committed_records_alone(name: str) -> None:
    found = search(SCOPES[name])
    print(f"{name}: {found:,} states")
    assert found > 100


@pytest.mark.parametrize("name", first_is_quick(MUTATIONS, 2))
def test_a_coordinator_that_is_wrong_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, (where, what, instead) = MUTATIONS[name]
    monkeypatch.setattr(where, what, instead)
    with pytest.raises(BrokenPromise):
        search(scope)


def test_commits_of_two_leaders_come_one_after_the_other() -> None:
    """One history, step by step."""
    cluster = play((("commit", 1), ("run", 1), ("fetch", 2), ("fetch", 2), ("elect", 2), ("see", 1), ("see", 2)))
    assert cluster.acknowledged == 0
    assert cluster.brokers[2].committed() == 0
