from collections.abc import Mapping

import pytest
from attrs import fields

from barnabas.app.config import (
    EFFECTIVE_KEYS,
    KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    BrokerLayers,
    alter_broker_configs,
    alter_topic_configs,
    broker_config_entries,
    check_topic_configs,
    dynamic_default_entries,
    log_config_for,
    topic_config_entries,
    topic_maps,
    usable_layers,
)
from barnabas.app.config.broker_config import CONNECTION_KEYS
from barnabas.app.config.tls_keys import RELOADABLE_KEYS
from barnabas.core.cluster.registry import SECRET_ENDINGS
from barnabas.core.log.config import LogConfig
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    ConfigType,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError

TOPIC = ConfigResource(kind=2, name="t")


def given(**settings: object) -> BrokerConfig:
    return BrokerConfig.from_mapping(settings)


def change(name: str, value: str | None, op: int = ConfigOp.SET) -> ConfigAlteration:
    return ConfigAlteration(resource=TOPIC, name=name, value=value, op=op)


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (found,) = [entry for entry in entries if entry.name == name]
    return found


def synonyms(found: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]


def test_without_any_setting_logs_go_by_the_defaults() -> None:
    assert log_config_for(BrokerConfig()) == LogConfig()
    given_to_logs = {each.name for each in fields(LogConfig) if each.init}
    assert {topic.attribute for topic in TOPIC_KEYS.values() if topic.attribute} == given_to_logs


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.minutes": -1, "log.retention.hours": 5}, -1),
    ],
)
def test_ms_wins_over_minutes_over_hours(settings: Mapping[str, object], retention_ms: int) -> None:
    assert log_config_for(BrokerConfig.from_mapping(settings)).retention_ms == retention_ms


def test_rolling_and_flushing() -> None:
    config = log_config_for(given(log_roll_hours=1, log_roll_jitter_hours=2, log_flush_scheduler_interval_ms=50))
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (3_600_000, 7_200_000, 50)
    config = log_config_for(given(log_roll_ms=5, log_roll_hours=1, log_flush_interval_ms=7))
    assert (config.segment_ms, config.flush_ms) == (5, 7)


def test_a_topics_own_values_win() -> None:
    broker = given(log_segment_bytes=1000, log_cleanup_policy="compact")
    config = log_config_for(broker, {"segment.bytes": "50", "record.validation": "true", "retention.ms": "-1"})
    assert config == LogConfig(
        segment_bytes=50, record_validation=True, retention_ms=-1, cleanup_policy=frozenset({"compact"})
    )


def test_dynamic_values_win_over_those_of_the_start() -> None:
    static = given(log_retention_ms=1, log_segment_bytes=100, message_max_bytes=7)
    layers = BrokerLayers(
        static=static,
        dynamic={"log.retention.ms": "2"},
        dynamic_default={"log.retention.ms": "3", "log.segment.bytes": "300"},
    )
    config = log_config_for(layers)
    assert (config.retention_ms, config.segment_bytes, config.max_message_bytes) == (2, 300, 7)
    assert log_config_for(layers, {"retention.ms": "9"}).retention_ms == 9


def test_a_dynamic_stand_in_loses_to_nothing_of_the_start() -> None:
    layers = BrokerLayers(static=given(log_retention_ms=1), dynamic_default={"log.retention.ms": "3"})
    assert log_config_for(layers).retention_ms == 3


def test_stored_values_that_make_no_sense() -> None:
    overrides = {"retention.ms": "soon", "no.such.key": "1", "segment.bytes": "100"}
    layers = BrokerLayers(static=BrokerConfig(), dynamic={"log.retention.ms": "x", "nothing": "1"})
    with pytest.raises(ConfigError):
        log_config_for(BrokerConfig(), overrides)
    with pytest.raises(ConfigError):
        log_config_for(layers)
    reports: list[str] = []
    assert log_config_for(layers, overrides, reports.append) == LogConfig(segment_bytes=100)
    assert len(reports) == 4
    assert usable_layers(layers, lambda text: None) == BrokerLayers(static=BrokerConfig())


