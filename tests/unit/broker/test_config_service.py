"""DescribeConfigs, IncrementalAlterConfigs, DescribeCluster, DescribeLogDirs, ListOffsets."""

from collections.abc import Mapping

import pytest

from barnabas.core.cluster.deltas import ConfigsChanged
from barnabas.ports.broker_api.cluster import DescribeCluster, DescribeLogDirs
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigDescription,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsets,
    ListOffsetsPartition,
)
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker, batch

TOPIC = ConfigResource(kind=ResourceKind.TOPIC, name="t")
BROKER = ConfigResource(kind=ResourceKind.BROKER, name="1")
ALL_BROKERS = ConfigResource(kind=ResourceKind.BROKER, name="")


@pytest.fixture
def broker() -> ManualBroker:
    simulated = ManualBroker()
    simulated.create("t")
    return simulated


def describe(broker: ManualBroker, resource: ConfigResource, *keys: str) -> ResourceOutcome:
    wanted = ConfigDescription(resource=resource, keys=keys or None)
    return broker.ask(DescribeConfigs(resources=[wanted], include_synonyms=True)).resources[0]


def values(outcome: ResourceOutcome) -> dict[str, tuple[str | None, ConfigSource]]:
    return {entry.name: (entry.value, entry.source) for entry in outcome.entries}


def alter(
    broker: ManualBroker,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    *,
    op: int = ConfigOp.SET,
    validate_only: bool = False,
) -> ResourceOutcome:
    alterations = [
        ConfigAlteration(resource=resource, name=name, value=value, op=op) for name, value in changes.items()
    ]
    request = IncrementalAlterConfigs(resources=[resource], alterations=alterations, validate_only=validate_only)
    return broker.ask(request).resources[0]


def test_a_topics_configs_override_the_brokers(broker: ManualBroker) -> None:
    log = broker.node.state.replicas.partitions[("t", 0)].log
    assert values(describe(broker, TOPIC, "retention.ms")) == {"retention.ms": ("604800000", ConfigSource.DEFAULT)}
    alter(broker, BROKER, {"log.retention.ms": "100"})
    assert log.config.retention_ms == 100
    alter(broker, TOPIC, {"retention.ms": "50"})
    assert log.config.retention_ms == 50
    assert values(describe(broker, TOPIC, "retention.ms")) == {"retention.ms": ("50", ConfigSource.TOPIC)}
    alter(broker, TOPIC, {"retention.ms": None}, op=ConfigOp.DELETE)
    assert log.config.retention_ms == 100
    alter(broker, ALL_BROKERS, {"log.retention.ms": "70"})
    alter(broker, BROKER, {"log.retention.ms": None}, op=ConfigOp.DELETE)
    assert log.config.retention_ms == 70
    assert values(describe(broker, ALL_BROKERS)) == {"log.retention.ms": ("70", ConfigSource.DYNAMIC_DEFAULT_BROKER)}
    broker.restart()
    assert broker.node.state.replicas.partitions[("t", 0)].log.config.retention_ms == 70


def test_changes_of_a_resource_are_made_all_or_none(broker: ManualBroker) -> None:
    outcome = alter(broker, TOPIC, {"retention.ms": "50", "no.such.key": "1"})
    assert outcome.error is ErrorCode.INVALID_CONFIG
    assert "no.such.key" in (outcome.error_message or "")
    assert broker.node.state.image.topic("t").configs == {}
    assert alter(broker, TOPIC, {"retention.ms": "50"}, validate_only=True).error is ErrorCode.NONE
    assert broker.node.state.image.topic("t").configs == {}


