from collections.abc import Mapping

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples

from barnabas.core.cluster.election import (
    EPOCHS_LEFT_OUT,
    ElectionRules,
    asked_to_elect,
    awaited_claims,
    best_known,
    claimed,
    describe_loss,
    distrusted,
    is_distrusted,
    moved_to,
    new_state,
    preferred,
    settled,
    wants_claim,
    with_isr,
)
from barnabas.core.cluster.layout import decode_states, encode_states
from barnabas.core.cluster.topics import BrokerRegistration, LogClaim, PartitionState, ReplicaId

REPLICAS = (1, 2, 3)
TWO = ElectionRules(min_isr=2)
ONE = ElectionRules(min_isr=1)


def brokers(*lives: tuple[int, int] | tuple[int, int, int], leaving: int = 0) -> Mapping[int, BrokerRegistration]:
    """By (number, epoch, previous epoch)."""
    found = {}
    for number, epoch, *previous in lives:
        found[number] = BrokerRegistration(
            broker_id=number,
            endpoints=(),
            broker_epoch=epoch,
            previous_epoch=previous[0] if previous else -1,
            leaving=number == leaving,
        )
    return found


ALL = brokers((1, 11), (2, 12), (3, 13))
FIRST = new_state(REPLICAS, ALL, min_isr=2)


def run_until_idle(
    state: PartitionState, live: Mapping[int, BrokerRegistration], rules: ElectionRules = TWO
) -> PartitionState:
    """Return the final state."""
    for _ in range(5):
        after = settled(state, REPLICAS, live, rules)
        if after is None:
            return state
        assert after.partition_epoch == state.partition_epoch + 1
        state = after
    raise AssertionError("it never settles")


def short(state: PartitionState) -> tuple[object, ...]:
    return state.leader, state.leader_epoch, state.isr, state.elr, state.suspects


def test_a_new_partition() -> None:
    assert short(FIRST) == (1, 0, (1, 2, 3), (), ())
    assert FIRST.broker_epochs == {1: 11, 2: 12, 3: 13}
    assert short(new_state(REPLICAS, brokers((2, 12)))) == (2, 0, (2,), (), ())
    assert short(new_state(REPLICAS, {})) == (-1, 0, (1,), (), ())
    assert settled(FIRST, REPLICAS, ALL, TWO) is None


def test_the_leader_dies_and_the_next_in_sync_leads() -> None:
    state = run_until_idle(FIRST, brokers((2, 12), (3, 13)))
    assert short(state) == (2, 1, (2, 3), (), ())
    state = run_until_idle(state, brokers((3, 13)))
    assert short(state) == (3, 2, (3,), (2,), ()), "2 has all that was committed: nothing has been since"
    assert run_until_idle(state, brokers((3, 13), (1, 14))) == state, "1 has to catch up first"


def test_min_isr_of_one_leaves_no_eligible_leader_replicas() -> None:
    state = run_until_idle(run_until_idle(FIRST, brokers((2, 12), (3, 13)), ONE), brokers((3, 13)), ONE)
    assert short(state) == (3, 2, (3,), (), ())
    state = run_until_idle(state, {}, ONE)
    assert short(state) == (-1, 3, (3,), (), ())
    assert short(run_until_idle(state, brokers((1, 21), (2, 22)), ONE)) == (-1, 3, (3,), (), ())
    live = brokers((1, 21), (3, 23))
    assert run_until_idle(state, live, ONE).leader == -1, "both have to report their log ends"
    observed = claimed(claimed(state, ReplicaId(1, 21), 0, 5), ReplicaId(3, 23), 2, 4)
    assert short(run_until_idle(observed, live, ONE)) == (3, 4, (3,), (), ())


def test_a_broker_that_restarted_has_left_every_isr() -> None:
    state = run_until_idle(FIRST, brokers((1, 11), (2, 22, 12), (3, 13)))
    assert short(state) == (1, 0, (1, 3), (), ()), "even in order, when there are others"
    state = run_until_idle(FIRST, brokers((1, 21), (2, 12), (3, 13)))
    assert short(state) == (2, 1, (2, 3), (), ())


