"""Settings of single groups: DescribeConfigs, IncrementalAlterConfigs and AlterConfigs of the resource type GROUP."""

from collections.abc import Mapping

import pytest

from barnabas.core.coordinator.group.group_config import GroupConfig
from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    ConfigSource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

GROUP = ConfigResource(kind=ResourceKind.GROUP, name="g/1")
TOPIC = ConfigResource(kind=ResourceKind.TOPIC, name="t")
LOCK = "share.record.lock.duration.ms"


def describe(broker: ManualBroker, *keys: str, resource: ConfigResource = GROUP) -> dict[str, ConfigEntry]:
    wanted = ConfigDescription(resource=resource, keys=keys or None)
    answer = broker.ask(DescribeConfigs(resources=[wanted], include_synonyms=True)).resources[0]
    assert answer.error is ErrorCode.NONE
    return {entry.name: entry for entry in answer.entries}


def alter(
    broker: ManualBroker,
    changes: Mapping[str, str | None],
    *,
    resource: ConfigResource = GROUP,
    op: int = ConfigOp.SET,
    validate_only: bool = False,
) -> ResourceOutcome:
    alterations = [ConfigAlteration(resource=resource, name=name, value=text, op=op) for name, text in changes.items()]
    request = IncrementalAlterConfigs(resources=[resource], alterations=alterations, validate_only=validate_only)
    return broker.ask(request).resources[0]


def settings(broker: ManualBroker, group_id: str = "g/1") -> GroupConfig:
    return broker.node.api.group_configs.get(group_id)


def test_group_without_settings_has_those_of_the_broker() -> None:
    broker = ManualBroker(group_consumer_session_timeout_ms=50_000, group_share_delivery_count_limit=7)
    found = describe(broker)
    assert len(found) == 21
    assert found["consumer.session.timeout.ms"].value == "50000"
    assert found["consumer.session.timeout.ms"].source is ConfigSource.STATIC_BROKER
    assert (found[LOCK].value, found[LOCK].source) == ("30000", ConfigSource.DEFAULT)
    assert (found["errors.deadletterqueue.topic.name"].value, found["streams.num.standby.replicas"].value) == ("", "0")
    assert not any(entry.read_only or entry.sensitive for entry in found.values())
    assert settings(broker) == GroupConfig(consumer_session_timeout_ms=50_000, share_delivery_count_limit=7)
    assert list(describe(broker, LOCK, "no.such.key")) == [LOCK]


def test_change_of_a_group_counts_at_once_and_after_a_restart() -> None:
    broker = ManualBroker()
    changes = {LOCK: "20000", "share.auto.offset.reset": "by_duration:PT2H", "share.isolation.level": "read_committed"}
    assert alter(broker, changes).error is ErrorCode.NONE
    entry = describe(broker, LOCK)[LOCK]
    assert (entry.value, entry.source) == ("20000", ConfigSource.GROUP)
    assert [(each.name, each.source) for each in entry.synonyms] == [
        (LOCK, ConfigSource.GROUP),
        (f"group.{LOCK}", ConfigSource.DEFAULT),
    ]
    broker.restart()
    assert settings(broker).share_record_lock_duration_ms == 20_000
    assert settings(broker).share_reset_age_ms == 7_200_000
    assert settings(broker).reads_committed
    assert settings(broker, "another") == GroupConfig()
    assert alter(broker, dict.fromkeys(changes), op=ConfigOp.DELETE).error is ErrorCode.NONE
    assert settings(broker) == GroupConfig()


