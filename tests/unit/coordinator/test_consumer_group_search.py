"""Every interleaving of small scopes over a consumer group (KIP-848): partitions have one owner, and in calm each has
one.

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from support.consumer_group_search import BrokenPromise, Scope, play, search
from support.long_tests import first_is_quick

from barnabas.core.coordinator.group import consumer_group
from barnabas.core.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.core.coordinator.group.consumer_records import StoredConsumerAssignment
from barnabas.core.coordinator.group.effects import Answer
from barnabas.core.coordinator.group.modern_group import ModernGroup, RecordKind
from barnabas.ports.error_codes import ErrorCode

LATE = {"delay": 1, "arrive": 1}
SCOPES = {
    "answers_that_are_lost_while_a_client_joins": Scope("tt", joined=1, most={"lose": 1}),
    "clients_that_join": Scope("ft", most={}),
    "answers_that_are_lost_while_all_join": Scope("ft", most={"lose": 1}),
    "answers_that_are_lost_twice": Scope("tt", joined=1, most={"lose": 2, "connect": 1}),
    "late_heartbeats_while_a_client_joins": Scope("tt", joined=1, most=LATE),
    "late_heartbeats_while_all_join": Scope("ft", most=LATE),
    "late_heartbeats_and_a_new_partition": Scope("tf", joined=1, most={**LATE, "add_partition": 1}),
    "late_heartbeats_and_a_third_client": Scope("tft", joined=2, most=LATE),
    "a_new_partition": Scope("ft", joined=1, most={"add_partition": 1, "lose": 1}),
    "a_third_client": Scope("ttf", joined=2, most={"lose": 1, "move": 1}),
    "a_coordinator_that_moves": Scope("tt", most={"lose": 1, "move": 1}),
    "a_coordinator_that_moves_twice": Scope("tf", joined=1, most={"lose": 1, "move": 2}),
    "writes_that_fail": Scope("tf", joined=1, most={"refuse": 1, "move": 1, "lose": 1}),
    "writes_that_time_out": Scope("tf", joined=1, most={"time_out": 1, "move": 1, "lose": 1}),
    "sessions_that_end": Scope("tf", joined=2, most={"expire": 1, "lose": 1}),
    "sessions_that_end_while_a_coordinator_moves": Scope("tf", joined=2, most={"expire": 1, "move": 1}),
    "clients_that_are_slow": Scope("tf", joined=1, most={"overrun": 1, "lose": 1}),
    "clients_that_leave_or_die": Scope("tf", joined=1, most={"leave": 1, "die": 1, "lose": 1, "move": 1}),
    "a_cooperative_classic_client_that_joins": Scope("tc", joined=1, most={"lose": 1, "move": 1}),
    "an_eager_classic_client_that_joins": Scope("tce", joined=2, most={"lose": 1}),
    "a_slow_classic_client": Scope("fc", joined=1, most={"overrun": 1}),
    "an_eager_classic_client_that_gets_all_and_gives_up_one": Scope("fe", joined=2, most={"expire": 1, "lose": 1}),
    "a_cooperative_classic_client_that_gets_all_and_gives_up_one": Scope("fc", joined=2, most={"expire": 1, "move": 1}),
}


def _always(name: str, value: Any) -> tuple[Any, str, Any]:
    """Return the change by which this field of each member always has the value."""
    return ConsumerMember, name, property(lambda _: value, lambda _member, _value: None)


def _restored_as_if_answered(restored: Callable[..., ConsumerGroup]) -> Any:
    def as_if_answered(_: type[ConsumerGroup], *given: Any) -> ConsumerGroup:
        group = restored(*given)
        for member in group.members.values():
            member.knows_assignment = True
        return group

    return classmethod(as_if_answered)


def _silence_confirms(reconcile: Callable[..., None]) -> Any:
    return lambda self, member, owned, now_ms, **given: reconcile(self, member, owned or {}, now_ms, **given)


def _without_record(write: Callable[..., None], left_out: RecordKind) -> Any:
    return lambda self, kind, name="": None if kind is left_out else write(self, kind, name)


def _without_revoking(stored: Callable[[ConsumerMember], StoredConsumerAssignment]) -> Any:
    def without(member: ConsumerMember) -> StoredConsumerAssignment:
        current = stored(member)
        current.revoking = {}
        return current

    return without


def _known_though_not_written(answer: Callable[..., Answer]) -> Any:
    def known(self: ConsumerGroup, member: ConsumerMember, *given: Any) -> Answer:
        made = answer(self, member, *given)

        def on_written(error: ErrorCode) -> Any:
            result = made.on_written and made.on_written(error)
            member.knows_assignment = True
            return result

        return Answer(made.to, made.result, on_written)

    return known


def _still_owned(forget: Callable[..., None]) -> Any:
    def still_owned(self: ConsumerGroup, member: ConsumerMember) -> None:
        owners = deepcopy(self._owners)
        forget(self, member)
        self._owners = owners

    return still_owned


ONE_JOINS, MOVES = Scope("tt", joined=1, most={"lose": 1}), Scope("tt", joined=1, most={"lose": 1, "move": 1})
MUTATIONS: Mapping[str, tuple[Scope, tuple[Any, str, Any]]] = {
    "does_not_send_an_unconfirmed_assignment_again": (ONE_JOINS, _always("unconfirmed_on", None)),
    "takes_a_heartbeat_without_partitions_as_a_confirmation": (
        ONE_JOINS,
        (ConsumerGroup, "_reconcile", _silence_confirms(ConsumerGroup._reconcile)),
    ),
    "believes_after_a_move_that_each_answer_arrived": (
        MOVES,
        (ConsumerGroup, "restored", _restored_as_if_answered(ConsumerGroup.restored)),
    ),
    "takes_a_late_heartbeat": (Scope("tt", most=LATE), _always("heard_on", 0)),
    "does_not_store_partitions_to_give_up": (
        MOVES,
        (consumer_group, "_stored_current", _without_revoking(consumer_group._stored_current)),
    ),
    "does_not_store_targets": (MOVES, (ModernGroup, "_write", _without_record(ModernGroup._write, RecordKind.TARGET))),
    "believes_that_an_assignment_is_known_though_its_write_failed": (
        Scope("tt", joined=1, most={"refuse": 1}),
        (ConsumerGroup, "_assignment_answer", _known_though_not_written(ConsumerGroup._assignment_answer)),
    ),
    "forgets_records_of_a_failed_write": (
        Scope("tt", joined=1, most={"refuse": 1, "move": 1}),
        (ModernGroup, "written", lambda *_: None),
    ),
    "leaves_partitions_to_a_member_that_has_left": (
        Scope("tt", joined=2, most={"leave": 1}),
        (ConsumerGroup, "_forget_member", _still_owned(ConsumerGroup._forget_member)),
    ),
    "does_not_tell_classic_clients_to_join_again": (
        Scope("tc", joined=1, most={}),
        (ConsumerGroup, "_must_rejoin", lambda *_: False),
    ),
    "takes_what_a_classic_client_owns_as_given_up": (
        Scope("fc", joined=2, most={"expire": 1}),
        (ConsumerGroup, "_by_id", lambda *_: {}),
    ),
    "does_not_notice_a_new_partition": (
        Scope("tt", joined=2, most={"add_partition": 1}),
        (ModernGroup, "_refresh_metadata", lambda _: False),
    ),
}


@pytest.mark.parametrize("name", first_is_quick(SCOPES))
def test_partitions_of_a_consumer_group_have_one_owner(name: str) -> None:
    found = search(SCOPES[name])
    print(f"{name}: {found:,} states")
    assert found > 100


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_consumer_group_that_is_wrong_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, (where, what, instead) = MUTATIONS[name]
    monkeypatch.setattr(where, what, instead)
    with pytest.raises(BrokenPromise) as broken:
        search(scope)
    print(f"{name}: {broken.value}")


def test_second_client_gets_its_partition_after_the_first_has_given_it_up() -> None:
    """One history, step by step."""
    join = [("beat", 2), ("receive", 2), ("pass_time", 0)]
    world = play(Scope("tt", joined=1, most={}), [*join, ("beat", 1), ("receive", 1), ("give_up", 1), ("beat", 1)])
    assert sorted(len(client.assigned) for client in world.clients) == [1, 1]
