"""Compaction can be asked for wherever Kafka lets one; topics of the classic generation have no keys to compact by."""

import pytest

from barnabas.core.cluster.topics import INTERNAL_TOPICS
from barnabas.core.log.config import LogConfig
from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigDescription,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.broker_api.groups import FindCoordinator
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker

OFFSETS = "__consumer_offsets"


@pytest.fixture
def broker() -> ManualBroker:
    simulated = ManualBroker()
    simulated.create("t")
    return simulated


def topic(name: str) -> ConfigResource:
    return ConfigResource(kind=ResourceKind.TOPIC, name=name)


def alter(broker: ManualBroker, resource: ConfigResource, key: str, value: str, op: int) -> ResourceOutcome:
    change = ConfigAlteration(resource=resource, name=key, value=value, op=op)
    (outcome,) = broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change])).resources
    return outcome


def config_of(broker: ManualBroker, name: str) -> LogConfig:
    log = broker.node.state.logs.get(TopicPartition(name, 0))
    assert log is not None
    return log.config


@pytest.mark.parametrize("policy", ["compact", "compact,delete", " delete , compact "])
def test_for_a_new_topic(broker: ManualBroker, policy: str) -> None:
    new = NewTopic(name="new", configs={"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.25"})
    (made,) = broker.ask(CreateTopics(topics=[new])).topics
    assert made.error is ErrorCode.NONE
    config = config_of(broker, "new")
    assert config.compacted
    assert ("delete" in config.cleanup_policy) == ("delete" in policy)
    assert config.min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize("op", [ConfigOp.SET, ConfigOp.APPEND])
def test_cleanup_policy_of_existing_topic_can_be_altered(broker: ManualBroker, op: ConfigOp) -> None:
    assert alter(broker, topic("t"), "cleanup.policy", "compact", op).error is ErrorCode.NONE
    assert config_of(broker, "t").compacted
    assert alter(broker, topic("t"), "cleanup.policy", "delete", ConfigOp.SET).error is ErrorCode.NONE
    assert not config_of(broker, "t").compacted


def test_for_all_settings_of_a_topic_at_once(broker: ManualBroker) -> None:
    wanted = ConfigReplacement(resource=topic("t"), configs={"cleanup.policy": "compact", "max.compaction.lag.ms": "9"})
    (done,) = broker.ask(AlterConfigs(resources=[wanted])).resources
    assert done.error is ErrorCode.NONE
    assert config_of(broker, "t").roll_ms == 9


@pytest.mark.parametrize("name", ["1", ""])
def test_cleaner_configs_of_brokers_can_be_altered(broker: ManualBroker, name: str) -> None:
    resource = ConfigResource(kind=ResourceKind.BROKER, name=name)
    assert alter(broker, resource, "log.cleanup.policy", "compact", ConfigOp.SET).error is ErrorCode.NONE
    assert alter(broker, resource, "log.cleaner.threads", "0", ConfigOp.SET).error is ErrorCode.NONE
    assert config_of(broker, "t").compacted
    settings = broker.node.state.settings.cleaner
    assert (settings.threads, settings.dedupe_buffer_bytes) == (0, 134_217_728)
    assert alter(broker, resource, "log.cleaner.enable", "false", ConfigOp.SET).error is not ErrorCode.NONE


def test_classic_topics_refuse_it(broker: ManualBroker) -> None:
    classic = {"cleanup.policy": "compact", "message.format": "classic"}
    (refused,) = broker.ask(CreateTopics(topics=[NewTopic(name="new", configs=classic)])).topics
    assert refused.error is ErrorCode.INVALID_CONFIG
    assert "have no keys to compact by" in (refused.error_message or "")


def test_the_topic_of_offsets_is_compacted(broker: ManualBroker) -> None:
    assert broker.ask(FindCoordinator(keys=["g"])).coordinators[0].error is ErrorCode.NONE
    (shown,) = broker.ask(DescribeConfigs(resources=[ConfigDescription(resource=topic(OFFSETS))])).resources
    assert {entry.name: entry.value for entry in shown.entries}["cleanup.policy"] == "compact"
    assert OFFSETS in INTERNAL_TOPICS
    assert config_of(broker, OFFSETS).compacted
