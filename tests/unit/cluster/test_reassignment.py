from collections.abc import Mapping

import pytest
from attrs import evolve

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.controller import unbalanced
from barnabas.core.cluster.deltas import BrokersChanged, StatesChanged, TopicSet
from barnabas.core.cluster.election import ElectionRules, new_state, settled
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.layout import decode_topic, encode_topic
from barnabas.core.cluster.reassignment import (
    begin_move,
    cancel_move,
    finished_moves,
    is_moving,
    origin_of,
    states_with_assignment,
    target_of,
)
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import NO_LEADER, BrokerRegistration, PartitionState, Topic
from barnabas.ports.coordination import BadVersion
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

LIVE = {number: BrokerRegistration(broker_id=number, endpoints=(), broker_epoch=number + 10) for number in range(1, 6)}
TOPIC = Topic(name="t", topic_id=b"t" * 16, partitions={0: (1, 2, 3), 1: (2, 3, 1)})


def image_of(topic: Topic, states: Mapping[int, PartitionState], version: int = 0) -> ClusterImage:
    image = ClusterImage().after(BrokersChanged(brokers=LIVE)).after(TopicSet(topic=topic))
    return image.after(StatesChanged(topic="t", topic_id=topic.topic_id, states=states, version=version))


def finished(topic: Topic, state: PartitionState) -> tuple[Topic, Mapping[int, PartitionState]] | None:
    return finished_moves(topic, image_of(topic, {0: state}), ElectionRules(min_isr=2))


def test_the_new_replicas_come_before_the_old_ones_go() -> None:
    moving = begin_move(TOPIC, 0, (4, 2, 5), LIVE)
    assert moving.partitions == {0: (4, 2, 5, 1, 3), 1: (2, 3, 1)}
    assert (moving.adding, moving.removing) == ({0: (4, 5)}, {0: (1, 3)})
    assert (target_of(moving, 0), set(origin_of(moving, 0)), is_moving(moving, 1)) == ((4, 2, 5), {1, 2, 3}, False)
    state = new_state((1, 2, 3), LIVE)
    assert finished(moving, state) is None
    in_sync = evolve(state, isr=(1, 2, 3, 4, 5), broker_epochs={each: each + 10 for each in LIVE})
    done = finished(moving, in_sync)
    assert done is not None
    after, states = done
    assert after.partitions[0] == (4, 2, 5) and not after.adding and not after.removing
    assert (states[0].leader, states[0].isr, states[0].leader_epoch) == (4, (2, 4, 5), 1)
    assert states[0].partition_epoch == in_sync.partition_epoch + 1


def test_brokers_that_a_move_leaves_are_former_replicas_until_they_have_some_again() -> None:
    in_sync = new_state((1, 2, 3, 4), LIVE)
    done = finished(begin_move(TOPIC, 0, (1, 4), LIVE), in_sync)
    assert done is not None
    assert done[0].former == (2, 3)
    assert done[0].log_holders == {1, 2, 3, 4}
    decoded, _ = decode_topic("t", encode_topic(done[0]), {})
    assert decoded == done[0]
    again = finished(begin_move(done[0], 0, (1, 3), LIVE), in_sync)
    assert again is not None and again[0].former == (2, 4)


def test_leader_that_stays_in_a_reassignment_continues_to_lead() -> None:
    moving = begin_move(TOPIC, 0, (1, 4), LIVE)
    in_sync = evolve(new_state((1, 2, 3, 4), LIVE))
    done = finished(moving, in_sync)
    assert done is not None
    assert (done[1][0].leader, done[1][0].leader_epoch, done[1][0].isr) == (1, 0, (1, 4))


def stored(before: Topic, after: Topic, known: PartitionState, decided: PartitionState | None) -> PartitionState:
    return states_with_assignment(before, after, {} if decided is None else {0: decided}, {0: known})[0]


