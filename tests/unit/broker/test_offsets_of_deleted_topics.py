"""Committed offsets do not outlive their topic, whichever broker coordinates the group at its deletion."""

from collections.abc import Iterator, Sequence

import pytest
from attrs import evolve
from support.group_requests import commit, committed, committing, find, load_error, offsets_partition_of
from support.replica_harness import led_in_sync

from barnabas.core.cluster.deltas import TopicDeleting, TopicSet
from barnabas.core.cluster.layout import topic_path
from barnabas.core.coordinator.group.records import StoredOffset, encode_offset, encode_offset_key
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.replica.leader.appender import ALL_IN_SYNC
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.produce import ProducePartition
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.coordination import Coordination, CoordinationError, Node
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

HERE, ELSEWHERE = 1, 2
TP = offsets_partition_of("g")
T0 = ("t", 0)


class Session:
    """A session of the tree that may fail, and whose reads of a topic's node may be behind."""

    def __init__(self, session: Coordination) -> None:
        self._session = session
        self.is_lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if self.is_lost and topic_path("t") in paths:
            raise CoordinationError("no answer")
        return self._session.get_many(paths)


@pytest.fixture
def sessions() -> list[Session]:
    return []


@pytest.fixture
def broker(sessions: list[Session]) -> Iterator[ManualBroker]:
    def wrap(session: Coordination) -> Coordination:
        sessions.append(Session(session))
        return sessions[-1]  # type: ignore[return-value]

    simulated = ManualBroker(group_initial_rebalance_delay_ms=0, wrap_session=wrap)
    simulated.create("t", 2)
    find(simulated)
    yield simulated
    simulated.stop()


def partition_of(broker: ManualBroker) -> Partition:
    return broker.node.state.replicas.partitions[TP]


def led_by(broker: ManualBroker, leader: int) -> None:
    led_in_sync(broker.node.state.replicas, partition_of(broker), (HERE,), leader=leader, epochs=1)
    broker.scheduler.run_pending()


def make_again(broker: ManualBroker) -> None:
    assert broker.ask(DeleteTopics(names=["t"])).topics[0].error is ErrorCode.NONE
    broker.create("t", 2)


def test_offsets_of_a_topic_deleted_while_another_broker_coordinated_are_dropped_at_load(broker: ManualBroker) -> None:
    broker.create("u")
    assert commit(broker, "g", {T0: 5, ("u", 0): 6}) == [ErrorCode.NONE] * 2
    led_by(broker, ELSEWHERE)
    make_again(broker)
    led_by(broker, HERE)
    assert committed(broker, "g") == {("u", 0): 6}
    assert commit(broker, "g", {T0: 1}) == [ErrorCode.NONE]
    led_by(broker, ELSEWHERE)
    led_by(broker, HERE)
    assert committed(broker, "g") == {T0: 1, ("u", 0): 6}, "its tombstone stands before the new offset"


def test_offsets_whose_tombstones_failed_are_dropped_at_the_next_load(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(broker, "g", {T0: 5}) == [ErrorCode.NONE]
    with monkeypatch.context() as failing:
        failing.setattr(Partition, "under_min_isr", property(lambda _: True))
        make_again(broker)
    assert "could not be written: NOT_ENOUGH_REPLICAS" in broker.reports[-1]
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {}


def test_offsets_without_a_topic_id_stay_while_the_topic_exists(broker: ManualBroker) -> None:
    records = [(encode_offset_key("g", name, 0), encode_offset(StoredOffset(7))) for name in ("t", "gone")]
    keys, values = zip(*records, strict=True)
    batch = encode_columns(list(values), keys=list(keys), now_ms=broker.clock.now_ms())
    entry = ProducePartition(*TP, memoryview(batch))
    broker.node.state.replicas.append([entry], print, acks=ALL_IN_SYNC, timeout_ms=0, origin=AppendOrigin.BROKER)
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {T0: 7}


def test_groups_stay_loading_until_the_tree_says_which_topics_there_are(
    broker: ManualBroker, sessions: list[Session]
) -> None:
    assert commit(broker, "g", {T0: 5}) == [ErrorCode.NONE]
    led_by(broker, ELSEWHERE)
    make_again(broker)
    sessions[-1].is_lost = True
    led_by(broker, HERE)
    assert load_error(broker, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    sessions[-1].is_lost = False
    broker.wait(2000)
    assert committed(broker, "g") == {}
    assert "checking the topics of committed offsets failed" in broker.reports[-1]


def test_a_broker_that_resigns_while_it_checks_the_topics_serves_nothing(
    broker: ManualBroker, sessions: list[Session]
) -> None:
    assert commit(broker, "g", {T0: 5}) == [ErrorCode.NONE]
    led_by(broker, ELSEWHERE)
    make_again(broker)
    sessions[-1].is_lost = True
    led_by(broker, HERE)
    led_by(broker, ELSEWHERE)
    sessions[-1].is_lost = False
    broker.wait(2000)
    assert load_error(broker, "g") is ErrorCode.NOT_COORDINATOR
    assert broker.submit(committing("g", {T0: 6}))[0].partitions[0].error is ErrorCode.NOT_COORDINATOR


def test_an_image_that_is_behind_does_not_cost_the_offsets_of_a_new_topic(broker: ManualBroker) -> None:
    """The records name a topic that this broker has not heard of yet; the tree has it."""
    assert commit(broker, "g", {T0: 5}) == [ErrorCode.NONE]
    registry = broker.node.state.registry
    image = registry.image
    led_by(broker, ELSEWHERE)
    registry.image = image._without("t", image.version)
    led_by(broker, HERE)
    registry.image = image
    assert committed(broker, "g") == {T0: 5}


def test_offsets_go_when_the_broker_hears_of_a_topic_only_that_it_is_being_deleted(broker: ManualBroker) -> None:
    """It has missed the end of the topic that it knows, and the beginning of the next one of that name."""
    assert commit(broker, "g", {T0: 5}) == [ErrorCode.NONE]
    registry = broker.node.state.registry
    first = registry.image.topics["t"]
    registry.apply(TopicDeleting(topic=evolve(first, topic_id=bytes(15) + b"2")))
    registry.apply(TopicSet(topic=evolve(first, topic_id=bytes(15) + b"3")))
    assert committed(broker, "g") == {}
