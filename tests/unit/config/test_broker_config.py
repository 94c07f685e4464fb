from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.app.config import EFFECTIVE_KEYS, KEYS, BrokerConfig, broker_config_entries, read_config
from barnabas.app.config.ignored_keys import IGNORED_KEYS
from barnabas.app.config.names import ALIASES, REFUSED
from barnabas.ports.broker_api.configs import ConfigType
from barnabas.ports.errors import ConfigError


def refusal(*layers: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.from_mapping(*layers)
    return str(error.value)


def test_the_defaults_are_kafkas() -> None:
    config = BrokerConfig()
    assert config.log_segment_bytes == 1_073_741_824
    assert config.log_retention_hours == 168
    assert config.message_max_bytes == 1_048_588
    assert config.socket_request_max_bytes == 104_857_600
    assert config.auto_create_topics_enable
    assert config.given == frozenset()


def test_every_key_is_documented_and_its_default_allowed() -> None:
    for name, key in KEYS.items():
        assert key.name == name
        assert key.doc.endswith(".")
        assert key.parse(key.default) == key.default
        assert BrokerConfig().value(name) == key.default
        assert key.default is None or key.parse(key.text(key.default)) == key.default


def test_ignored_keys_are_apart_from_keys_with_an_effect() -> None:
    assert not EFFECTIVE_KEYS.keys() & IGNORED_KEYS.keys()
    assert all(key.ignored and key.doc.startswith("No effect: ") for key in IGNORED_KEYS.values())
    assert not any(key.ignored for key in EFFECTIVE_KEYS.values())


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("log.cleaner.io.buffer.load.factor", " 0.75", 0.75),
        ("log.cleaner.min.cleanable.ratio", 1, 1.0),
        ("log.cleaner.dedupe.buffer.size", "10000000000", 10_000_000_000),
        ("log.cleaner.enable", "FALSE", False),
    ],
)
def test_keys_of_compaction(name: str, value: object, parsed: object) -> None:
    assert BrokerConfig.from_mapping({name: value}).value(name) == parsed


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num.io.threads", "16", "16"),
        ("transaction.two.phase.commit.enable", False, "false"),
        ("remote.log.metadata.custom.metadata.max.bytes", 10_000_000_000, "10000000000"),
        ("controller.quorum.voters", "1@a:9093,2@b:9093", "1@a:9093,2@b:9093"),
        ("offsets.commit.required.acks", "-1", "-1"),
        ("remote.log.metadata.manager.class.path", "org.x.Y", "org.x.Y"),
    ],
)
def test_ignored_key_has_the_text_of_its_value(name: str, value: object, text: str) -> None:
    config = BrokerConfig.from_mapping({name: value})
    assert KEYS[name].text(config.value(name)) == text  # type: ignore[arg-type]
    assert config.without_effect == [name]
    assert BrokerConfig().value(name) == KEYS[name].default
    assert BrokerConfig.from_mapping({name.replace(".", "_"): value}) == config


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", float("nan"), "a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "half", "a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", True, "a number from 0 to 1"),
        ("offsets.topic.replication.factor", 32768, "a whole number from 1 to 32767"),
        ("security.inter.broker.protocol", "TLS", "one of PLAINTEXT"),
        ("zookeeper.ssl.ocsp.enable", True, "one of false"),
    ],
)
def test_value_out_of_bounds_is_refused_with_what_is_allowed(name: str, value: object, allowed: str) -> None:
    text = refusal({name: value})
    assert text.startswith(f"{name}=")
    assert allowed in text


def test_dotted_nested_and_python_names_mean_the_same() -> None:
    wanted = BrokerConfig(
        log_segment_bytes=100, num_partitions=3, given=frozenset({"log.segment.bytes", "num.partitions"})
    )
    assert BrokerConfig.from_mapping({"log.segment.bytes": 100, "num.partitions": 3}) == wanted
    assert BrokerConfig.from_mapping({"log": {"segment": {"bytes": 100}}, "num": {"partitions": 3}}) == wanted
    assert BrokerConfig.from_mapping({"log.segment": {"bytes": "100"}, "num.partitions": " 3 "}) == wanted
    assert BrokerConfig.from_mapping({"log_segment_bytes": 100, "num_partitions": 3}) == wanted


def test_later_layers_win() -> None:
    config = BrokerConfig.from_mapping({"num.partitions": 3, "broker.id": 7}, {"num_partitions": "4"})
    assert (config.num_partitions, config.broker_id) == (4, 7)
    assert BrokerConfig.from_mapping({"log.file.size": 50}, {"log.segment.bytes": 60}).log_segment_bytes == 60