def test_leader_epoch_rises_once_where_a_replica_goes_and_never_where_some_only_come() -> None:
    state = new_state((1, 2, 3), LIVE)
    moving = begin_move(TOPIC, 0, (1, 4), LIVE)
    began = stored(TOPIC, moving, state, None)
    assert (began.leader_epoch, began.replicas) == (0, (1, 4, 2, 3))
    again = stored(moving, begin_move(moving, 0, (1, 5), LIVE), began, None)
    assert again.leader_epoch == 0, "the replicas of the move before stay for now"
    in_sync = new_state((1, 2, 3, 4), LIVE)
    stays = finished(moving, in_sync)
    assert stays is not None
    after = stored(moving, stays[0], in_sync, stays[1][0])
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 1, (1, 4))
    assert after.partition_epoch == in_sync.partition_epoch + 1
    goes = finished(begin_move(TOPIC, 0, (4, 2), LIVE), in_sync)
    assert goes is not None
    after = stored(moving, goes[0], in_sync, goes[1][0])
    assert (after.leader, after.leader_epoch) == (4, 1), "an election has raised it"
    other_order = begin_move(TOPIC, 0, (3, 2, 1), LIVE)
    assert stored(TOPIC, other_order, state, None).leader_epoch == 0


def test_another_order_is_a_move_that_is_done_at_once() -> None:
    moving = begin_move(TOPIC, 0, (3, 2, 1), LIVE)
    assert not is_moving(moving, 0) and moving.partitions[0] == (3, 2, 1)


RULES = ElectionRules(min_isr=2)


def in_sync(*members: int) -> PartitionState:
    epochs = {each: each + 10 for each in members}
    return PartitionState(leader=members[0], leader_epoch=3, isr=members, broker_epochs=epochs)


def test_a_move_is_replaced_or_taken_back() -> None:
    moving = begin_move(TOPIC, 0, (4, 2, 5), LIVE)
    other = begin_move(moving, 0, (1, 2, 5), LIVE)
    assert (other.partitions[0], other.adding, other.removing) == ((1, 2, 5, 3, 4), {0: (5, 4)}, {0: (3, 4)})
    back, _ = cancel_move(other, 0, image_of(other, {0: in_sync(1, 2)}), RULES)
    assert set(back.partitions[0]) == {1, 2, 3} and not is_moving(back, 0)
    with pytest.raises(ApiError) as error:
        cancel_move(back, 0, image_of(back, {0: in_sync(1, 2)}), RULES)
    assert error.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_replaced_move_keeps_adding_replicas_until_new_target_is_in_sync() -> None:
    topic = Topic(name="t", topic_id=b"t" * 16, partitions={0: (1, 2)})
    other = begin_move(begin_move(topic, 0, (3, 4), LIVE), 0, (5, 1), LIVE)
    assert other.partitions[0] == (5, 1, 2, 3, 4)
    assert (target_of(other, 0), origin_of(other, 0)) == ((5, 1), (1, 2))
    assert finished(other, in_sync(3, 4)) is None
    done = finished(other, in_sync(3, 4, 5, 1))
    assert done is not None and done[0].partitions[0] == (5, 1) and not is_moving(done[0], 0)


def test_cancelled_move_is_refused_where_only_new_replicas_are_in_sync() -> None:
    moving = begin_move(TOPIC, 0, (4, 5), LIVE)
    one_stays = in_sync(4, 5, 1)
    for state in (in_sync(4, 5), one_stays, evolve(in_sync(4), leader=-1, elr=(5, 1, 2, 3))):
        with pytest.raises(ApiError) as error:
            cancel_move(moving, 0, image_of(moving, {0: state}), RULES)
        assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unclean = ElectionRules(min_isr=2, unclean=True)
    assert cancel_move(moving, 0, image_of(moving, {0: in_sync(4, 5)}), unclean)[0].partitions[0] == (1, 2, 3)
    after, states = cancel_move(moving, 0, image_of(moving, {0: one_stays}), ElectionRules(min_isr=1))
    assert (after.partitions[0], states[0].leader, states[0].isr) == ((1, 2, 3), 1, (1,))


