"""To which generation a topic belongs, and which brokers may change topics."""

import pytest
from support.waiting import wait_for

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigDescription,
    ConfigOp,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ResourceKind,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.topics import CreatedTopic, CreateTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.testing.manual_broker import ManualBroker

FORMAT = "message.format"
UNSUPPORTED = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def create(broker: ManualBroker, name: str, partitions: int = -1, **configs: str) -> CreatedTopic:
    dotted: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    return broker.ask(CreateTopics(topics=[NewTopic(name=name, partitions=partitions, configs=dotted)])).topics[0]


def alter(broker: ManualBroker, name: str, value: str | None, op: ConfigOp = ConfigOp.SET) -> ErrorCode:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=name)
    change = ConfigAlteration(resource=resource, name=FORMAT, value=value, op=op)
    return broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change])).resources[0].error


def configs(broker: ManualBroker, name: str) -> dict[str, str | None]:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=name)
    found = broker.ask(DescribeConfigs(resources=[ConfigDescription(resource=resource)])).resources[0]
    return {entry.name: entry.value for entry in found.entries}


def generations(broker: ManualBroker) -> dict[str, str]:
    """By what the broker does with a topic."""
    found = {}
    for name in broker.node.state.image.topics:
        error = broker.produce(name, b"x").error
        assert error in (ErrorCode.NONE, UNSUPPORTED)
        found[name] = "classic" if error is UNSUPPORTED else "v2"
    return found


def test_a_topic_that_is_created_as_a_classic_one() -> None:
    broker = ManualBroker(topic_partition_count_map="listed:3", topic_log_file_size="listed:500")
    assert create(broker, "old", 2, message_format="classic").error is ErrorCode.NONE
    assert create(broker, "new").error is ErrorCode.NONE
    assert create(broker, "listed", message_format="classic").partitions == 3
    for name in ("old", "listed"):
        assert broker.produce(name, b"x").error is UNSUPPORTED
        assert broker.fetch(name).partitions[0].error is UNSUPPORTED
        asked = ListOffsetsPartition(topic=name, partition=0, timestamp=LATEST)
        assert broker.ask(ListOffsets(partitions=[asked])).partitions[0].error is UNSUPPORTED
    topic = broker.ask(Metadata(topics=["old"])).topics[0]
    assert (topic.error, [each.leader for each in topic.partitions]) == (ErrorCode.NONE, [1, 1])
    assert generations(broker) == {"old": "classic", "new": "v2", "listed": "classic"}
    observed = configs(broker, "listed")
    assert (observed[FORMAT], observed["segment.bytes"], observed["flush.messages"]) == ("classic", "500", "500")


def test_topics_keep_their_generation_whatever_the_broker_makes_by_default() -> None:
    broker = ManualBroker()
    create(broker, "made-by-default")
    create(broker, "made-classic", message_format="classic")
    broker.settings = {"message_format": "classic"}
    broker.restart()
    create(broker, "classic-by-default")
    create(broker, "made-v2", message_format="v2")
    expected = {"made-by-default": "v2", "made-classic": "classic", "classic-by-default": "classic", "made-v2": "v2"}
    assert generations(broker) == expected
    assert {name: configs(broker, name)[FORMAT] for name in expected} == expected
    broker.settings = {}
    broker.restart()
    assert generations(broker) == expected
    assert {name: configs(broker, name)[FORMAT] for name in expected} == expected


def test_where_topics_are_classic_the_current_generation_makes_none_by_asking_for_them() -> None:
    broker = ManualBroker(message_format="classic")
    assert broker.ask(Metadata(topics=["t"])).topics[0].error is UNSUPPORTED
    assert broker.ask(Metadata(topics=["t"], allow_auto_topic_creation=False)).topics[0].error is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert broker.node.state.image.topics == {}


def test_the_generation_of_a_topic_cannot_change() -> None:
    broker = ManualBroker()
    create(broker, "old", message_format="classic")
    create(broker, "new")
    assert alter(broker, "old", "v2") is ErrorCode.INVALID_CONFIG
    assert alter(broker, "old", None, ConfigOp.DELETE) is ErrorCode.INVALID_CONFIG
    assert alter(broker, "new", "classic") is ErrorCode.INVALID_CONFIG
    assert alter(broker, "old", "classic") is ErrorCode.NONE
    assert alter(broker, "new", "v2") is ErrorCode.NONE
    assert alter(broker, "new", None, ConfigOp.DELETE) is ErrorCode.NONE
    assert generations(broker) == {"old": "classic", "new": "v2"}


def test_classic_topics_cannot_be_compacted() -> None:
    refused = create(ManualBroker(), "t", message_format="classic", cleanup_policy="compact")
    assert refused.error is ErrorCode.INVALID_CONFIG
    assert "no keys" in (refused.error_message or "")


# --- brokers that share a tree


def test_a_tree_for_one_broker_is_not_shared() -> None:
    tree = MemoryTree()
    first = ManualBroker(tree=tree, broker_id=1)
    create(first, "t")
    with pytest.raises(ConfigError, match="another broker uses this tree, which is for one"):
        ManualBroker(tree=tree, broker_id=2)
    with pytest.raises(ApiError, match=r"broker.id 1 is taken"):
        ManualBroker(tree=tree, broker_id=1, listeners="kafka://elsewhere:9092")
    assert first.node.ready
    first.stop()
    second = ManualBroker(tree=tree, broker_id=2)
    assert set(second.node.state.image.topics) == {"t"}


def test_brokers_with_classic_listeners_only_may_be_many_and_change_nothing() -> None:
    tree = MemoryTree()
    owner = ManualBroker(tree=tree, broker_id=1)
    create(owner, "t", 2)
    create(owner, "old", 2, message_format="classic")
    remote = "zookeeper://only.its.name:2181/counts"
    others = [
        ManualBroker(tree=tree, broker_id=number, listeners="classic://broker:6667", coordination=remote, shared=True)
        for number in (2, 3)
    ]
    for other in others:
        assert create(other, "u").error is ErrorCode.NOT_CONTROLLER
        assert "kafka:// listener" in (create(other, "u").error_message or "")
        assert other.node.state.classic.partitions("old") == 2
        assert other.node.state.replicas.partitions == {}
        assert other.disk.folders == {}
        other.restart()
    assert create(owner, "u").error is ErrorCode.NONE
    assert tree.session().children("/barnabas/brokers/ids") == ["1"]


def test_a_broker_is_shown_again_after_its_session_expired() -> None:
    tree = MemoryTree()
    broker = ManualBroker(tree=tree)
    eyes = tree.session()
    paths = ("/barnabas/brokers/ids/1", "/barnabas/controller")
    before = [eyes.get(path).data for path in paths]
    session = broker.node.coordination
    tree.expire(session)  # type: ignore[arg-type]  # a session of this tree

    def shown() -> bool:
        broker.scheduler.advance(100)
        return eyes.children("/barnabas/brokers/ids") == ["1"] and "controller" in eyes.children("/barnabas")

    wait_for(shown)
    assert [eyes.get(path).data for path in paths] == before
    assert create(broker, "t").error is ErrorCode.NONE
