"""The table of states of classic groups: what may follow what, and that groups keep to it."""

import pytest
from support.group_driver import Driver

from barnabas.core.coordinator.group.classic_group import ClassicGroup
from barnabas.core.coordinator.group.states import CLASSIC_STATES, TRANSITIONS, GroupChange, GroupState
from barnabas.ports.error_codes import ErrorCode

S, E = GroupState, GroupChange


def test_a_group_ends_in_every_state_and_then_nothing_else_happens_to_it() -> None:
    assert {state for state, event in TRANSITIONS if event is E.END} == set(CLASSIC_STATES)
    assert {event for state, event in TRANSITIONS if state is S.DEAD} == {E.END}


def test_a_rebalance_begins_wherever_there_is_none_in_preparation() -> None:
    assert {state for state, event in TRANSITIONS if event is E.REBALANCE} == {
        S.EMPTY,
        S.COMPLETING_REBALANCE,
        S.STABLE,
    }


def test_only_an_assignment_makes_a_group_stable() -> None:
    assert [pair for pair, after in TRANSITIONS.items() if after is S.STABLE] == [(S.COMPLETING_REBALANCE, E.ASSIGNED)]


def test_every_way_of_the_table_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[tuple[GroupState, GroupChange]] = set()
    follow = ClassicGroup._follow

    def noted(group: ClassicGroup, event: GroupChange) -> None:
        gone.add((group.state, event))
        follow(group, event)

    monkeypatch.setattr(ClassicGroup, "_follow", noted)

    def driver(state: GroupState) -> Driver:
        """Return a driver whose group is in this state."""
        made = Driver()
        if state is not S.EMPTY:
            made.join()
        if state is S.STABLE:
            made.sync("m1", {})
        if state is S.PREPARING_REBALANCE:
            made.sync("m1", {})
            made.join()  # the first has not joined again
        if state is S.DEAD:
            made.group.die(ErrorCode.NOT_COORDINATOR)
        assert made.state() is state
        return made

    for state in CLASSIC_STATES:
        driver(state).group.die(ErrorCode.NOT_COORDINATOR)
    driver(S.COMPLETING_REBALANCE).join()
    left = driver(S.STABLE)
    left.leave("m1")
    assert left.state() is S.EMPTY
    assert gone == set(TRANSITIONS)
