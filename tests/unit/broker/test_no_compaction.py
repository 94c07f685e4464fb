"""Compaction is refused wherever it could be asked for; the broker's own topics are compacted ones by name."""

import pytest
from support.simulated_broker import SimulatedBroker

from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.topics import INTERNAL_TOPICS
from barnabas.ports.broker_api import (
    AlterConfigs,
    ConfigAlteration,
    ConfigDescription,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    CreateTopics,
    DescribeConfigs,
    FindCoordinator,
    IncrementalAlterConfigs,
    NewTopic,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError

OFFSETS = "__consumer_offsets"
TEXT = "does not compact logs yet; take delete"


@pytest.fixture
def broker() -> SimulatedBroker:
    simulated = SimulatedBroker()
    simulated.create("t")
    return simulated


def topic(name: str) -> ConfigResource:
    return ConfigResource(kind=ResourceKind.TOPIC, name=name)


def alter(broker: SimulatedBroker, resource: ConfigResource, key: str, value: str, op: int) -> ResourceOutcome:
    change = ConfigAlteration(resource=resource, name=key, value=value, op=op)
    (outcome,) = broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change])).resources
    return outcome


def assert_refused(outcome: ResourceOutcome) -> None:
    assert outcome.error is ErrorCode.INVALID_CONFIG
    assert TEXT in (outcome.error_message or "")


@pytest.mark.parametrize("policy", ["compact", "compact,delete", " delete , compact "])
def test_for_a_new_topic(broker: SimulatedBroker, policy: str) -> None:
    new = NewTopic(name="new", configs={"cleanup.policy": policy})
    for validate_only in (True, False):
        (refused,) = broker.ask(CreateTopics(topics=[new], validate_only=validate_only)).topics
        assert refused.error is ErrorCode.INVALID_CONFIG
        assert TEXT in (refused.error_message or "")
    assert "new" not in broker.node.state.image.topics


@pytest.mark.parametrize("op", [ConfigOp.SET, ConfigOp.APPEND])
def test_for_a_topic_that_is_there(broker: SimulatedBroker, op: ConfigOp) -> None:
    assert_refused(alter(broker, topic("t"), "cleanup.policy", "compact", op))
    assert alter(broker, topic("t"), "cleanup.policy", "delete", op).error is ErrorCode.NONE


def test_for_all_settings_of_a_topic_at_once(broker: SimulatedBroker) -> None:
    wanted = ConfigReplacement(resource=topic("t"), configs={"cleanup.policy": "compact"})
    (refused,) = broker.ask(AlterConfigs(resources=[wanted])).resources
    assert_refused(refused)


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize("op", [ConfigOp.SET, ConfigOp.APPEND])
def test_for_brokers(broker: SimulatedBroker, name: str, op: ConfigOp) -> None:
    resource = ConfigResource(kind=ResourceKind.BROKER, name=name)
    assert_refused(alter(broker, resource, "log.cleanup.policy", "compact", op))
    assert alter(broker, resource, "log.cleanup.policy", "delete", op).error is ErrorCode.NONE


def test_for_the_default_of_a_broker() -> None:
    with pytest.raises(ConfigError, match=f"log.cleanup.policy=compact.*{TEXT}"):
        SimulatedBroker(log_cleanup_policy="compact")


def test_the_topic_of_offsets_shows_as_compacted(broker: SimulatedBroker) -> None:
    assert broker.ask(FindCoordinator(keys=["g"])).coordinators[0].error is ErrorCode.NONE
    (shown,) = broker.ask(DescribeConfigs(resources=[ConfigDescription(resource=topic(OFFSETS))])).resources
    assert {entry.name: entry.value for entry in shown.entries}["cleanup.policy"] == "compact"
    assert alter(broker, topic(OFFSETS), "cleanup.policy", "compact", ConfigOp.SET).error is ErrorCode.NONE
    assert OFFSETS in INTERNAL_TOPICS


def test_a_topic_that_was_made_compacted_before_can_be_changed(broker: SimulatedBroker) -> None:
    complete(broker.node.state.registry.set_configs("t", {"cleanup.policy": "compact"}))
    assert broker.ask(FindCoordinator(keys=["g"])).coordinators[0].error is ErrorCode.NONE
    broker.restart()
    (line,) = [line for line in broker.reports if "compacted" in line]
    assert "topic t is to be compacted, which this broker does not do yet" in line
    assert alter(broker, topic("t"), "retention.ms", "5", ConfigOp.SET).error is ErrorCode.NONE
    assert alter(broker, topic("t"), "cleanup.policy", "delete", ConfigOp.SET).error is ErrorCode.NONE
    assert_refused(alter(broker, topic("t"), "cleanup.policy", "compact", ConfigOp.SET))