@pytest.mark.parametrize(
    ("configs", "fault"),
    [
        ({"retention.ms": "-2"}, "retention.ms='-2' is not a whole number from -1 to"),
        ({"retention.ms": ""}, "retention.ms='' is not a whole number"),
        ({"retention.ms": None}, "retention.ms has no value"),
        ({"segment.bytes": "13"}, "a whole number from 14 to 2147483647"),
        ({"retention.m": "1"}, "there is no topic configuration key 'retention.m'; did you mean 'retention.ms'"),
        ({"log.retention.ms": "1"}, "there is no topic configuration key 'log.retention.ms'"),
        ({"cleanup.policy": "shred"}, "cleanup.policy='shred' is not a list of compact, delete"),
        ({"compression.type": "none"}, "compression.type='none' is not one of"),
        ({"message.format": "v3"}, "message.format='v3' is not one of v2, classic"),
        ({"min.insync.replicas": "0"}, "a whole number from 1 to"),
    ],
)
def test_overrides_that_cannot_be(configs: dict[str, str | None], fault: str) -> None:
    with pytest.raises(ApiError) as error:
        check_topic_configs({"segment.ms": "5", **configs})
    assert error.value.code == ErrorCode.INVALID_CONFIG
    assert fault in error.value.message


def test_overrides_that_can_be() -> None:
    configs = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "compression.type": "zstd"}
    assert check_topic_configs(configs) == configs


