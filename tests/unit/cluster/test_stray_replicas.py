import pytest
from attrs import evolve

from barnabas.core.cluster.deltas import BrokersChanged, StatesChanged, TopicSet
from barnabas.core.cluster.election import ElectionRules, new_state
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.stray_replicas import has_all_records, why_orphan_is_stray, why_stray
from barnabas.core.cluster.topics import NO_LEADER, BrokerRegistration, PartitionState, Topic
from barnabas.ports.broker_api.epochs import EpochEndOffset
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

LIVE = {number: BrokerRegistration(broker_id=number, endpoints=(), broker_epoch=number + 10) for number in range(1, 5)}
TOPIC = Topic(name="t", topic_id=b"t" * 16, partitions={0: (1, 2)})
KEY = TopicPartition("t", 0)
LED = new_state((1, 2), LIVE)


def why(
    *, own: int = 4, state: PartitionState = LED, topic: Topic = TOPIC, key: TopicPartition = KEY, min_isr: int = 2
) -> str | None:
    image = ClusterImage().after(BrokersChanged(brokers=LIVE)).after(TopicSet(topic=topic))
    image = image.after(StatesChanged(topic="t", topic_id=topic.topic_id, states={0: state}, version=0))
    return why_stray(image, key, b"t" * 16, own, ElectionRules(min_isr=min_isr))


def test_log_of_a_partition_that_others_have_and_lead_is_stray() -> None:
    assert why() == "the current replica assignment [1, 2] does not contain the local brokerId 4"


@pytest.mark.parametrize("own", [1, 2])
def test_log_of_an_assigned_replica_is_not_stray(own: int) -> None:
    assert why(own=own) is None


@pytest.mark.parametrize(
    "state",
    [
        evolve(LED, leader=NO_LEADER),
        evolve(LED, leader=3),
        evolve(LED, broker_epochs={1: 11, 2: 5}),
        evolve(LED, broker_epochs={1: 5, 2: 12}),
        evolve(LED, isr=(1, 2, 4)),
        evolve(LED, elr=(4,)),
        evolve(LED, suspects=(4,)),
    ],
)
def test_log_is_not_stray_while_its_partition_may_need_it(state: PartitionState) -> None:
    assert why(state=state) is None


def test_log_of_another_topic_or_of_an_unknown_partition_may_be_stray() -> None:
    assert why(topic=evolve(TOPIC, topic_id=b"u" * 16)) is None
    assert why(key=TopicPartition("t", 7)) is None
    assert why(key=TopicPartition("u", 0)) is None


@pytest.mark.parametrize(
    ("latest_epoch", "log_end", "answer", "expected"),
    [
        (3, 10, (3, 10), True),
        (3, 10, (3, 12), True),
        (3, 10, (3, 9), False),
        (3, 10, (2, 12), False),
        (3, 10, (-1, -1), False),
        (-1, 0, (-1, -1), True),
        (-1, 5, (0, 9), False),
    ],
)
def test_leader_has_all_records_of_a_log_where_its_epoch_ends_no_earlier(
    latest_epoch: int, log_end: int, answer: tuple[int, int], expected: bool
) -> None:
    end = EpochEndOffset(topic="t", partition=0, leader_epoch=answer[0], end_offset=answer[1])
    assert has_all_records(latest_epoch, log_end, end) is expected


def test_leader_that_answers_with_an_error_proves_nothing() -> None:
    error = EpochEndOffset(topic="t", partition=0, error=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=3, end_offset=10)
    assert has_all_records(3, 10, error) is False


@pytest.mark.parametrize(
    ("topic", "topic_id", "expected"),
    [
        (TOPIC, b"u" * 16, True),
        (TOPIC, b"t" * 16, False),
        (TOPIC, None, False),
        (None, b"t" * 16, False),
    ],
)
def test_orphan_is_stray_where_another_topic_has_its_name(
    topic: Topic | None, topic_id: bytes | None, expected: bool
) -> None:
    cause = why_orphan_is_stray(topic, topic_id)
    assert (cause is not None and "topic t has the topicId" in cause) is expected
