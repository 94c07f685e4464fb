"""Every interleaving of small scopes over the rules of elections and reassignments: what leads has all that was
committed, and an unclean election takes what has most.

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve
from support.election_search import Lost, Scope, play, search
from support.long_tests import first_is_quick

from barnabas.app.broker.lifecycle.cluster_member import ClusterMember
from barnabas.core.cluster import broker_lifecycle, election, reassignment
from barnabas.core.cluster.election import ElectionRules
from barnabas.core.cluster.topics import NO_LEADER, PartitionState, Topic
from barnabas.core.replica.partition.partition import Partition

DATA: Mapping[str, int | None] = {"append": 2, "fetch": None}
LEADERS_ARE_MOVED = Scope(replicas=2, min_isr=1, most={**DATA, "kill": 3, "start": 3, "elect": 2})
DISKS_ARE_LOST = Scope(replicas=2, min_isr=1, beyond=True, most={**DATA, "lose": 2, "kill": 1, "start": 3, "lag": 1})
CUTS_ARE_UNDONE = Scope(replicas=2, min_isr=2, most={**DATA, "append": 3, "kill": 2, "untear": 1, "start": 3})
MIN_ISR_IS_LOWERED = Scope(
    replicas=2,
    min_isr=2,
    other_min_isr=1,
    stale=True,
    most={**DATA, "see": None, "hear": None, "configure": 1, "stop": 1, "kill": 1, "start": 1},
)
MIN_ISR_IS_RAISED = Scope(
    replicas=2,
    min_isr=1,
    other_min_isr=2,
    stale=True,
    most={**DATA, "see": None, "hear": None, "configure": 1, "stop": 1, "kill": 1, "start": 1},
)
REASSIGNMENT: Mapping[str, int | None] = {**DATA, "append": 1, "move": 2, "cancel": 1, "finish": None}
REASSIGNMENTS_ARE_REPLACED = Scope(
    replicas=1, spare=2, min_isr=1, targets=((2,), (3,)), most={**REASSIGNMENT, "kill": 2, "start": 2}
)
APART: Mapping[str, int | None] = {
    **DATA,
    "append": 1,
    "see": None,
    "learn": None,
    "decide_election": None,
    "finish": None,
}
ASSIGNMENTS_COME_LATE = Scope(
    replicas=1, spare=1, min_isr=1, targets=((2,), (1,)), stale=True, apart=True, most={**APART, "move": 2}
)
DRAIN: Mapping[str, int | None] = {**DATA, "append": 1, "drain": 1, "undrain": 1, "finish": None, "retire": 1}
A_BROKER_IS_DRAINED = Scope(replicas=1, spare=1, min_isr=1, most={**DRAIN, "kill": 1, "start": 1})
MIN_ISR_CHANGES_IN_A_DRAIN: Mapping[str, int | None] = {**DRAIN, "hear": None, "configure": 1, "kill": 1}
A_DRAIN_AND_A_HIGHER_MIN_ISR = Scope(
    replicas=1, spare=1, min_isr=1, other_min_isr=2, most={**MIN_ISR_CHANGES_IN_A_DRAIN, "start": 1}
)
A_REPLACED_DRAIN = Scope(
    replicas=1, spare=2, min_isr=1, targets=((3,), (1,)), most={**DRAIN, "move": 1, "cancel": 1, "kill": 1}
)
LATE: Mapping[str, int | None] = {**DATA, "append": 1, "send": 1, "arrive": 1, "move": 2, "finish": None, "kill": 1}
FETCHES_COME_LATE = Scope(replicas=2, min_isr=1, targets=((1,), (1, 2)), most=LATE)
FETCHES_AND_STATES_COME_LATE = evolve(FETCHES_COME_LATE, stale=True, most={**LATE, "see": None})
FETCHES_AND_ASSIGNMENTS_COME_LATE = evolve(
    FETCHES_COME_LATE, stale=True, apart=True, most={**LATE, "see": None, "learn": None, "decide_election": None}
)
ROLLBACK: Mapping[str, int | None] = {**DATA, "append": 1, "back_up": 1, "restore": 1, "expire": 2}
TREE_IS_RESTORED = Scope(replicas=2, min_isr=1, most={**ROLLBACK, "kill": 2, "start": 2})
ELECTIONS_ARE_UNCLEAN = Scope(
    replicas=3, min_isr=1, unclean=True, most={**DATA, "kill": 2, "start": 1, "lag": 2, "end_wait": 1}
)
SCOPES = {
    "two_replicas_and_moved_leaders": LEADERS_ARE_MOVED,
    "two_replicas_that_stop_in_order_or_lag": Scope(
        replicas=2, min_isr=1, most={**DATA, "kill": 2, "start": 2, "stop": 1, "expire": 1, "lag": 1}
    ),
    "two_replicas_of_which_one_may_lose_power": Scope(
        replicas=2, min_isr=2, most={**DATA, "tear": 2, "kill": 1, "start": 3, "expire": 1}
    ),
    "two_replicas_that_see_the_state_late": Scope(
        replicas=2, min_isr=1, stale=True, most={**DATA, "see": None, "kill": 2, "start": 2, "lag": 1, "elect": 1}
    ),
    "two_replicas_of_which_one_may_lose_its_disk": Scope(
        replicas=2, min_isr=2, most={**DATA, "lose": 2, "kill": 1, "start": 3, "expire": 1}
    ),
    "two_replicas_that_lose_more_than_is_promised": DISKS_ARE_LOST,
    "two_replicas_of_which_one_may_lose_a_cut": CUTS_ARE_UNDONE,
    "two_replicas_and_a_lower_min_isr": MIN_ISR_IS_LOWERED,
    "two_replicas_and_a_higher_min_isr": MIN_ISR_IS_RAISED,
    "three_replicas_of_which_one_may_lose_power": Scope(
        replicas=3, min_isr=2, most={**DATA, "tear": 2, "kill": 1, "start": 3}
    ),
    "three_replicas": Scope(replicas=3, min_isr=2, most={**DATA, "kill": 3, "start": 3}),
    "a_reassignment_there_and_back": Scope(
        replicas=1, spare=1, min_isr=1, targets=((2,), (1,)), most={**REASSIGNMENT, "append": 2, "kill": 2, "start": 2}
    ),
    "a_reassignment_that_brokers_see_late": Scope(
        replicas=1,
        spare=1,
        min_isr=1,
        targets=((2,), (1,)),
        stale=True,
        most={**REASSIGNMENT, "see": None, "kill": 1, "start": 1},
    ),
    "a_reassignment_that_replaces_another": REASSIGNMENTS_ARE_REPLACED,
    "a_reassignment_of_two_replicas": Scope(
        replicas=2, spare=1, min_isr=2, targets=((3, 1),), most={**REASSIGNMENT, "move": 1, "kill": 3, "start": 2}
    ),
    "two_drained_brokers": Scope(
        replicas=1, spare=1, min_isr=1, most={**DRAIN, "drain": 2, "advance": 1, "kill": 1, "start": 1}
    ),
    "a_drained_broker_of_two_replicas": Scope(
        replicas=2, spare=1, min_isr=2, most={**DRAIN, "advance": 1, "kill": 1, "start": 1}
    ),
    "a_drained_broker_whose_replicas_find_no_place": Scope(
        replicas=2, min_isr=2, fewer=1, most={**DRAIN, "advance": 1, "kill": 1, "start": 1}
    ),
    "a_drain_of_two_replicas_and_a_lower_min_isr": Scope(
        replicas=2, spare=1, min_isr=2, other_min_isr=1, most=MIN_ISR_CHANGES_IN_A_DRAIN
    ),
    "a_drain_of_two_replicas_and_a_higher_min_isr": Scope(
        replicas=2, spare=1, min_isr=1, other_min_isr=2, most=MIN_ISR_CHANGES_IN_A_DRAIN
    ),
    "a_drain_and_a_min_isr_that_is_seen_late": Scope(
        replicas=1,
        spare=1,
        min_isr=2,
        other_min_isr=1,
        stale=True,
        most={**MIN_ISR_CHANGES_IN_A_DRAIN, "see": None},
    ),
    "a_continued_drain_that_a_reassignment_replaces": Scope(
        replicas=1,
        spare=2,
        min_isr=1,
        targets=((3,),),
        most={**DRAIN, "advance": 1, "move": 1, "cancel": 1, "kill": 1, "start": 1},
    ),
    "late_fetches_in_a_drain": Scope(
        replicas=2, spare=1, min_isr=1, most={**DRAIN, "retire": 0, "advance": 1, "send": 1, "arrive": 1, "kill": 1}
    ),
    "late_fetches_of_a_replica_that_another_takes_the_place_of": Scope(
        replicas=2, spare=1, min_isr=2, targets=((1, 3), (1, 2)), most=LATE
    ),
    "late_fetches_and_assignments": FETCHES_AND_ASSIGNMENTS_COME_LATE,
    "assignments_that_come_late": ASSIGNMENTS_COME_LATE,
    "assignments_that_come_late_and_a_cancelled_reassignment": Scope(
        replicas=1,
        spare=1,
        min_isr=1,
        targets=((2,), (1,)),
        stale=True,
        apart=True,
        most={**APART, "move": 2, "cancel": 1},
    ),
    "assignments_that_come_late_and_a_lost_disk": Scope(
        replicas=2,
        spare=1,
        min_isr=2,
        targets=((3, 2),),
        stale=True,
        apart=True,
        most={**APART, "move": 1, "cancel": 1, "lose": 1},
    ),
    "a_restored_tree": TREE_IS_RESTORED,
    "a_restored_tree_after_orderly_stops": Scope(replicas=2, min_isr=2, most={**ROLLBACK, "stop": 2, "start": 2}),
    "unclean_elections_of_two_replicas": Scope(
        replicas=2, min_isr=1, unclean=True, most={**DATA, "kill": 3, "start": 3, "end_wait": 2}
    ),
    "unclean_elections_of_three_replicas": ELECTIONS_ARE_UNCLEAN,
    "unclean_elections_by_operators": Scope(
        replicas=3, min_isr=1, most={**DATA, "kill": 3, "start": 2, "elect_uncleanly": 1}
    ),
}


@pytest.mark.parametrize("scope", first_is_quick([A_REPLACED_DRAIN, A_BROKER_IS_DRAINED, A_DRAIN_AND_A_HIGHER_MIN_ISR]))
def test_no_drain_loses_a_committed_message(scope: Scope) -> None:
    found = search(scope)
    assert not found.lost, str(found)


@pytest.mark.parametrize(
    "scope", first_is_quick([FETCHES_COME_LATE, FETCHES_AND_STATES_COME_LATE]), ids=["fetches", "and_states"]
)
def test_no_late_fetch_loses_a_committed_message(scope: Scope) -> None:
    found = search(scope)
    assert not found.lost, str(found)


@pytest.mark.parametrize(
    "scope", first_is_quick([FETCHES_COME_LATE, FETCHES_AND_STATES_COME_LATE]), ids=["fetches", "and_states"]
)
def test_keeping_the_leader_epoch_when_a_replica_goes_is_found_to_lose(
    monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    """A fetch that a replica sent for the log that it has deleted since brings its empty log into the ISR."""
    with_assignment = reassignment.states_with_assignment

    def in_the_same_epoch(*arguments: Any) -> dict[int, PartitionState]:
        states, decided, known = with_assignment(*arguments), arguments[2], arguments[3]
        return {n: evolve(each, leader_epoch=decided.get(n, known[n]).leader_epoch) for n, each in states.items()}

    monkeypatch.setattr(reassignment, "states_with_assignment", in_the_same_epoch)
    assert "with 0 of" in search(scope).lost


@pytest.mark.slow
def test_following_without_a_replica_in_the_state_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that has heard of the state but not of the assignment fetches in the later leader epoch, and then
    deletes its log."""
    monkeypatch.setattr(Partition, "may_follow", property(lambda self: self.broker_id in self.assigned))
    assert "with 0 of" in search(FETCHES_AND_ASSIGNMENTS_COME_LATE).lost


