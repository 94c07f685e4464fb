"""The broker follows what others change in the coordination tree while it runs."""

from collections.abc import Iterator

import pytest
from support.coordination_faults import BlockingCoordination

from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import BrokerRegistration, Topic
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.coordination import Coordination
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

NONE = ErrorCode.NONE


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    running = ManualBroker(wrap_session=BlockingCoordination, shared=True)
    running.scheduler.advance(1000)
    running.create("t")
    yield running
    running.stop()


@pytest.fixture
def other(broker: ManualBroker) -> Iterator[Coordination]:
    """Another session with the same tree."""
    session = broker.tree.session()
    yield session
    session.close()


def a_moment(broker: ManualBroker) -> None:
    broker.scheduler.run_pending()
    broker.scheduler.advance(500)
    broker.scheduler.run_pending()


def node_of(name: str, partitions: int = 2) -> bytes:
    return layout.encode_topic(
        Topic(name=name, topic_id=b"made by somebody", partitions=dict.fromkeys(range(partitions), (1,)))
    )


def test_brokers_come_and_go(broker: ManualBroker, other: Coordination) -> None:
    def ids() -> list[int]:
        return [node.node_id for node in broker.ask(Metadata(topics=[])).brokers]

    assert ids() == [1]
    second = BrokerRegistration(broker_id=2, endpoints=("kafka://second:9092",), rack="r")
    other.create(layout.broker_path(2), layout.encode_broker(second), ephemeral=True)
    a_moment(broker)
    assert ids() == [1, 2]
    assert broker.node.state.racks() == {1: None, 2: "r"}
    other.close()
    a_moment(broker)
    assert ids() == [1]


def test_configs_of_brokers_count_from_the_moment_they_are_set(broker: ManualBroker, other: Coordination) -> None:
    def segment_bytes() -> int:
        return broker.node.state.replicas.partitions["t", 0].log.config.segment_bytes

    other.create(layout.broker_config_path(None), layout.encode_configs({"log.segment.bytes": "20000"}))
    a_moment(broker)
    assert segment_bytes() == 20000
    other.create(layout.broker_config_path(1), layout.encode_configs({"log.segment.bytes": "30000"}))
    a_moment(broker)
    assert segment_bytes() == 30000
    other.set(layout.broker_config_path(1), b"junk")
    a_moment(broker)
    assert segment_bytes() == 20000
    assert any("does not hold configs" in line for line in broker.reports)


def test_configs_of_groups_count_from_the_moment_they_are_set(broker: ManualBroker, other: Coordination) -> None:
    def limit() -> int:
        return broker.node.api.group_configs.get("a.b/c").share_delivery_count_limit

    path = layout.entity_path(layout.EntityKind.GROUP_CONFIGS, "a.b/c")
    assert path == "/barnabas/config/groups/a.b%2Fc"
    other.create(path, layout.encode_entity({"configs": {"share.delivery.count.limit": "7"}}))
    a_moment(broker)
    assert limit() == 7
    for nonsense in ({"configs": {"share.delivery.count.limit": "x", "no.key": "1", "n": 1}}, {"configs": 5}, {}):
        other.set(path, layout.encode_entity(nonsense))
        a_moment(broker)
        assert limit() == 5
    other.set(path, layout.encode_entity({"configs": {"share.delivery.count.limit": "9"}}))
    a_moment(broker)
    assert limit() == 9
    other.set(path, b"junk")
    a_moment(broker)
    assert limit() == 5
    assert any("ignored a stored configuration of group a.b/c" in line for line in broker.reports)


def test_topic_node_created_externally_is_served(broker: ManualBroker, other: Coordination) -> None:
    other.create(layout.topic_path("by-hand"), node_of("by-hand"))
    a_moment(broker)
    assert len(broker.ask(Metadata(topics=["by-hand"])).topics[0].partitions) == 2
    assert broker.produce("by-hand", b"x").error is NONE
    broker.restart()
    assert broker.values("by-hand") == [b"x"]


def test_a_node_that_makes_no_sense_is_named_and_can_be_removed(broker: ManualBroker, other: Coordination) -> None:
    other.create(layout.topic_path("bad"), b"junk")
    a_moment(broker)
    assert broker.node.state.image.unreadable == {"bad"}
    assert any("/barnabas/topics/bad" in line for line in broker.reports)
    other.delete(layout.topic_path("bad"))
    a_moment(broker)
    assert broker.node.state.image.unreadable == frozenset()
    broker.create("bad")


def test_a_topic_that_is_removed_by_hand_keeps_its_data(broker: ManualBroker, other: Coordination) -> None:
    assert broker.produce("t", b"kept").error is NONE
    data = other.get(layout.topic_path("t")).data
    other.delete(layout.topic_path("t"))
    a_moment(broker)
    a_moment(broker)
    assert broker.values("t") == [b"kept"]
    assert sum("was removed by hand" in line for line in broker.reports) == 1
    other.create(layout.topic_path("t"), data)
    a_moment(broker)
    broker.restart()
    assert broker.values("t") == [b"kept"]


def test_folders_of_a_topic_that_comes_back_are_left_alone(broker: ManualBroker, other: Coordination) -> None:
    broker.create("kept")
    assert broker.produce("t", b"kept").error is NONE
    data = other.get(layout.topic_path("t")).data
    broker.stop()
    other.delete(layout.topic_path("t"))
    broker.node = broker._started()
    a_moment(broker)
    other.create(layout.topic_path("t"), data)
    a_moment(broker)
    assert any("restart the broker to open them" in line for line in broker.reports)
    broker.restart()
    assert broker.values("t") == [b"kept"]


def test_a_classic_broker_sees_the_topics_of_the_other(broker: ManualBroker, other: Coordination) -> None:
    classic = ManualBroker(
        tree=broker.tree,
        listeners="classic://broker:9093",
        broker_id=2,
        coordination="zookeeper://shared:2181",
        wrap_session=BlockingCoordination,
        shared=True,
    )
    a_moment(classic)
    broker.create("u")
    a_moment(classic)
    assert set(classic.node.state.image.topics) == {"t", "u"}
    assert classic.node.state.replicas.partitions == {}
    assert broker.ask(DeleteTopics(names=["u"])).topics[0].error is NONE
    a_moment(classic)
    assert set(classic.node.state.image.topics) == {"t"}
    classic.stop()


def test_own_changes_are_not_read_one_by_one(broker: ManualBroker) -> None:
    session = broker.node.coordination
    assert isinstance(session, BlockingCoordination)

    def readings() -> int:
        return [name for name, _ in session.calls].count("get")

    a_moment(broker)
    for number in range(50):
        broker.create(f"own-{number}")
    before = readings()
    a_moment(broker)
    assert readings() == before


def test_broker_sees_new_topics_after_coordination_outage(broker: ManualBroker, other: Coordination) -> None:
    session = broker.node.coordination
    assert isinstance(session, BlockingCoordination)
    session.down = True
    other.create(layout.topic_path("by-hand"), node_of("by-hand"))
    a_moment(broker)
    assert "by-hand" not in broker.node.state.image.topics
    session.down = False
    broker.scheduler.advance(5000)
    assert "by-hand" in broker.node.state.image.topics