def test_the_last_one_is_waited_for_and_comes_back() -> None:
    alone = run_until_idle(FIRST, brokers((3, 13)), ONE)
    gone = run_until_idle(alone, {}, ONE)
    assert short(gone) == (-1, 2, (3,), (), ())
    back = run_until_idle(gone, brokers((3, 23, 13)), ONE)
    assert short(back) == (3, 3, (3,), (), ()) and back.broker_epochs == {3: 23}


def test_eligible_replica_leads_before_one_with_a_torn_disk() -> None:
    alone = run_until_idle(FIRST, brokers((3, 13), (1, 11)))
    alone = run_until_idle(alone, brokers((1, 11)))
    assert short(alone) == (1, 0, (1,), (3,), ())
    gone = run_until_idle(alone, {})
    torn = run_until_idle(gone, brokers((1, 21), (3, 13)))
    assert short(torn) == (3, 2, (3,), (), (1,)), "3 lives on; 1 may have lost something"
    waits = run_until_idle(gone, brokers((1, 21)))
    assert waits.leader == -1
    assert short(run_until_idle(waits, brokers((1, 21), (3, 23, 13)))) == (3, 2, (3,), (), (1,))


def test_when_all_may_have_lost_something_the_longest_log_counts() -> None:
    gone = run_until_idle(FIRST, {})
    assert short(gone) == (-1, 1, (1, 2, 3), (), ())
    live = brokers((2, 22), (3, 23))
    assert run_until_idle(gone, live).leader == -1
    own = ReplicaId(2, 22)
    assert wants_claim(gone, REPLICAS, own)
    one = claimed(gone, own, last_epoch=0, log_end=70)
    assert not wants_claim(one, REPLICAS, own)
    assert run_until_idle(one, live).leader == -1, "two of the three have to report: fewer than two lose messages"
    assert run_until_idle(claimed(one, ReplicaId(3, 23), 0, 100), live).leader == 3
    assert run_until_idle(claimed(one, ReplicaId(3, 23), 0, 70), live).leader == 2, "by the order of the assignment"
    newer = run_until_idle(claimed(one, ReplicaId(3, 23), 1, 60), live)
    assert short(newer) == (3, 2, (3,), (), (1, 2)) or short(newer) == (3, 2, (3,), (1,), (2,))
    assert newer.claims == {}
    assert run_until_idle(claimed(gone, ReplicaId(2, 21), 0, 70), live).leader == -1, "of an earlier life"
    assert run_until_idle(one, live, ONE).leader == -1, "3 is alive, and has not reported yet"
    of_one = evolve(one, min_isr=1)
    assert run_until_idle(of_one, brokers((2, 22)), ONE).leader == 2, "where one replica is enough"


def test_a_replica_that_is_not_a_member_never_wins_by_its_claim() -> None:
    """Raft's figure 8: its log may end with a later epoch and lack what was committed since."""
    state = run_until_idle(run_until_idle(FIRST, brokers((1, 11), (3, 13))), {})
    assert state.members == (1, 3)
    state = claimed(claimed(state, ReplicaId(1, 21), 0, 10), ReplicaId(3, 23), 0, 11)
    live = brokers((1, 21), (2, 22), (3, 23))
    assert run_until_idle(state, live).leader == 3, "2 is not waited for"
    assert run_until_idle(claimed(state, ReplicaId(2, 22), 7, 99), live).leader == 3
    assert run_until_idle(claimed(run_until_idle(state, {}), ReplicaId(2, 22), 0, 99), brokers((2, 22))).leader == -1
    one = claimed(state, ReplicaId(2, 22), 0, 99)
    assert run_until_idle(one, brokers((1, 21), (2, 22))).leader == -1, "2 does not count as the second of the members"


def test_a_member_that_has_claimed_more_and_is_away_is_waited_for() -> None:
    gone = run_until_idle(FIRST, {})
    state = claimed(claimed(gone, ReplicaId(1, 21), 0, 10), ReplicaId(3, 23), 0, 11)
    state = claimed(state, ReplicaId(2, 22), 0, 10)
    assert run_until_idle(state, brokers((1, 21), (2, 22))).leader == -1
    assert run_until_idle(state, brokers((1, 21), (3, 23))).leader == 3