def test_names_of_kafka_07() -> None:
    config = BrokerConfig.from_mapping(
        {
            "brokerid": "5",
            "log.file.size": "1000",
            "log.flush.interval": "500",
            "log.default.flush.interval.ms": "3000",
            "log.retention.size": "-1",
            "log.cleanup.interval.mins": "10",
            "max.message.size": "1000000",
            "max.socket.request.bytes": "2000",
        }
    )
    assert config.broker_id == 5
    assert config.log_segment_bytes == 1000
    assert config.log_flush_interval_messages == 500
    assert config.log_flush_interval_ms == 3000
    assert config.log_retention_bytes == -1
    assert config.log_retention_check_interval_ms == 600_000
    assert config.message_max_bytes == 1_000_000
    assert config.socket_request_max_bytes == 2000
    assert {key for key, _ in ALIASES.values()} <= set(KEYS)


def test_two_names_of_one_key() -> None:
    text = refusal({"log.file.size": 1000, "log.segment.bytes": 1001})
    assert "log.segment.bytes is given twice" in text
    assert "log.file.size" in text
    assert "twice" in refusal({"num.partitions": 1, "num": {"partitions": 2}})
    assert BrokerConfig.from_mapping({"node.id": 3, "broker.id": "3"}).broker_id == 3


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("log_segmnt_bytes", "log.segment.bytes"),
        ("num.partition", "num.partitions"),
        ("listener", "listeners"),
        ("log.retension.ms", "log.retention.ms"),
    ],
)
def test_an_unknown_key_names_the_nearest(name: str, suggested: str) -> None:
    assert f"{name!r}; did you mean {suggested!r}?" in refusal({name: "1"})