def test_describing_a_topic() -> None:
    layers = BrokerLayers(
        static=given(log_retention_hours=3),
        dynamic={"log.retention.ms": "20"},
        dynamic_default={"log.retention.ms": "30"},
    )
    entries = topic_config_entries({"retention.ms": "10"}, layers, synonyms=True, documentation=True)
    assert [found.name for found in entries] == sorted(TOPIC_KEYS)
    retention = entry(entries, "retention.ms")
    assert (retention.value, retention.source, retention.type) == ("10", ConfigSource.TOPIC, ConfigType.LONG)
    assert not retention.read_only
    assert retention.documentation
    assert synonyms(retention) == [
        ("retention.ms", "10", ConfigSource.TOPIC),
        ("log.retention.ms", "20", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "30", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "3", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    segment = entry(entries, "segment.bytes")
    assert (segment.value, segment.source) == ("1073741824", ConfigSource.DEFAULT)


def test_describing_some_keys_briefly() -> None:
    entries = topic_config_entries({}, given(log_retention_hours=3), keys=["retention.ms", "nothing"])
    assert len(entries) == 1
    (retention,) = entries
    assert (retention.value, retention.source) == ("10800000", ConfigSource.STATIC_BROKER)
    assert retention.synonyms == ()
    assert retention.documentation is None


def test_describing_a_broker() -> None:
    layers = BrokerLayers(static=given(num_partitions=3), dynamic={"log.segment.bytes": "100"})
    entries = broker_config_entries(layers, synonyms=True)
    assert [found.name for found in entries] == sorted(KEYS)
    partitions = entry(entries, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    segment = entry(entries, "log.segment.bytes")
    assert (segment.value, segment.source, segment.read_only) == ("100", ConfigSource.DYNAMIC_BROKER, False)
    assert entry(entries, "log.retention.ms").value is None
    assert entry(entries, "auto.create.topics.enable").value == "true"
    assert entry(entries, "listeners").value == "kafka://127.0.0.1:9092"


def test_describing_the_default_of_all_brokers() -> None:
    (found,) = dynamic_default_entries({"log.retention.ms": "5", "nothing": "1"})
    assert (found.name, found.value, found.source) == ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_altering_a_topic() -> None:
    broker = given(log_cleanup_policy="delete")
    stored = {"retention.ms": "5", "segment.bytes": "100", "of.another.version": "x"}
    changes = [
        change("retention.ms", "6"),
        change("segment.bytes", None, ConfigOp.DELETE),
        change("segment.ms", None, ConfigOp.DELETE),
        change("of.another.version", None, ConfigOp.DELETE),
        change("cleanup.policy", "compact", ConfigOp.APPEND),
    ]
    assert alter_topic_configs(stored, changes, broker) == {"retention.ms": "6", "cleanup.policy": "delete,compact"}
    assert stored == {"retention.ms": "5", "segment.bytes": "100", "of.another.version": "x"}


def test_lists_are_appended_to_and_subtracted_from() -> None:
    broker = BrokerConfig()
    stored = {"cleanup.policy": "delete,compact"}
    less = alter_topic_configs(stored, [change("cleanup.policy", "delete", ConfigOp.SUBTRACT)], broker)
    assert less == {"cleanup.policy": "compact"}
    again = alter_topic_configs(less, [change("cleanup.policy", "compact", ConfigOp.APPEND)], broker)
    assert again == less
    none = alter_topic_configs(less, [change("cleanup.policy", "compact", ConfigOp.SUBTRACT)], broker)
    assert none == {"cleanup.policy": ""}
    assert log_config_for(broker, none).cleanup_policy == frozenset()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([change("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([change("nothing", "1")], ErrorCode.INVALID_CONFIG),
        ([change("nothing", None, ConfigOp.DELETE)], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", "1", ConfigOp.APPEND)], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", "1", ConfigOp.SUBTRACT)], ErrorCode.INVALID_CONFIG),
        ([change("cleanup.policy", "shred", ConfigOp.APPEND)], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", "1", 9)], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", "1"), change("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_cannot_be(changes: list[ConfigAlteration], code: ErrorCode) -> None:
    stored = {"segment.bytes": "100"}
    with pytest.raises(ApiError) as error:
        alter_topic_configs(stored, [change("segment.bytes", "200"), *changes], BrokerConfig())
    assert error.value.code == code
    assert stored == {"segment.bytes": "100"}


def test_altering_a_broker() -> None:
    changes = [change("log.retention.ms", "5"), change("log.cleanup.policy", "compact", ConfigOp.APPEND)]
    altered = alter_broker_configs({}, changes, BrokerConfig())
    assert altered == {"log.retention.ms": "5", "log.cleanup.policy": "delete,compact"}
    assert log_config_for(BrokerLayers(static=BrokerConfig(), dynamic=altered)).retention_ms == 5


@pytest.mark.parametrize("name", ["num.partitions", "listeners", "log.dirs", "log.retention.hours", "broker.id"])
def test_keys_that_need_a_restart(name: str) -> None:
    with pytest.raises(ApiError, match="cannot change while the broker runs") as error:
        alter_broker_configs({}, [change(name, "1")], BrokerConfig())
    assert error.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("log.retention.hours", "24", "log.retention.ms=86400000"),
        ("log.retention.minutes", "-1", "log.retention.ms=-1"),
        ("log.roll.hours", "1", "log.roll.ms=3600000"),
        ("log.retention.hours", "a day", "log.retention.ms=..."),
    ],
)
def test_key_that_needs_restart_names_the_one_that_can_change(name: str, value: str, instead: str) -> None:
    with pytest.raises(ApiError) as error:
        alter_broker_configs({}, [change(name, value)], BrokerConfig(), everywhere=True)
    key = instead.partition("=")[0]
    assert error.value.message == f"{name} cannot change while the broker runs; {key} can: set {instead}"


def test_keys_of_certificates_change_for_one_listener_of_one_broker_only() -> None:
    name = "ssl.keystore.location"
    with pytest.raises(ApiError, match=r"listener\.name\.NAME\.ssl\.keystore\.location") as error:
        alter_broker_configs({}, [change(name, "a.pem")], BrokerConfig())
    assert error.value.code == ErrorCode.INVALID_REQUEST
    of_listener = [change(f"listener.name.SASL_SSL.{name}", "a.pem")]
    with pytest.raises(ApiError, match="set it for a broker by its id") as error:
        alter_broker_configs({}, of_listener, BrokerConfig(), everywhere=True)
    assert error.value.code == ErrorCode.INVALID_REQUEST
    assert alter_broker_configs({}, of_listener, BrokerConfig()) == {f"listener.name.sasl_ssl.{name}": "a.pem"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("listener.name.ssl.ssl.client.auth", ErrorCode.INVALID_REQUEST),
        ("listener.name.ssl.ssl.keystore.place", ErrorCode.INVALID_CONFIG),
        ("listener.name.ssl.num.partitions", ErrorCode.INVALID_CONFIG),
    ],
)
def test_other_keys_of_listeners_cannot_be_altered(name: str, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as error:
        alter_broker_configs({}, [change(name, "1")], BrokerConfig())
    assert error.value.code == code


def test_running_config_has_dynamic_values_of_listeners_and_limits_of_connections() -> None:
    static = BrokerConfig.from_mapping({"max.connections": "7", "listener.name.ssl.max.connections": "5"})
    layers = BrokerLayers(
        static=static,
        dynamic={"listener.name.ssl.ssl.keystore.location": "b.pem", "listener.name.ssl.max.connections": "3"},
        dynamic_default={"max.connections": "9", "listener.name.ssl.max.connections": "4", "log.retention.ms": "1"},
    )
    running = layers.running_config()
    assert running.max_connections == 9
    assert running.for_listener("SSL", "max.connections") == 3
    assert running.for_listener("OTHER", "max.connections") == 9
    assert running.for_listener("SSL", "ssl.keystore.location") == "b.pem"
    assert BrokerLayers(static=static).running_config() is static


def test_configs_of_type_password_have_names_that_log_lines_hide() -> None:
    passwords = [name for name, key in KEYS.items() if key.type is ConfigType.PASSWORD]
    assert passwords
    assert [name for name in passwords if not name.endswith(SECRET_ENDINGS)] == []


def test_an_unknown_broker_key() -> None:
    with pytest.raises(ApiError, match=r"did you mean 'log\.retention\.ms'") as error:
        alter_broker_configs({}, [change("log.retention.m", "1")], BrokerConfig())
    assert error.value.code == ErrorCode.INVALID_CONFIG


def test_every_dynamic_key_is_the_twin_of_a_topic_key() -> None:
    twins = {topic.twin for topic in TOPIC_KEYS.values() if topic.attribute is not None and topic.twin is not None}
    of_brokers_alone = {
        "cordoned.log.dirs",
        "follower.fetch.last.tiered.offset.enable",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.scrub.interval.ms",
        "log.scrub.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
    }
    assert {name for name, key in EFFECTIVE_KEYS.items() if key.dynamic} == twins - {
        "message.format"
    } | of_brokers_alone | RELOADABLE_KEYS | set(CONNECTION_KEYS)


def test_throttled_replicas_are_named_by_partition_and_broker() -> None:
    key = "leader.replication.throttled.replicas"
    config = log_config_for(BrokerConfig(), {key: "0:1, 12:3", "follower.replication.throttled.replicas": "*"})
    assert config.leader_replication_throttled_replicas == {"0:1", "12:3"}
    assert config.follower_replication_throttled_replicas == {"*"}
    assert log_config_for(BrokerConfig()).leader_replication_throttled_replicas == frozenset()
    for wrong in ("1", "1:", ":2", "a:b", "1:2:3", "-1:2", "none"):
        with pytest.raises(ApiError, match=r"is not a list of PARTITION:BROKER") as error:
            check_topic_configs({key: wrong})
        assert error.value.code == ErrorCode.INVALID_CONFIG


def test_unclean_elections_are_the_topics_own() -> None:
    broker = BrokerConfig(unclean_leader_election_enable=True, given=frozenset({"unclean.leader.election.enable"}))
    assert log_config_for(broker).unclean_leader_election_enable
    assert not log_config_for(broker, {"unclean.leader.election.enable": "false"}).unclean_leader_election_enable


def test_classic_topics_have_defaults_of_their_own() -> None:
    classic = {"message.format": "classic"}
    config = log_config_for(BrokerConfig(), classic)
    assert (config.flush_messages, config.flush_ms, config.max_message_bytes) == (500, 3000, 1_000_000)
    given = BrokerConfig.from_mapping({"log.flush.interval.messages": 7, "log.flush.scheduler.interval.ms": 50})
    config = log_config_for(given, classic)
    assert (config.flush_messages, config.flush_ms, config.max_message_bytes) == (7, 50, 1_000_000)
    assert log_config_for(BrokerConfig(), {**classic, "flush.messages": "9"}).flush_messages == 9
    assert log_config_for(BrokerConfig(), {}).flush_messages == LogConfig().flush_messages
    assert log_config_for(BrokerConfig.from_mapping({"message.format": "classic"}), {}).flush_messages == 500


def test_0_7_maps_of_topics() -> None:
    reports: list[str] = []
    config = BrokerConfig.from_mapping({"topic.log.roll.hours": "a:2", "topic.log.file.size": "a:100,b:1"})
    maps = topic_maps(config, reports.append)
    assert maps == {"a": {"segment.ms": "7200000", "segment.bytes": "100"}}
    assert len(reports) == 1
    assert "'b'" in reports[0]
    overrides = {"message.format": "classic", "segment.bytes": "200"}
    found = log_config_for(config, overrides, topic_defaults=maps["a"])
    assert (found.segment_bytes, found.segment_ms) == (200, 7_200_000)


def test_classic_topic_config_entries_name_value_source_and_synonyms() -> None:
    broker = BrokerConfig.from_mapping({"log.flush.interval.ms": 70, "topic.log.file.size": "a:100"})
    maps = topic_maps(broker, pytest.fail)
    overrides = {"message.format": "classic"}
    entries = topic_config_entries(overrides, broker, topic_defaults=maps["a"], synonyms=True)
    observed = {entry.name: (entry.value, entry.source, [each.name for each in entry.synonyms]) for entry in entries}
    default, static, own = ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER, ConfigSource.TOPIC
    assert observed["flush.messages"] == ("500", default, ["log.flush.interval.messages"])
    assert observed["flush.ms"] == ("70", static, ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
    assert observed["segment.bytes"] == ("100", static, ["topic.log.file.size"])
    assert observed["message.format"] == ("classic", own, ["message.format", "message.format"])
    assert log_config_for(broker, overrides, topic_defaults=maps["a"]).segment_bytes == 100
    modern = {entry.name: entry.value for entry in topic_config_entries({}, broker, topic_defaults=maps["a"])}
    assert (modern["segment.bytes"], modern["max.message.bytes"]) == ("1073741824", "1048588")
    assert log_config_for(broker, {}, topic_defaults=maps["a"]).segment_bytes == 1_073_741_824