def test_an_unclean_election_has_to_be_allowed_and_waits_for_claims() -> None:
    unclean = ElectionRules(min_isr=1, unclean=True)
    gone = run_until_idle(run_until_idle(FIRST, brokers((3, 13)), ONE), {}, ONE)
    live = brokers((1, 21))
    assert run_until_idle(gone, live, ONE).leader == -1
    assert run_until_idle(gone, live, unclean).leader == -1, "1 has claimed nothing"
    observed = claimed(gone, ReplicaId(1, 21), 0, 5)
    assert run_until_idle(observed, live, unclean).leader == -1, "2 and 3 may come back"
    state = settled(observed, REPLICAS, live, unclean, is_overdue=True)
    assert state is not None and short(state) == (1, 3, (1,), (), ())
    assert run_until_idle(state, brokers((1, 21), (3, 23)), ONE) == state
    assert settled(gone, REPLICAS, live, ONE, is_overdue=True) is None
    assert settled(gone, REPLICAS, {}, unclean, is_overdue=True) is None


def test_an_unclean_election_takes_the_longest_log_that_is_known() -> None:
    unclean = ElectionRules(min_isr=2, unclean=True)
    gone = evolve(run_until_idle(FIRST, {}), isr=(2,), broker_epochs={2: 12})
    live = brokers((1, 21), (3, 23))
    observed = claimed(claimed(gone, ReplicaId(1, 21), 0, 5), ReplicaId(3, 23), 4, 1000)
    state = settled(observed, REPLICAS, live, unclean, is_overdue=True)
    assert state is not None and short(state) == (3, 5, (3,), (), ()), "a later epoch than any that a log has"
    assert best_known(claimed(gone, ReplicaId(3, 23), 0, 1), REPLICAS, live) == 3, "1 has claimed nothing"
    assert best_known(claimed(gone, ReplicaId(1, 19), 9, 99), REPLICAS, live) == 1, "of an earlier life"
    assert awaited_claims(gone, REPLICAS, live) == [1, 3]
    assert awaited_claims(observed, REPLICAS, live) == []
    all_observed = claimed(observed, ReplicaId(2, 22), 0, 5, lost=True)
    led = run_until_idle(all_observed, brokers((1, 21), (2, 22), (3, 23)), unclean)
    assert led.leader == 3, "nothing is left to wait for"


def test_an_operator_who_allows_an_unclean_election_gets_a_clean_one_where_that_is_possible() -> None:
    state = run_until_idle(run_until_idle(FIRST, brokers((1, 11), (3, 13))), {})
    state = claimed(claimed(state, ReplicaId(1, 21), 0, 10), ReplicaId(2, 22), 7, 99)
    live = brokers((1, 21), (2, 22))
    unclean = asked_to_elect(state, REPLICAS, live, TWO)
    assert unclean is not None and unclean.leader == 2, "3 is away"
    state, live = claimed(state, ReplicaId(3, 23), 0, 11), brokers((1, 21), (2, 22), (3, 23))
    clean = asked_to_elect(state, REPLICAS, live, TWO)
    assert clean is not None and short(clean) == (3, 8, (3,), (), (1,)), "the epoch is beyond all that are claimed"
    assert asked_to_elect(clean, REPLICAS, live, TWO) is None, "it has a leader"
    assert asked_to_elect(state, REPLICAS, {}, TWO) is None


def test_a_member_whose_log_is_lost_leads_only_where_no_other_replica_can_have_more() -> None:
    alone = run_until_idle(run_until_idle(FIRST, brokers((1, 11)), ONE), {}, ONE)
    assert alone.members == (1,)
    live = brokers((1, 21), (2, 22))
    lost = claimed(alone, ReplicaId(1, 21), -1, 0, lost=True)
    assert run_until_idle(lost, brokers((1, 21)), ONE).leader == -1, "2 and 3 may have more"
    assert describe_loss(lost, REPLICAS, brokers((1, 21))) == (
        "the disk of broker 1 lost messages that were in sync, and broker 2 is not alive, and broker 3 is not alive"
    )
    both = claimed(lost, ReplicaId(2, 22), 0, 50)
    assert run_until_idle(both, live, ONE).leader == -1, "2 has more"
    assert describe_loss(both, (1, 2), live) == (
        "the disk of broker 1 lost messages that were in sync, and the log of broker 2, which was not in sync, ends at"
        " offset 50"
    )
    unclean = settled(both, REPLICAS, live, ElectionRules(min_isr=1, unclean=True), is_overdue=True)
    assert unclean is not None and unclean.leader == 2
    nothing = claimed(lost, ReplicaId(2, 22), -1, 0)
    after = settled(nothing, (1, 2), live, ONE)
    assert after is not None and after.leader == 1, "no replica has anything"
    only = settled(lost, (1,), brokers((1, 21)), ONE)
    assert only is not None and only.leader == 1, "there is no other replica"