def test_cancelling_a_drain_whatever_the_isr_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is kept with a log that lacks what the new replica has committed alone."""
    monkeypatch.setattr(reassignment, "may_keep_only", lambda *_: True)
    assert "no replica" in search(A_BROKER_IS_DRAINED).lost


def test_cancelling_a_replaced_drain_whatever_the_isr_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment, "may_keep_only", lambda *_: True)
    assert search(A_REPLACED_DRAIN).lost


def test_ending_a_drain_before_the_new_replica_is_in_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drained broker has the only copy, and is deleted; no replica may lead then."""
    monkeypatch.setattr(reassignment, "live_isr", lambda _, brokers: tuple(brokers))
    assert "for ever" in search(A_BROKER_IS_DRAINED).lost


@pytest.mark.slow
def test_a_state_without_its_replicas_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has heard of the state but not of the assignment takes a replica into the ISR that is about to
    delete its log, and the next reassignment to that broker ends at once."""
    monkeypatch.setattr(PartitionState, "replicas_in", lambda _, assigned: assigned)
    assert "leads in epoch" in search(ASSIGNMENTS_COME_LATE).lost


@pytest.mark.parametrize("scope", first_is_quick(SCOPES.values()), ids=SCOPES.keys())
def test_no_history_loses_a_committed_message(scope: Scope) -> None:
    found = search(scope)
    assert not found.lost, str(found)


def test_hearing_replicas_that_are_no_members_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raft's figure 8."""

    def longest_of_all(
        state: PartitionState, replicas: Sequence[int], brokers: Mapping[int, Any], rules: ElectionRules
    ) -> int | None:
        claims = election.live_claims(state, replicas, brokers)
        enough = min(rules.enough(replicas, state), len(state.members))
        if sum(each in claims for each in state.members) < enough or len(claims) < len(brokers):
            return None
        return max(claims, key=lambda each: (claims[each].last_epoch, claims[each].log_end))

    monkeypatch.setattr(election, "_longest", longest_of_all)
    assert search(LEADERS_ARE_MOVED).lost