def test_replacing_configs_of_a_group_resets_the_others() -> None:
    broker = ManualBroker()
    alter(broker, {LOCK: "20000", "share.delivery.count.limit": "9"})
    wanted = [
        ConfigReplacement(resource=GROUP, configs={"share.delivery.count.limit": "8"}),
        ConfigReplacement(resource=TOPIC, configs={}),
    ]
    broker.create("t", retention_ms="5000")
    outcomes = broker.ask(AlterConfigs(resources=wanted)).resources
    assert [(each.resource, each.error) for each in outcomes] == [(GROUP, ErrorCode.NONE), (TOPIC, ErrorCode.NONE)]
    assert settings(broker) == GroupConfig(share_delivery_count_limit=8)
    assert broker.node.state.image.topic("t").configs == {}


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({LOCK: "14999"}, ErrorCode.INVALID_CONFIG, "group.share.min.record.lock.duration.ms=15000"),
        ({LOCK: "60001"}, ErrorCode.INVALID_CONFIG, "group.share.max.record.lock.duration.ms=60000"),
        ({LOCK: "soon"}, ErrorCode.INVALID_CONFIG, LOCK),
        ({"share.delivery.count.limit": "1"}, ErrorCode.INVALID_CONFIG, "group.share.min.delivery.count.limit=2"),
        ({"share.partition.max.record.locks": "99"}, ErrorCode.INVALID_CONFIG, "=100"),
        ({"consumer.session.timeout.ms": "44999"}, ErrorCode.INVALID_CONFIG, "45000"),
        ({"consumer.heartbeat.interval.ms": "15001"}, ErrorCode.INVALID_CONFIG, "15000"),
        ({"consumer.assignment.interval.ms": "15001"}, ErrorCode.INVALID_CONFIG, "15000"),
        ({"share.isolation.level": "read"}, ErrorCode.INVALID_CONFIG, "read_committed"),
        ({"share.auto.offset.reset": "by_duration:1h"}, ErrorCode.INVALID_CONFIG, "P7D"),
        ({"share.auto.offset.reset": "none"}, ErrorCode.INVALID_CONFIG, "earliest"),
        ({"consumer.session.timeout": "45000"}, ErrorCode.INVALID_CONFIG, "'consumer.session.timeout.ms'"),
        ({LOCK: None}, ErrorCode.INVALID_REQUEST, "no value"),
    ],
)
def test_value_that_a_group_cannot_have_is_refused(
    changes: Mapping[str, str | None], expected: ErrorCode, said: str
) -> None:
    broker = ManualBroker()
    outcome = alter(broker, {"share.renew.acknowledge.enable": "false", **changes})
    assert outcome.error is expected
    assert said in (outcome.error_message or "")
    assert settings(broker) == GroupConfig()


def test_heartbeat_interval_of_a_group_is_below_its_session() -> None:
    broker = ManualBroker(
        group_consumer_min_session_timeout_ms=10_000,
        group_consumer_min_heartbeat_interval_ms=1_000,
    )
    outcome = alter(broker, {"consumer.session.timeout.ms": "12000", "consumer.heartbeat.interval.ms": "12000"})
    assert outcome.error is ErrorCode.INVALID_CONFIG
    assert "not below consumer.session.timeout.ms=12000" in (outcome.error_message or "")
    assert alter(broker, {"consumer.session.timeout.ms": "12000"}).error is ErrorCode.NONE
    outcome = alter(broker, {"consumer.heartbeat.interval.ms": "12000"})
    assert outcome.error is ErrorCode.INVALID_CONFIG


def test_validation_only_changes_nothing() -> None:
    broker = ManualBroker()
    assert alter(broker, {LOCK: "20000"}, validate_only=True).error is ErrorCode.NONE
    assert alter(broker, {LOCK: "1"}, validate_only=True).error is ErrorCode.INVALID_CONFIG
    assert settings(broker) == GroupConfig()


def test_group_without_a_name_has_no_settings() -> None:
    broker = ManualBroker()
    nameless = ConfigResource(kind=ResourceKind.GROUP, name="")
    assert alter(broker, {LOCK: "20000"}, resource=nameless).error is ErrorCode.INVALID_REQUEST
    answer = broker.ask(DescribeConfigs(resources=[ConfigDescription(resource=nameless)])).resources[0]
    assert answer.error is ErrorCode.INVALID_REQUEST


def test_stored_value_outside_new_bounds_becomes_the_nearest_one() -> None:
    broker = ManualBroker(group_share_min_record_lock_duration_ms=1_000)
    alter(broker, {LOCK: "2000", "share.delivery.count.limit": "9"})
    broker.settings["group_share_min_record_lock_duration_ms"] = 15_000
    broker.restart()
    assert settings(broker) == GroupConfig(share_record_lock_duration_ms=15_000, share_delivery_count_limit=9)
    assert describe(broker, LOCK)[LOCK].value == "2000"
    assert alter(broker, {"share.delivery.count.limit": "8"}).error is ErrorCode.NONE