def test_a_member_that_has_its_log_speaks_for_one_that_lost_it() -> None:
    state = claimed(run_until_idle(FIRST, {}), ReplicaId(1, 21), -1, 0, lost=True)
    live = brokers((1, 21), (2, 22))
    assert run_until_idle(state, brokers((1, 21)), ONE).leader == -1
    assert run_until_idle(claimed(state, ReplicaId(2, 22), 0, 7), live, ONE).leader == 2
    assert run_until_idle(claimed(state, ReplicaId(2, 22), 0, 7), live, TWO).leader == 2


def test_stopping_broker_hands_its_leaderships_over() -> None:
    state = run_until_idle(FIRST, evolve_leaving(1))
    assert short(state) == (2, 1, (2, 3), (), ())
    assert short(run_until_idle(FIRST, evolve_leaving(2))) == (1, 0, (1, 3), (), ())
    alone = run_until_idle(FIRST, brokers((1, 11)))
    assert short(run_until_idle(alone, brokers((1, 11), leaving=1))) == short(alone), "there is no other replica"


def evolve_leaving(number: int) -> Mapping[int, BrokerRegistration]:
    return {**ALL, number: evolve(ALL[number], leaving=True)}


def test_an_isr_that_is_large_enough_again_forgets_who_was_eligible() -> None:
    small = run_until_idle(FIRST, brokers((1, 11)))
    assert short(small) == (1, 0, (1,), (2, 3), ())
    larger = with_isr(small, [ReplicaId(1, 11), ReplicaId(3, 33)], REPLICAS, brokers((1, 11), (3, 33)), TWO)
    assert short(larger) == (1, 0, (1, 3), (), ())
    assert larger.broker_epochs == {1: 11, 3: 33}


def test_reassignment_removes_brokers_without_a_replica_from_the_isr() -> None:
    after = settled(FIRST, (2, 3), ALL, TWO)
    assert after is not None and short(after) == (2, 1, (2, 3), (), ())
    after = settled(FIRST, (1, 3), ALL, TWO)
    assert after is not None and short(after) == (1, 0, (1, 3), (), ())


def test_the_preferred_leader() -> None:
    led = run_until_idle(FIRST, brokers((2, 12), (3, 13)))
    assert preferred(led, REPLICAS, ALL, TWO) is None, "not in sync yet"
    back = evolve(led, isr=(2, 3, 1), broker_epochs={**led.broker_epochs, 1: 11})
    after = preferred(back, REPLICAS, ALL, TWO)
    assert after is not None and short(after) == (1, 2, (2, 3, 1), (), ())
    assert after.partition_epoch == back.partition_epoch + 1
    assert preferred(after, REPLICAS, ALL, TWO) is None
    assert moved_to(FIRST, 3, REPLICAS, ALL, TWO) is not None
    assert moved_to(FIRST, 4, REPLICAS, ALL, TWO) is None
    assert moved_to(FIRST, 3, REPLICAS, evolve_leaving(3), TWO) is None