def test_uncleanly_cancelled_move_keeps_no_member_whose_log_is_deleted() -> None:
    """One that comes again with an empty log would lead as one that is in sync."""
    moving, unclean = begin_move(TOPIC, 0, (4, 5), LIVE), ElectionRules(min_isr=2, unclean=True)
    for known in (in_sync(4, 5), evolve(in_sync(4, 5), suspects=(2, 3))):
        back, states = cancel_move(moving, 0, image_of(moving, {0: known}), unclean)
        state = states[0]
        assert state.leader == NO_LEADER and set(state.members) <= {1, 2, 3} and state.isr
        again = begin_move(back, 0, (4, 5), LIVE)
        after = settled(state, again.partitions[0], image_of(again, {0: state}).brokers, ElectionRules(min_isr=2))
        assert after is None, "none leads before claims"
        uncleanly = settled(state, back.partitions[0], image_of(back, {}).brokers, unclean, is_overdue=True)
        assert uncleanly is not None and uncleanly.leader in (1, 2, 3)
    state = cancel_move(moving, 0, image_of(moving, {0: in_sync(1, 4)}), unclean)[1][0]
    assert (state.leader, state.isr) == (1, (1,))


def test_cancelled_move_without_member_among_new_replicas_is_accepted_under_min_isr() -> None:
    moving = begin_move(TOPIC, 0, (4, 5), LIVE)
    back, _ = cancel_move(moving, 0, image_of(moving, {0: evolve(in_sync(1), elr=(2,))}), RULES)
    assert back.partitions[0] == (1, 2, 3)


def test_members_of_earlier_lives_do_not_count_when_replicas_go() -> None:
    moving = begin_move(TOPIC, 0, (4, 5), LIVE)
    restarted = evolve(in_sync(1, 2, 3, 4, 5), broker_epochs={1: 1, 2: 2, 3: 3, 4: 14, 5: 5})
    assert finished(moving, restarted) is None, "broker 5 lives in a later life than the one in which it was in sync"
    with pytest.raises(ApiError):
        cancel_move(moving, 0, image_of(moving, {0: restarted}), RULES)


def test_cancel_is_decided_again_when_the_isr_changes_before_the_write() -> None:
    tree = MemoryTree()
    ours, theirs = (ClusterRegistry(tree.session(), lambda line: None) for _ in range(2))
    moving = begin_move(TOPIC, 0, (4, 5), LIVE)
    complete(ours.create(moving, {0: in_sync(1, 2, 4, 5), 1: in_sync(2, 3, 1)}))
    complete(theirs.load())
    for registry in (ours, theirs):
        registry.apply(BrokersChanged(brokers=LIVE))
    decided = cancel_move(moving, 0, ours.image, RULES)
    shrunk = {0: evolve(in_sync(4, 5), partition_epoch=1)}
    complete(theirs.change_states(["t"], lambda topic, image: shrunk))
    with pytest.raises(BadVersion):
        complete(ours.move(*decided))
    complete(ours.reread("t"))
    assert ours.image.topic("t").partitions[0] == (4, 5, 1, 2, 3)
    with pytest.raises(ApiError) as error:
        cancel_move(ours.image.topic("t"), 0, ours.image, RULES)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_order_in_which_moves_began_does_not_show() -> None:
    one = begin_move(begin_move(TOPIC, 0, (4, 5), LIVE), 1, (4, 5), LIVE)
    other = begin_move(begin_move(TOPIC, 1, (4, 5), LIVE), 0, (4, 5), LIVE)
    assert encode_topic(one) == encode_topic(other)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_a_move_to_nowhere(target: tuple[int, ...]) -> None:
    with pytest.raises(ApiError) as error:
        begin_move(TOPIC, 0, target, LIVE)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_broker_that_leads_too_few_preferred_partitions_is_found() -> None:
    states = {0: new_state((1, 2, 3), LIVE), 1: evolve(new_state((2, 3, 1), LIVE), leader=3)}
    image = image_of(TOPIC, states)
    assert unbalanced(image, 10) == [TopicPartition("t", 1)]
    assert unbalanced(image, 100) == []
    out_of_sync = image_of(TOPIC, {1: evolve(states[1], isr=(3, 1))})
    assert unbalanced(out_of_sync, 10) == []