def test_an_unknown_key_unlike_any() -> None:
    assert refusal({"xyzzy": "1"}) == "unknown configuration key 'xyzzy'"
    assert len(refusal({"x" * 100_000: "1"})) < 300


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_keys_without_a_meaning_here_say_what_to_do(name: str) -> None:
    assert refusal({name: "1"}).startswith(f"{name} is not supported: ")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("num.partitions", "0", "a whole number from 1 to 2147483647"),
        ("num.partitions", 2**31, "a whole number from 1 to 2147483647"),
        ("num.partitions", "many", "a whole number"),
        ("num.partitions", "1.5", "a whole number"),
        ("num.partitions", 1.5, "a whole number"),
        ("num.partitions", True, "a whole number"),
        ("num.partitions", "1_000", "a whole number"),
        ("num.partitions", "", "a whole number"),
        ("num.partitions", "٣", "a whole number"),
        ("num.partitions", None, "a whole number"),
        ("num.partitions", "9" * 5000, "a whole number"),
        ("log.segment.bytes", 13, "a whole number from 14 to 2147483647"),
        ("log.retention.ms", -2, "a whole number from -1 to 9223372036854775807"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("auto.create.topics.enable", 1, "true or false"),
        ("compression.type", "lzma", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.type", 5, "one of"),
        ("log.cleanup.policy", "delete,shred", "a list of compact, delete"),
        ("log.cleanup.policy", "delete,,compact", "a list of"),
        ("log.dirs", [1, 2], "a list of texts"),
        ("storage", "s3", "one of fs, memory"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(name: str, value: object, allowed: str) -> None:
    text = refusal({name: value})
    assert text.startswith(f"{name}={value!r:.150}"[:100])
    assert allowed in text
    assert len(text) < 500


def test_values_are_checked_however_a_config_is_made() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions=0"):
        BrokerConfig(num_partitions=0)


def test_list_settings_accept_text_and_lists() -> None:
    config = BrokerConfig.from_mapping({"log.dirs": "a, b", "log.cleanup.policy": ["compact", "delete"]})
    assert config.log_dirs == config.data_dirs == ("a", "b")
    assert config.log_cleanup_policy == ("compact", "delete")
    assert BrokerConfig.from_mapping({"log.dir": "x"}).data_dirs == ("x",)
    assert "twice" in refusal({"log.dirs": "a,a"})


@pytest.mark.parametrize(
    ("key", "value", "coordination"),
    [
        ("zk.connect", "a:2181,b:2181/kafka", "zookeeper://a:2181,b:2181/kafka"),
        ("zookeeper.connect", "a", "zookeeper://a"),
        ("etcd_connect", "a:2379/x", "etcd://a:2379/x"),
    ],
)
def test_names_of_coordination_services(key: str, value: str, coordination: str) -> None:
    assert BrokerConfig.from_mapping({key: value}).coordination == coordination


def test_0_7_names_of_zookeeper() -> None:
    given = {"zk.sessiontimeout.ms": "900", "zk.connectiontimeout.ms": "800", "enable.zookeeper": "false"}
    config = BrokerConfig.from_mapping(given)
    assert (config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms) == (900, 800)
    assert not config.classic_registration_enable
    assert config.coordination == "embedded"
    assert BrokerConfig.from_mapping({"zk.connect": "a", "enable.zookeeper": "true"}).classic_registration_enable
    both: dict[str, object] = {"zk.connect": "a:1/b", "enable.zookeeper": "false"}
    assert "enable.zookeeper=false contradicts zk.connect=a:1/b" in refusal(both)


def test_maps_of_topics_skip_what_makes_no_sense() -> None:
    reports: list[str] = []
    config = BrokerConfig.from_mapping({"topic.partition.count.map": "a:3,,b,c:0,d:x, e.f:2 ,g:9999999999999999999999"})
    assert config.topic_numbers("topic.partition.count.map", reports.append) == {"a": 3, "e.f": 2}
    assert len(reports) == 4
    assert "skipped 'b'" in reports[0]


def test_the_permissions_of_data_folders() -> None:
    assert BrokerConfig().dir_mode == 0o700
    assert BrokerConfig.from_mapping({"log.dir.mode": "0o2750"}).dir_mode == 0o2750
    for mode in ("rwx", "0790", "", "-700", "07777777"):
        assert "is not an octal number" in refusal({"log.dir.mode": mode})
    assert "keeps the broker itself from its folders" in refusal({"log.dir.mode": "0640"})


def test_message_format_accepts_v2_and_classic_only() -> None:
    assert BrokerConfig.from_mapping({"message.format": "classic"}).message_format == "classic"
    assert "is not one of v2, classic" in refusal({"message.format": "v3"})


def test_metrics_listen_accepts_host_and_port_or_url() -> None:
    assert BrokerConfig().metrics_address is None
    assert BrokerConfig(metrics_listen="127.0.0.1:9308").metrics_address == ("127.0.0.1", 9308)
    assert BrokerConfig(metrics_listen="http://[::1]:0").metrics_address == ("::1", 0)
    assert "metrics.listen=nowhere" in refusal({"metrics.listen": "nowhere"})


def test_how_often_to_look_for_flushes() -> None:
    assert BrokerConfig().flush_check_interval_ms == 1000
    assert BrokerConfig.from_mapping({"log.flush.scheduler.interval.ms": 3000}).flush_check_interval_ms == 3000


def test_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "barnabas.toml"
    file.write_text(
        """
listeners = ["kafka://127.0.0.1:0"]
"num.partitions" = 4
auto.create.topics.enable = false
[log]
dirs = ["a", "b"]
[log.segment]
bytes = 1000
[log.retention]
ms = -1
""",
        encoding="utf-8",
    )
    config = read_config(file, {"num.partitions": "5"})
    assert config.listeners == ("kafka://127.0.0.1:0",)
    assert config.num_partitions == 5
    assert not config.auto_create_topics_enable
    assert config.data_dirs == ("a", "b")
    assert config.log_segment_bytes == 1000
    assert config.log_retention_ms == -1
    assert read_config(None) == BrokerConfig()


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe", b"[x]\n[x]"])
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml is not TOML"):
        read_config(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read"):
        read_config(tmp_path / "missing.toml")


def test_a_table_where_a_value_belongs(tmp_path: Path) -> None:
    assert "log.dir.x" in refusal({"log.dir": {"x": 1}})
    assert "is not" in refusal({"listeners": [{"host": "a"}]})


@given(st.sampled_from(sorted(KEYS)), st.data())
def test_written_values_are_read_back(name: str, data: st.DataObject) -> None:
    key = KEYS[name]
    if key.type in (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG):
        assert key.low is not None and key.high is not None
        value: object = data.draw(st.integers(int(key.low), int(key.high)))
    elif key.type is ConfigType.DOUBLE:
        value = data.draw(st.floats(key.low, key.high))
    elif key.type is ConfigType.BOOLEAN and not key.choices:
        value = data.draw(st.booleans())
    else:
        value = key.default
    parsed = key.parse(value)
    assert parsed == value
    text = key.text(parsed)
    assert text is None or key.parse(text) == parsed


@given(st.dictionaries(st.text(max_size=20), st.none() | st.integers() | st.text() | st.lists(st.text()) | st.floats()))
def test_any_mapping_is_a_config_or_a_config_error(mapping: dict[str, object]) -> None:
    try:
        BrokerConfig.from_mapping(mapping)
    except ConfigError:
        return
    assert mapping == {}


def test_sessions_of_group_members_must_be_possible() -> None:
    assert "no session would be right" in refusal(
        {"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9}
    )
    config = BrokerConfig()
    assert (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms) == (6000, 1_800_000)
    assert (config.offsets_topic_num_partitions, config.offsets_topic_replication_factor) == (50, 3)


def test_keys_of_replication_have_the_defaults_of_kafka() -> None:
    config = BrokerConfig()
    assert (config.replica_lag_time_max_ms, config.replica_fetch_wait_max_ms) == (30_000, 500)
    assert (config.replica_fetch_max_bytes, config.replica_fetch_response_max_bytes) == (1_048_576, 10_485_760)
    assert (config.unclean_leader_election_enable, config.auto_leader_rebalance_enable) == (False, True)
    assert (config.controlled_shutdown_enable, config.controlled_shutdown_max_retries) == (True, 3)
    assert config.zookeeper_session_timeout_ms == 9000
    assert BrokerConfig.from_mapping({"broker.session.timeout.ms": 1000}).zookeeper_session_timeout_ms == 1000


@pytest.mark.parametrize("limit", ["replica.lag.time.max.ms", "replica.socket.timeout.ms"])
def test_an_idle_fetch_of_a_follower_ends_before_it_costs_anything(limit: str) -> None:
    text = refusal({limit: 400})
    assert text.startswith(f"replica.fetch.wait.max.ms=500 is above {limit}=400: ")
    assert BrokerConfig.from_mapping({limit: 400, "replica.fetch.wait.max.ms": 400}).replica_fetch_wait_max_ms == 400


def test_sensitive_keys_are_described_without_their_values() -> None:
    config = BrokerConfig.from_mapping({"ssl.key.password": "planted", "delegation.token.secret.key": "planted"})
    entries = {entry.name: entry for entry in broker_config_entries(config, synonyms=True)}
    for key in ("ssl.key.password", "delegation.token.secret.key"):
        assert (entries[key].sensitive, entries[key].value) == (True, None)
        assert [synonym.value for synonym in entries[key].synonyms] == [None]
    assert "planted" not in repr(config)


def test_new_group_of_a_single_broker_waits_for_no_members_unless_set() -> None:
    key = "group.initial.rebalance.delay.ms"
    assert BrokerConfig.from_mapping({}).group_initial_rebalance_delay_ms == 3000
    assert BrokerConfig.from_mapping({}).of_single_broker().group_initial_rebalance_delay_ms == 0
    assert BrokerConfig.from_mapping({key: 3000}).of_single_broker().group_initial_rebalance_delay_ms == 3000


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group.coordinator.rebalance.protocols": "consumer"}, "leaves out classic"),
        ({"group.coordinator.rebalance.protocols": "classic,other"}, "classic, consumer, share, streams"),
        ({"group.consumer.session.timeout.ms": 44_999}, "group.consumer.min.session.timeout.ms=45000"),
        ({"group.share.session.timeout.ms": 60_001}, "group.share.max.session.timeout.ms=60000"),
        ({"group.share.min.record.lock.duration.ms": 30_000, "group.share.record.lock.duration.ms": 29_999}, "30000"),
        ({"group.share.max.size": 1_001}, "1000"),
        ({"group.consumer.assignors": ""}, "does not name each assignor once"),
        ({"group.consumer.assignors": "range,range"}, "does not name each assignor once"),
        ({"group.consumer.assignors": "sticky"}, "uniform, range"),
        ({"group.consumer.migration.policy": "up"}, "bidirectional"),
        (
            {
                "group.consumer.min.session.timeout.ms": 1_000,
                "group.consumer.session.timeout.ms": 5_000,
            },
            "group.consumer.heartbeat.interval.ms=5000 is not below group.consumer.session.timeout.ms=5000",
        ),
    ],
)
def test_settings_of_groups_that_contradict_each_other_are_refused(settings: dict[str, object], text: str) -> None:
    assert text in refusal(settings)


def test_migration_policy_may_have_capital_letters() -> None:
    assert (
        BrokerConfig.from_mapping({"group.consumer.migration.policy": "UPGRADE"}).value(
            "group.consumer.migration.policy"
        )
        == "upgrade"
    )
