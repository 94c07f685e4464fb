"""Metadata follows the image of the cluster, and keeps what has not changed."""

from collections.abc import Iterator

import pytest
from support.elections import elect_again

from barnabas.app.broker.handlers.metadata import TopicViews
from barnabas.core.cluster.deltas import BrokersChanged, StatesChanged, TopicGone, TopicSet
from barnabas.core.cluster.topics import BrokerRegistration, PartitionState, Topic
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, TopicMetadata
from barnabas.testing.manual_broker import ManualBroker


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    running = ManualBroker()
    running.create("t")
    running.create("u")
    yield running
    running.stop()


def observed(broker: ManualBroker) -> MetadataResult:
    return broker.ask(Metadata(topics=None))


def topic(broker: ManualBroker, name: str) -> TopicMetadata:
    return next(each for each in observed(broker).topics if each.name == name)


def test_nothing_is_made_twice_until_something_changes(broker: ManualBroker) -> None:
    assert observed(broker) is observed(broker)
    t, u = topic(broker, "t"), topic(broker, "u")
    state = broker.node.state
    elect_again(state.registry, "t", 0)
    assert topic(broker, "t").partitions[0].leader_epoch == t.partitions[0].leader_epoch + 1
    assert topic(broker, "u") is u


def test_other_brokers_and_leaders_show(broker: ManualBroker) -> None:
    registry, own = broker.node.state.registry, broker.node.state.node_id
    moved = PartitionState(leader=own + 1, leader_epoch=1, isr=(own + 1,))
    topic_id = registry.image.topic("t").topic_id
    registry.apply(StatesChanged(topic="t", topic_id=topic_id, states={0: moved}, version=0))
    before = observed(broker)
    other = BrokerRegistration(broker_id=own + 1, endpoints=("kafka://other:9092",))
    registry.apply(BrokersChanged(brokers={**registry.image.brokers, own + 1: other}))
    after = observed(broker)
    assert {node.node_id for node in after.brokers} - {node.node_id for node in before.brokers} == {own + 1}
    assert topic(broker, "t").partitions[0].leader == own + 1
    registry.apply(BrokersChanged(brokers={own: registry.image.brokers[own]}))
    assert [node.node_id for node in observed(broker).brokers] == [own]


def test_views_of_deleted_topics_are_evicted(broker: ManualBroker) -> None:
    state = broker.node.state
    views = TopicViews(state)
    for number in range(60):
        away = Topic(name=f"away-{number}", topic_id=number.to_bytes(16, "big"), partitions={0: (state.node_id + 1,)})
        state.registry.apply(TopicSet(topic=away))
        assert views.of(away, operations=False).topic_id == away.topic_id
        state.registry.apply(TopicGone(name=away.name))
    assert len(views._views) < 30