@pytest.mark.parametrize(
    ("resource", "changes", "expected"),
    [
        (TOPIC, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, {"deletion.policy": "no-such-plugin"}, ErrorCode.INVALID_CONFIG),
        (BROKER, {"log.deletion.policy": "no-such-plugin"}, ErrorCode.INVALID_CONFIG),
        (BROKER, {"listeners": "kafka://a:1"}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(kind=ResourceKind.BROKER, name="2"), {"log.retention.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(kind=ResourceKind.BROKER_LOGGER, name="1"), {"x": "1"}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(kind=99, name="1"), {"x": "1"}, ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(kind=ResourceKind.TOPIC, name="nowhere"),
            {"retention.ms": "1"},
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_invalid_alteration_is_refused_with_its_error(
    broker: ManualBroker, resource: ConfigResource, changes: dict[str, str | None], expected: ErrorCode
) -> None:
    assert alter(broker, resource, changes).error is expected


def test_min_insync_replicas_is_set_for_all_brokers_and_not_for_one(broker: ManualBroker) -> None:
    key = "min.insync.replicas"
    refused = alter(broker, BROKER, {key: "2"})
    assert refused.error is ErrorCode.INVALID_CONFIG
    assert "one value for all brokers" in str(refused.error_message)
    assert alter(broker, ALL_BROKERS, {key: "2"}).error is ErrorCode.NONE
    assert values(describe(broker, ALL_BROKERS)) == {key: ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)}
    assert values(describe(broker, BROKER, key)) == {key: ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)}
    assert values(describe(broker, TOPIC, key)) == {key: ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)}
    assert alter(broker, BROKER, {key: None}, op=ConfigOp.DELETE).error is ErrorCode.NONE


def test_min_insync_replicas_that_an_earlier_version_has_set_for_one_broker_has_no_effect(broker: ManualBroker) -> None:
    key = "min.insync.replicas"
    broker.node.state.registry.apply(ConfigsChanged(broker_id=1, configs={key: "7"}))
    assert values(describe(broker, TOPIC, key))[key][0] == "1"
    assert any("set for broker 1 alone, which has no effect" in line for line in broker.reports)


def test_invalid_resource_is_described_with_its_error(broker: ManualBroker) -> None:
    assert describe(broker, ConfigResource(kind=2, name="nowhere")).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(broker, ConfigResource(kind=4, name="2")).error is ErrorCode.INVALID_REQUEST
    assert describe(broker, ConfigResource(kind=8, name="1")).error is ErrorCode.INVALID_REQUEST


def test_describe_the_broker(broker: ManualBroker) -> None:
    observed = values(describe(broker, BROKER))
    assert observed["listeners"] == ("kafka://broker:9092", ConfigSource.STATIC_BROKER)
    assert observed["num.partitions"] == ("1", ConfigSource.DEFAULT)


def test_describe_cluster_returns_controller_brokers_and_cluster_id(broker: ManualBroker) -> None:
    answer = broker.ask(DescribeCluster())
    assert (answer.error, answer.controller_id, len(answer.brokers)) == (ErrorCode.NONE, 1, 1)
    assert answer.cluster_id == broker.node.state.cluster_id
    assert broker.ask(DescribeCluster(endpoint_type=2)).error is not ErrorCode.NONE


def test_describe_log_dirs(broker: ManualBroker) -> None:
    broker.produce("t", b"a")
    broker.create("u", 2)
    everything = broker.ask(DescribeLogDirs()).log_dirs
    assert [(replica.topic, replica.partition, replica.lag) for replica in everything[0].replicas] == [
        ("t", 0, 0),
        ("u", 0, 0),
        ("u", 1, 0),
    ]
    assert everything[0].replicas[0].size_bytes == len(batch(b"a"))
    some = broker.ask(DescribeLogDirs(topics={"u": [1], "nowhere": [0]})).log_dirs
    assert [(replica.topic, replica.partition) for replica in some[0].replicas] == [("u", 1)]


# --- offsets


def offsets(broker: ManualBroker, timestamp: int, **options: int) -> tuple[ErrorCode, int, int]:
    entry = ListOffsetsPartition(topic="t", partition=0, timestamp=timestamp, **options)
    answer = broker.ask(ListOffsets(partitions=[entry])).partitions[0]
    return answer.error, answer.offset, answer.timestamp


def test_list_offsets_resolves_timestamps_and_special_offsets(broker: ManualBroker) -> None:
    assert offsets(broker, LATEST) == (ErrorCode.NONE, 0, -1)
    assert offsets(broker, MAX_TIMESTAMP) == (ErrorCode.NONE, -1, -1)
    start = 1_700_000_000_000
    for step in (0, 10, 30, 20):
        records = batch(b"x", b"y", timestamp_ms=start + step)
        broker.ask(Produce(partitions=[ProducePartition("t", 0, records)]))
    assert offsets(broker, EARLIEST) == offsets(broker, EARLIEST_LOCAL) == (ErrorCode.NONE, 0, -1)
    assert offsets(broker, LATEST_TIERED) == offsets(broker, EARLIEST_PENDING_UPLOAD) == (ErrorCode.NONE, -1, -1)
    assert offsets(broker, LATEST) == (ErrorCode.NONE, 8, -1)
    assert offsets(broker, 0) == (ErrorCode.NONE, 0, start)
    assert offsets(broker, start + 1) == (ErrorCode.NONE, 2, start + 10)
    assert offsets(broker, start + 15) == (ErrorCode.NONE, 4, start + 30)
    assert offsets(broker, start + 31) == (ErrorCode.NONE, -1, -1)
    assert offsets(broker, MAX_TIMESTAMP) == (ErrorCode.NONE, 4, start + 30)


def test_list_offsets_errors(broker: ManualBroker) -> None:
    assert offsets(broker, -99)[0] is ErrorCode.UNSUPPORTED_VERSION
    assert offsets(broker, LATEST, current_leader_epoch=3)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    entries = [
        ListOffsetsPartition(topic="nowhere", partition=0, timestamp=LATEST),
        ListOffsetsPartition(topic="t", partition=0, timestamp=LATEST),
    ]
    answers = broker.ask(ListOffsets(partitions=entries)).partitions
    assert [answer.error for answer in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_request_about_many_costs_each_of_them_the_same(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = [ConfigResource(kind=ResourceKind.TOPIC, name=f"t{number}") for number in range(200)]
    alterations = [ConfigAlteration(resource=each, name="retention.ms", value="1") for each in resources]
    compared = 0
    equal = ConfigResource.__eq__

    def counted(one: ConfigResource, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(one, other)

    monkeypatch.setattr(ConfigResource, "__eq__", counted)
    outcomes = broker.ask(IncrementalAlterConfigs(resources=resources, alterations=alterations)).resources
    assert [each.error for each in outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 200
    assert compared < 1_000