def test_a_restarted_broker_taken_for_in_sync_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election._Liveness, "lives_on", lambda self, member: member in self._brokers)
    assert search(SCOPES["two_replicas_of_which_one_may_lose_power"]).lost


def test_the_first_claim_taken_for_the_best_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_longest", lambda state, *_: next(iter(state.claims), None))
    assert search(LEADERS_ARE_MOVED).lost


def ranks_claims_without_epochs(patch: pytest.MonkeyPatch) -> None:
    longest = election._longest

    def by_log_end(state: PartitionState, *others: Any) -> int | None:
        claims = {each: evolve(claim, last_epoch=0) for each, claim in state.claims.items()}
        return longest(evolve(state, claims=claims), *others)

    patch.setattr(election, "_longest", by_log_end)


@pytest.mark.slow
def test_claims_ranked_without_epochs_are_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut undoes the cut of a follower that a leader has committed with: its log is the longer one again."""
    ranks_claims_without_epochs(monkeypatch)
    assert search(CUTS_ARE_UNDONE).lost


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_replicas_of_which_one_may_lose_power", "two_replicas_and_moved_leaders"])
def test_claims_ranked_without_epochs_lose_nothing_while_cuts_last(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """All members have what is committed, so the longest of their logs has it, whatever its last epoch is."""
    ranks_claims_without_epochs(monkeypatch)
    assert not search(SCOPES[name]).lost


def test_an_election_after_one_claim_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller does not wait until as many members have claimed as the cluster promises to survive."""
    longest = election._longest

    def longest_of_some(state: PartitionState, replicas: Sequence[int], live: Any, rules: ElectionRules) -> int | None:
        claims = election.live_claims(state, state.members, live)
        heard = evolve(state, isr=tuple(claims), elr=(), suspects=())
        return longest(heard, replicas, live, rules) if claims else None

    monkeypatch.setattr(election, "_longest", longest_of_some)
    assert search(SCOPES["two_replicas_of_which_one_may_lose_power"]).lost


