from collections.abc import Mapping

import pytest
from attrs import evolve

from barnabas.core.cluster.balance import unbalanced
from barnabas.core.cluster.deltas import BrokersChanged, StatesChanged, TopicSet
from barnabas.core.cluster.election import ElectionRules, new_state
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.layout import encode_topic
from barnabas.core.cluster.moves import begin_move, cancel_move, finished_moves, is_moving, origin_of, target_of
from barnabas.core.cluster.topics import BrokerRegistration, PartitionState, Topic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.words import TopicPartition

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


def test_a_leader_that_stays_goes_on_leading() -> None:
    moving = begin_move(TOPIC, 0, (1, 4), LIVE)
    in_sync = evolve(new_state((1, 2, 3, 4), LIVE))
    done = finished(moving, in_sync)
    assert done is not None
    assert (done[1][0].leader, done[1][0].leader_epoch, done[1][0].isr) == (1, 0, (1, 4))


def test_another_order_is_a_move_that_is_done_at_once() -> None:
    moving = begin_move(TOPIC, 0, (3, 2, 1), LIVE)
    assert not is_moving(moving, 0) and moving.partitions[0] == (3, 2, 1)


def test_a_move_is_replaced_or_taken_back() -> None:
    moving = begin_move(TOPIC, 0, (4, 2, 5), LIVE)
    other = begin_move(moving, 0, (1, 2, 5), LIVE)
    assert (other.partitions[0], other.adding, other.removing) == ((1, 2, 5, 3), {0: (5,)}, {0: (3,)})
    back = cancel_move(other, 0)
    assert set(back.partitions[0]) == {1, 2, 3} and not is_moving(back, 0)
    with pytest.raises(ApiError) as error:
        cancel_move(back, 0)
    assert error.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_the_order_in_which_moves_began_does_not_show() -> None:
    one = begin_move(begin_move(TOPIC, 0, (4, 5), LIVE), 1, (4, 5), LIVE)
    other = begin_move(begin_move(TOPIC, 1, (4, 5), LIVE), 0, (4, 5), LIVE)
    assert encode_topic(one) == encode_topic(other)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_a_move_to_nowhere(target: tuple[int, ...]) -> None:
    with pytest.raises(ApiError) as error:
        begin_move(TOPIC, 0, target, LIVE)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_who_leads_too_few_of_those_that_it_should() -> None:
    states = {0: new_state((1, 2, 3), LIVE), 1: evolve(new_state((2, 3, 1), LIVE), leader=3)}
    image = image_of(TOPIC, states)
    assert unbalanced(image, 10) == [TopicPartition("t", 1)]
    assert unbalanced(image, 100) == []
    out_of_sync = image_of(TOPIC, {1: evolve(states[1], isr=(3, 1))})
    assert unbalanced(out_of_sync, 10) == []
