"""AlterConfigs: what is named is set, everything else goes back to its default."""

from collections.abc import Iterator, Mapping

import pytest

from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    ConfigReplacement,
    ConfigResource,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

TOPIC = ConfigResource(kind=ResourceKind.TOPIC, name="t")
BROKER = ConfigResource(kind=ResourceKind.BROKER, name="1")
ALL_BROKERS = ConfigResource(kind=ResourceKind.BROKER, name="")


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker()
    simulated.create("t", retention_ms="5000", segment_bytes="1048576")
    yield simulated
    simulated.stop()


def replace(
    broker: ManualBroker,
    resource: ConfigResource,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> ResourceOutcome:
    wanted = ConfigReplacement(resource=resource, configs=configs)
    return broker.ask(AlterConfigs(resources=[wanted], validate_only=validate_only)).resources[0]


def overrides(broker: ManualBroker, topic: str = "t") -> Mapping[str, str]:
    return broker.node.state.image.topic(topic).configs


def test_replace_configs_of_topic_drops_unlisted_overrides(broker: ManualBroker) -> None:
    log = broker.node.state.replicas.partitions[("t", 0)].log
    assert replace(broker, TOPIC, {"retention.ms": "7000"}, validate_only=True).error is ErrorCode.NONE
    assert overrides(broker) == {"retention.ms": "5000", "segment.bytes": "1048576"}
    assert replace(broker, TOPIC, {"retention.ms": "7000", "max.message.bytes": "100"}).error is ErrorCode.NONE
    assert overrides(broker) == {"retention.ms": "7000", "max.message.bytes": "100"}
    assert (log.config.retention_ms, log.config.segment_bytes) == (7000, 1 << 30)
    assert replace(broker, TOPIC, {}).error is ErrorCode.NONE
    assert overrides(broker) == {}


def test_replace_configs_of_brokers_drops_unlisted_overrides(broker: ManualBroker) -> None:
    log = broker.node.state.replicas.partitions[("t", 0)].log
    assert replace(broker, TOPIC, {}).error is ErrorCode.NONE
    assert replace(broker, ALL_BROKERS, {"log.retention.ms": "70"}).error is ErrorCode.NONE
    assert replace(broker, BROKER, {"log.retention.ms": "60"}).error is ErrorCode.NONE
    assert log.config.retention_ms == 60
    assert replace(broker, BROKER, {"log.segment.bytes": "1048576"}).error is ErrorCode.NONE
    assert (log.config.retention_ms, log.config.segment_bytes) == (70, 1048576)
    assert replace(broker, ALL_BROKERS, {}).error is ErrorCode.NONE
    assert log.config.retention_ms == 604_800_000
    broker.restart()
    restarted = broker.node.state.replicas.partitions[("t", 0)].log
    assert (restarted.config.retention_ms, restarted.config.segment_bytes) == (604_800_000, 1048576)


@pytest.mark.parametrize(
    ("resource", "configs", "expected"),
    [
        (TOPIC, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, {"no.such.key": "1"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        (BROKER, {"listeners": "kafka://a:1"}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(kind=ResourceKind.TOPIC, name="nowhere"), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(kind=ResourceKind.BROKER, name="2"), {}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(kind=16, name="x"), {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_replacement_changes_no_config(
    broker: ManualBroker, resource: ConfigResource, configs: Mapping[str, str | None], expected: ErrorCode
) -> None:
    assert replace(broker, resource, configs).error is expected
    assert overrides(broker) == {"retention.ms": "5000", "segment.bytes": "1048576"}


def test_a_classic_topic_stays_one(broker: ManualBroker) -> None:
    broker.create("old", message_format="classic", retention_ms="5000")
    old = ConfigResource(kind=ResourceKind.TOPIC, name="old")
    assert replace(broker, old, {"retention.ms": "7000"}).error is ErrorCode.NONE
    assert overrides(broker, "old") == {"message.format": "classic", "retention.ms": "7000"}