@pytest.mark.parametrize("min_isr", [1, 2, 3])
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_elected_leader_was_in_the_isr_or_elr(min_isr: int, data: st.DataObject) -> None:
    """Whatever dies and comes back, in whatever order: a leader is from the members, and the epoch grows."""
    state, rules = FIRST, ElectionRules(min_isr=min_isr)
    live = dict(ALL)
    epoch = 100
    for _ in range(data.draw(st.integers(1, 12))):
        number = data.draw(st.sampled_from(REPLICAS))
        epoch += 1
        match data.draw(st.sampled_from(("die", "clean", "torn", "claim", "join"))):
            case "die":
                live.pop(number, None)
            case "clean":
                before = live[number].broker_epoch if number in live else state.broker_epochs.get(number, -1)
                live |= brokers((number, epoch, before))
            case "torn":
                live |= brokers((number, epoch))
            case "claim":
                own = ReplicaId(number, live[number].broker_epoch) if number in live else ReplicaId(number, 0)
                if number in live and wants_claim(state, REPLICAS, own):
                    state = claimed(state, own, data.draw(st.integers(0, 3)), data.draw(st.integers(0, 9)))
            case "join":
                if number in live and state.leader in live and number not in state.isr:
                    isr = [ReplicaId(each, state.broker_epochs[each]) for each in state.isr]
                    joined = with_isr(
                        state, [*isr, ReplicaId(number, live[number].broker_epoch)], REPLICAS, live, rules
                    )
                    state = evolve(joined, partition_epoch=state.partition_epoch + 1)
        for _ in range(4):
            after = settled(state, REPLICAS, live, rules)
            if after is None:
                break
            assert after.leader == -1 or after.leader in state.members
            assert after.leader == -1 or after.leader in after.isr
            assert (after.leader_epoch > state.leader_epoch) == (after.leader != state.leader) or (
                after.leader == state.leader and after.leader_epoch == state.leader_epoch + 1
            )
            assert len(set(after.members)) == len((*after.isr, *after.elr, *after.suspects))
            assert set(after.broker_epochs) == set(after.members)
            assert not (len(after.isr) >= min_isr and (after.elr or after.suspects))
            state = after
        else:
            raise AssertionError("it never settles")


def test_a_state_with_claims_is_read_as_it_was_written() -> None:
    state = claimed(claimed(run_until_idle(FIRST, {}), ReplicaId(1, 21), -1, 0, lost=True), ReplicaId(3, 23), 4, 1000)
    assert decode_states(encode_states(bytes(range(16)), {0: state}))[1] == {0: state}
    of_an_older_version = b"[-1,1,2,[[1,11]],[],[],[[1,21,0,5]]]"
    node = b'{"version":1,"topic_id":"AAECAwQFBgcICQoLDA0ODw","states":{"0":%s}}' % of_an_older_version
    assert decode_states(node)[1][0].claims == {1: LogClaim(21, 0, 5)}


def test_a_state_with_its_replicas_is_read_as_it_was_written() -> None:
    states = {0: FIRST, 1: evolve(FIRST, replicas=(3, 1, 2))}
    encoded = encode_states(bytes(range(16)), states)
    assert decode_states(encoded)[1] == states
    assert states[1].replicas_in((1, 2)) == (3, 1, 2) and states[0].replicas_in((1, 2)) == (1, 2)
    with pytest.raises(ValueError):
        decode_states(encoded.replace(b"[3,1,2]", b'[3,"1",2]'))


def test_a_lower_min_isr_makes_those_ineligible_that_miss_what_one_may_commit_then() -> None:
    alone = run_until_idle(run_until_idle(FIRST, brokers((1, 11), (2, 12))), brokers((1, 11)))
    assert (short(alone), alone.min_isr) == ((1, 0, (1,), (2,), ()), 2)
    lowered = run_until_idle(alone, brokers((1, 11)), ONE)
    assert (short(lowered), lowered.min_isr) == ((1, 0, (1,), (), ()), 1)
    assert lowered.partition_epoch == alone.partition_epoch + 1, "in one change"
    raised = run_until_idle(lowered, brokers((1, 11)))
    assert (short(raised), raised.min_isr) == ((1, 0, (1,), (), ()), 2), "2 may lack what 1 has committed alone"


def test_a_change_of_the_isr_goes_by_the_min_isr_of_the_state() -> None:
    """The leader's own configuration may be ahead of the controller's, or behind."""
    alone = with_isr(FIRST, [ReplicaId(1, 11)], REPLICAS, ALL, ONE)
    assert (short(alone), alone.min_isr) == ((1, 0, (1,), (2, 3), ()), 2)
    of_one = evolve(FIRST, min_isr=1)
    alone = with_isr(of_one, [ReplicaId(1, 11)], REPLICAS, ALL, TWO)
    assert (short(alone), alone.min_isr) == ((1, 0, (1,), (), ()), 1)


def test_the_min_isr_of_a_partition_without_leader_stays_until_one_is_elected() -> None:
    """It says how many of the members have to claim what they have."""
    gone = run_until_idle(FIRST, {}, ONE)
    assert (gone.leader, gone.min_isr) == (-1, 2)
    one = claimed(gone, ReplicaId(2, 22), 0, 70)
    assert run_until_idle(one, brokers((2, 22)), ONE).leader == -1
    led = run_until_idle(claimed(one, ReplicaId(3, 23), 0, 70), brokers((2, 22), (3, 23)), ONE)
    assert (led.leader, led.members, led.min_isr) == (2, (2,), 1)