@pytest.mark.slow
def test_claims_of_earlier_lives_believed_are_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        election,
        "live_claims",
        lambda state, among, brokers: {n: state.claims[n] for n in among if n in state.claims and n in brokers},
    )
    assert search(SCOPES["two_replicas_of_which_one_may_lose_power"]).lost


def test_suspects_taken_for_eligible_are_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that may have lost something leads as soon as it lives."""
    monkeypatch.setattr(election._Liveness, "came_back", lambda self, member: member in self._brokers)
    assert search(SCOPES["two_replicas_of_which_one_may_lose_power"]).lost


def test_a_claim_of_a_lost_log_taken_for_any_other_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good copy is cut to nothing by a broker that comes back with an empty disk."""
    longest = election._longest

    def trusting(state: PartitionState, *others: Any) -> int | None:
        claims = {each: evolve(claim, lost=False) for each, claim in state.claims.items()}
        return longest(evolve(state, claims=claims), *others)

    monkeypatch.setattr(election, "_longest", trusting)
    assert search(DISKS_ARE_LOST).lost


@pytest.mark.parametrize("scope", first_is_quick([MIN_ISR_IS_LOWERED, MIN_ISR_IS_RAISED]), ids=["lowered", "raised"])
def test_committing_by_the_configuration_of_the_leader_is_found_to_lose(
    monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    """The leader, or the controller, hears of another `min.insync.replicas` before the other."""
    monkeypatch.setattr(
        PartitionState, "enough_in_sync", lambda _, replicas, configured: min(configured, len(replicas))
    )
    assert search(scope).lost


def test_cancelling_a_reassignment_whatever_the_isr_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas that come have the only copies of what was committed, and are deleted."""
    monkeypatch.setattr(reassignment, "may_keep_only", lambda *_: True)
    assert search(SCOPES["a_reassignment_there_and_back"]).lost


def test_dropping_the_replicas_of_a_replaced_reassignment_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_move = reassignment.begin_move

    def begun(topic: Topic, number: int, target: Sequence[int], live: Any) -> Topic:
        begin_move(topic, number, target, live)  # refuses what it refuses
        origin = reassignment.origin_of(topic, number)
        going = tuple(broker for broker in origin if broker not in target)
        coming = tuple(broker for broker in target if broker not in origin)
        return reassignment._with(topic, number, (*target, *going), coming, going)

    monkeypatch.setattr(reassignment, "begin_move", begun)
    assert search(REASSIGNMENTS_ARE_REPLACED).lost


@pytest.mark.slow
@pytest.mark.parametrize("reuses_epochs", [False, True], ids=["later_leader_epochs", "leader_epochs_reused"])
def test_trusting_a_restored_state_is_found_to_lose(monkeypatch: pytest.MonkeyPatch, reuses_epochs: bool) -> None:
    monkeypatch.setattr(ClusterMember, "_is_forgotten", lambda *_: False)
    if reuses_epochs:
        led_by = election.led_by
        monkeypatch.setattr(election, "led_by", lambda state, *others: led_by(evolve(state, claims={}), *others))
        monkeypatch.setattr(Partition, "_is_ahead", lambda *_: False)
    assert search(TREE_IS_RESTORED).lost


def test_restore_that_another_broker_hides_from_the_counter_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 3, without a replica, starts first and takes the epoch by which broker 2 would notice."""
    most = dict.fromkeys(("append", "back_up", "expire", "kill", "restore", "start"))
    before = ("append 1", "back_up 0", "expire 2", "expire 1", "kill 3", "kill 2", "kill 1", "restore 0")
    scope = Scope(replicas=2, spare=1, min_isr=1, most=most)
    for order in permutations(("start 1", "start 2", "start 3")):
        assert play(scope, [*before, *order]).tree.leader != NO_LEADER
    monkeypatch.setattr(broker_lifecycle, "_is_older", lambda *_: False)
    with pytest.raises(Lost, match="broker 2 leads in epoch 2 with 0 of"):
        play(scope, [*before, "start 3", "start 2"])


def test_an_unclean_election_of_the_first_replica_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        election, "best_known", lambda _, replicas, brokers: next((each for each in replicas if each in brokers), None)
    )
    assert "unclean" in search(ELECTIONS_ARE_UNCLEAN).lost
