from collections.abc import Mapping

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.cluster.election import (
    ElectionRules,
    claimed,
    moved_to,
    new_state,
    preferred,
    settled,
    wants_claim,
    with_isr,
)
from barnabas.core.cluster.topics import BrokerRegistration, PartitionState, ReplicaId

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
FIRST = new_state(REPLICAS, ALL)


def settle(state: PartitionState, live: Mapping[int, BrokerRegistration], rules: ElectionRules = TWO) -> PartitionState:
    """The state that counts in the end."""
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
    state = settle(FIRST, brokers((2, 12), (3, 13)))
    assert short(state) == (2, 1, (2, 3), (), ())
    state = settle(state, brokers((3, 13)))
    assert short(state) == (3, 2, (3,), (2,), ()), "2 has all that was committed: nothing has been since"
    assert settle(state, brokers((3, 13), (1, 14))) == state, "1 has to catch up first"


def test_with_one_in_sync_enough_nobody_else_is_eligible() -> None:
    state = settle(settle(FIRST, brokers((2, 12), (3, 13)), ONE), brokers((3, 13)), ONE)
    assert short(state) == (3, 2, (3,), (), ())
    state = settle(state, {}, ONE)
    assert short(state) == (-1, 3, (3,), (), ())
    assert short(settle(state, brokers((1, 21), (2, 22)), ONE)) == (-1, 3, (3,), (), ())
    live = brokers((1, 21), (3, 23))
    assert settle(state, live, ONE).leader == -1, "both are to tell what they have"
    told = claimed(claimed(state, ReplicaId(1, 21), 0, 5), ReplicaId(3, 23), 2, 4)
    assert short(settle(told, live, ONE)) == (3, 4, (3,), (), ())


def test_a_broker_that_restarted_has_left_every_isr() -> None:
    state = settle(FIRST, brokers((1, 11), (2, 22, 12), (3, 13)))
    assert short(state) == (1, 0, (1, 3), (), ()), "even in order, when there are others"
    state = settle(FIRST, brokers((1, 21), (2, 12), (3, 13)))
    assert short(state) == (2, 1, (2, 3), (), ())


def test_the_last_one_is_waited_for_and_comes_back() -> None:
    alone = settle(FIRST, brokers((3, 13)), ONE)
    gone = settle(alone, {}, ONE)
    assert short(gone) == (-1, 2, (3,), (), ())
    back = settle(gone, brokers((3, 23, 13)), ONE)
    assert short(back) == (3, 3, (3,), (), ()) and back.broker_epochs == {3: 23}


def test_who_is_eligible_leads_before_one_whose_disk_may_be_torn() -> None:
    alone = settle(FIRST, brokers((3, 13), (1, 11)))
    alone = settle(alone, brokers((1, 11)))
    assert short(alone) == (1, 0, (1,), (3,), ())
    gone = settle(alone, {})
    torn = settle(gone, brokers((1, 21), (3, 13)))
    assert short(torn) == (3, 2, (3,), (), (1,)), "3 lives on; 1 may have lost something"
    waits = settle(gone, brokers((1, 21)))
    assert waits.leader == -1
    assert short(settle(waits, brokers((1, 21), (3, 23, 13)))) == (3, 2, (3,), (), (1,))


def test_when_all_may_have_lost_something_the_longest_log_counts() -> None:
    gone = settle(FIRST, {})
    assert short(gone) == (-1, 1, (1, 2, 3), (), ())
    live = brokers((2, 22), (3, 23))
    assert settle(gone, live).leader == -1
    own = ReplicaId(2, 22)
    assert wants_claim(gone, REPLICAS, own)
    one = claimed(gone, own, last_epoch=0, log_end=70)
    assert not wants_claim(one, REPLICAS, own)
    assert settle(one, live).leader == -1, "two of the three have to tell: fewer than two lose something"
    assert settle(claimed(one, ReplicaId(3, 23), 0, 100), live).leader == 3
    assert settle(claimed(one, ReplicaId(3, 23), 0, 70), live).leader == 2, "by the order of the assignment"
    newer = settle(claimed(one, ReplicaId(3, 23), 1, 60), live)
    assert short(newer) == (3, 2, (3,), (), (1, 2)) or short(newer) == (3, 2, (3,), (1,), (2,))
    assert newer.claims == {}
    assert settle(claimed(gone, ReplicaId(2, 21), 0, 70), live).leader == -1, "of an earlier life"
    assert settle(one, live, ONE).leader == -1, "3 is there, and has not told yet"
    assert settle(one, brokers((2, 22)), ONE).leader == 2, "where one replica is enough"