def test_a_min_isr_from_a_file_counts_when_the_brokers_of_all_replicas_have_it() -> None:
    of_file = ElectionRules(min_isr=1, is_common=False)

    def with_files(*values: int | None) -> Mapping[int, BrokerRegistration]:
        return {each: evolve(ALL[each], min_isr=value) for each, value in zip(ALL, values, strict=False)}

    for values in ((2, 2, 2), (1, 1, 2), (1, None, 1)):
        assert settled(FIRST, REPLICAS, with_files(*values), of_file) is None
    one_is_away = settled(FIRST, REPLICAS, with_files(1, 1), of_file)
    assert one_is_away is not None and one_is_away.min_isr == 2, "3 may have another one"
    after = settled(FIRST, REPLICAS, with_files(1, 1, 1), of_file)
    assert after is not None and after.min_isr == 1
    of_an_older_version = evolve(FIRST, min_isr=None)
    assert of_an_older_version.enough_in_sync(REPLICAS, 3) == 3
    assert run_until_idle(of_an_older_version, ALL, of_file).min_isr == 1


@pytest.mark.parametrize("values", [(None, None), (2, 2), (2, 3), (2, None), (3, 2, 2)])
def test_the_min_isr_of_states_is_read_as_it_was_written(values: tuple[int | None, ...]) -> None:
    states = {number: evolve(FIRST, min_isr=value) for number, value in enumerate(values)}
    claim = claimed(run_until_idle(FIRST, {}), ReplicaId(1, 21), 0, 5)
    states[len(values)] = evolve(claim, min_isr=values[0])
    encoded = encode_states(bytes(range(16)), states)
    assert decode_states(encoded)[1] == states
    if values == (2, 2):
        assert encoded.count(b"min_isr") == 1 and b"]],2]" not in encoded, "it stands there once"


@pytest.mark.parametrize("value", [b"0", b'"2"', b"-2", b"2.5"])
def test_a_min_isr_that_makes_no_sense_is_refused(value: bytes) -> None:
    node = b'{"version":1,"topic_id":"AAECAwQFBgcICQoLDA0ODw","min_isr":%s,"states":{"0":[1,1,2,[[1,11]]]}}' % value
    with pytest.raises(ValueError):
        decode_states(node)


def test_states_that_were_forgotten_wait_for_the_claims_of_all_replicas() -> None:
    back, beyond = evolve(FIRST, leader_epoch=1), 7 + EPOCHS_LEFT_OUT + 1
    live = brokers((1, 11), (2, 12), (3, 13))
    state = distrusted(back, REPLICAS, ReplicaId(2, 12), 7, 100)
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (-1, beyond - 1, back.partition_epoch + 1)
    assert set(state.members) == {1, 2, 3} and is_distrusted(state, REPLICAS) and not is_distrusted(back, REPLICAS)
    assert decode_states(encode_states(b"t" * 16, {0: state}))[1][0].members == state.members
    assert run_until_idle(state, live, ONE).leader == -1
    state = claimed(state, ReplicaId(1, 11), 7, 90)
    moving = settled(state, (4, *REPLICAS), brokers((1, 11), (2, 12), (4, 14)), ONE)
    assert moving is None, "a move does not make up for 3"
    assert run_until_idle(state, brokers((1, 11), (2, 12)), ONE).leader == -1, "3 may have what both lack"
    led = run_until_idle(claimed(state, ReplicaId(3, 13), 5, 1000), live, ONE)
    assert (led.leader, led.leader_epoch, led.isr) == (2, beyond, (2,)), "clients have seen epochs that no log has"
    assert not is_distrusted(led, REPLICAS)


def test_single_replica_with_a_later_epoch_leads_again() -> None:
    state = distrusted(evolve(FIRST, isr=(1,), broker_epochs={1: 11}), (1,), ReplicaId(1, 21), 7, 100)
    led = settled(state, (1,), brokers((1, 21)), ONE)
    assert led is not None and (led.leader, led.leader_epoch) == (1, 7 + EPOCHS_LEFT_OUT + 1)