def test_who_was_not_in_sync_is_heard_too() -> None:
    """A message was acknowledged by 1 and 2; then 3 took the place of 2, and 1 and 3 lost what they had not synced."""
    state = settle(settle(FIRST, brokers((1, 11), (3, 13))), {})
    assert state.members == (1, 3)
    live = brokers((1, 21), (2, 22), (3, 23))
    state = claimed(claimed(state, ReplicaId(1, 21), 0, 10), ReplicaId(3, 23), 0, 10)
    assert settle(state, live).leader == -1, "2 has not told yet"
    assert settle(claimed(state, ReplicaId(2, 22), 0, 11), live).leader == 2
    assert settle(claimed(state, ReplicaId(2, 22), 0, 9), live).leader == 1
    assert settle(claimed(settle(state, {}), ReplicaId(2, 22), 0, 99), brokers((2, 22))).leader == -1, "not by itself"
    away = brokers((1, 21), (3, 23))
    assert settle(claimed(state, ReplicaId(2, 22), 0, 11), away).leader == -1, "2 has more, and is waited for"
    assert settle(claimed(state, ReplicaId(2, 22), 0, 9), away).leader == 1


def test_only_who_is_asked_to_elects_uncleanly() -> None:
    gone = settle(settle(FIRST, brokers((3, 13)), ONE), {}, ONE)
    assert settle(gone, brokers((1, 21)), ONE).leader == -1
    state = settle(gone, brokers((1, 21)), ElectionRules(min_isr=1, unclean=True))
    assert short(state) == (1, 3, (1,), (), ())
    assert settle(state, brokers((1, 21), (3, 23)), ONE) == state


def test_who_is_about_to_stop_hands_over() -> None:
    state = settle(FIRST, evolve_leaving(1))
    assert short(state) == (2, 1, (2, 3), (), ())
    assert short(settle(FIRST, evolve_leaving(2))) == (1, 0, (1, 3), (), ())
    alone = settle(FIRST, brokers((1, 11)))
    assert short(settle(alone, brokers((1, 11), leaving=1))) == short(alone), "there is nobody else"


def evolve_leaving(number: int) -> Mapping[int, BrokerRegistration]:
    return {**ALL, number: evolve(ALL[number], leaving=True)}


def test_an_isr_that_is_large_enough_again_forgets_who_was_eligible() -> None:
    small = settle(FIRST, brokers((1, 11)))
    assert short(small) == (1, 0, (1,), (2, 3), ())
    larger = with_isr(small, [ReplicaId(1, 11), ReplicaId(3, 33)], REPLICAS, brokers((1, 11), (3, 33)), TWO)
    assert short(larger) == (1, 0, (1, 3), (), ())
    assert larger.broker_epochs == {1: 11, 3: 33}


def test_a_move_leaves_out_who_has_no_replica_any_more() -> None:
    after = settled(FIRST, (2, 3), ALL, TWO)
    assert after is not None and short(after) == (2, 1, (2, 3), (), ())
    after = settled(FIRST, (1, 3), ALL, TWO)
    assert after is not None and short(after) == (1, 0, (1, 3), (), ())


def test_the_preferred_leader() -> None:
    led = settle(FIRST, brokers((2, 12), (3, 13)))
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
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whoever_leads_was_in_sync_or_eligible(min_isr: int, data: st.DataObject) -> None:
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
            assert after.leader == -1 or after.leader in state.members or after.leader in state.claims
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
