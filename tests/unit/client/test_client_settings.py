"""Settings under all their names."""

import pytest

from barnabas.app.clients.shared.settings import (
    CommonSettings,
    ConsumerSettings,
    FetchSettings,
    ProducerSettings,
    copy_settings,
    read_settings,
)
from barnabas.core.client.consumer.subscription_state import Reset
from barnabas.core.client.producer.sender import SenderSettings
from barnabas.ports.errors import ConfigError


def test_producer_settings_have_documented_defaults() -> None:
    settings = read_settings(ProducerSettings, None, {})
    assert (settings.acks, settings.linger_ms, settings.partitioner) == (-1, 5, "murmur2")


def test_dotted_names_and_keyword_arguments_which_win() -> None:
    config = {"linger.ms": "20", "acks": "all", "client.id": "me", "bootstrap.servers": "ignored:1"}
    settings = read_settings(ProducerSettings, config, {"linger_ms": 7, "batch_size": None})
    assert (settings.linger_ms, settings.acks, settings.client_id) == (7, -1, "me")


def test_names_of_the_classic_producer() -> None:
    config = {
        "producer.type": "async",
        "queue.time": "5000",
        "queue.size": "10000",
        "queue.enqueueTimeout.ms": "-1",
        "batch.size": "200",
        "num.retries": "3",
        "compression.codec": "1",
        "compressed.topics": "a, b",
        "serializer.class": "kafka.serializer.StringEncoder",
        "max.message.size": "1000000",
        "connect.timeout.ms": "5000",
    }
    settings = read_settings(ProducerSettings, config, {})
    assert settings.linger_ms == 5000
    assert settings.queue_buffering_max_messages == 10_000
    assert settings.max_block_ms == -1
    assert (settings.batch_num_messages, settings.batch_size) == (200, 262_144)
    assert settings.retries == 3
    assert (settings.compression_type, settings.compressed_topics) == ("gzip", ("a", "b"))
    assert settings.encoder == "string"
    assert settings.socket_connection_setup_timeout_ms == 5000


def test_batch_size_alone_is_read_as_bytes() -> None:
    assert read_settings(ProducerSettings, {"batch.size": 1000}, {}).batch_size == 1000


@pytest.mark.parametrize(
    ("word", "reset"),
    [("smallest", Reset.EARLIEST), ("earliest", Reset.EARLIEST), ("largest", Reset.LATEST), ("none", Reset.NONE)],
)
def test_classic_and_kafka_reset_policies_are_accepted(word: str, reset: Reset) -> None:
    assert read_settings(ConsumerSettings, {"autooffset.reset": word}, {}).auto_offset_reset is reset


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"linger.sm": 1}, "did you mean 'linger.ms'"),
        ({"acks": "2"}, '^acks must be 0, 1 or "all" .got 2.$'),
        ({"acks": "some"}, "acks = 'some': expected 0, 1 or \"all\""),
        ({"linger.ms": "soon"}, "linger.ms = 'soon': expected a number of milliseconds$"),
        ({"linger.ms": True}, "linger.ms = True: expected a number of milliseconds$"),
        ({"request.timeout.ms": "1 s"}, "expected a whole number of milliseconds$"),
        ({"retries": "many"}, "retries = 'many': expected a whole number$"),
        ({"linger.ms": -1}, "linger.ms must be"),
        ({"enable.idempotence": "true", "acks": 1}, "needs acks=all"),
        ({"enable.idempotence": "true", "retries": 0}, "retries > 0"),
        ({"enable.idempotence": "true", "max.in.flight": 6}, "at most 5"),
        ({"enable.idempotence": "perhaps"}, "true or false"),
        ({"zk.connect": "h:1"}, "ZooKeeper"),
        ({"producer.type": "later"}, "producer.type must be"),
    ],
)
def test_unusable_setting_is_named_in_the_error(config: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings(ProducerSettings, config, {})


@pytest.mark.parametrize(
    ("config", "idempotent"),
    [
        ({}, True),
        ({"enable.idempotence": "true"}, True),
        ({"enable.idempotence": False}, False),
        ({"acks": 1}, False),
        ({"acks": 1, "enable.idempotence": False}, False),
        ({"retries": 0}, False),
        ({"max.in.flight.requests.per.connection": 6}, False),
    ],
)
def test_a_producer_is_idempotent_where_it_can_be(config: dict[str, object], idempotent: bool) -> None:
    assert read_settings(ProducerSettings, config, {}).idempotent is idempotent


def test_readers_are_not_asked_for_idempotence() -> None:
    for kind in (FetchSettings, ConsumerSettings):
        read_settings(kind, {"enable.idempotence": False}, {})
        with pytest.raises(ConfigError, match="only producers"):
            read_settings(kind, {}, {"enable_idempotence": True})


def test_only_consumers_have_groups() -> None:
    assert read_settings(ConsumerSettings, {"groupid": "g"}, {}).group_id == "g"
    with pytest.raises(ConfigError, match="only a Consumer"):
        read_settings(FetchSettings, None, {"group_id": "g"})
    with pytest.raises(ConfigError, match="only a Consumer"):
        read_settings(FetchSettings, {"group.id": "g"}, {})
    with pytest.raises(ConfigError, match="only a Consumer"):
        read_settings(ProducerSettings, {}, {"group_id": "g"})


def test_a_mapping_may_be_shared_by_producer_consumer_and_admin(caplog: pytest.LogCaptureFixture) -> None:
    shared = {"group.id": "g", "acks": "all", "client.id": "app", "enable.idempotence": "true"}
    assert read_settings(ProducerSettings, shared, {}).acks == -1
    assert read_settings(ConsumerSettings, shared, {}).group_id == "g"
    assert read_settings(CommonSettings, shared, {}).client_id == "app"
    assert caplog.messages == [
        "settings without effect in a Producer: group.id (other clients have it)",
        "settings without effect in a Consumer: acks, enable.idempotence (other clients have them)",
        "settings without effect in an Admin: group.id, acks, enable.idempotence (other clients have them)",
    ]
    with pytest.raises(ConfigError, match="acks: a setting of producers; a Consumer does not have it, leave it out"):
        read_settings(ConsumerSettings, {}, {"acks": "all"})


def test_strategies_by_name_and_as_objects() -> None:
    mine = object()
    java = "org.apache.kafka.clients.consumer."
    for given, strategies in (
        ("range", ("range",)),
        ("sticky, roundrobin", ("sticky", "roundrobin")),
        (["cooperative-sticky", mine], ("cooperative-sticky", mine)),
        (f"{java}CooperativeStickyAssignor,{java}RangeAssignor", ("cooperative-sticky", "range")),
        (mine, (mine,)),
    ):
        settings = read_settings(ConsumerSettings, None, {"partition_assignment_strategy": given})
        assert settings.partition_assignment_strategy == strategies
    assert read_settings(ConsumerSettings, None, {}).partition_assignment_strategy == ("range", "cooperative-sticky")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"heartbeat.interval.ms": 6000, "session.timeout.ms": 6000}, "less than session.timeout.ms"),
        ({"group.instance.id": "one"}, "needs a group.id"),
        ({"partition.assignment.strategy": ""}, "name of a strategy"),
        ({"group.protocol": "new"}, "group.protocol"),
        (
            {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
            "partition.assignment.strategy cannot be set with group.protocol=consumer",
        ),
        ({"group.protocol": "consumer", "session.timeout.ms": 6000}, "session.timeout.ms cannot be set"),
        ({"group.protocol": "consumer", "heartbeat.interval.ms": 1000}, "heartbeat.interval.ms cannot be set"),
        ({"group.protocol": "classic", "group.remote.assignor": "uniform"}, "needs group.protocol=consumer"),
        ({"auto.commit.interval.ms": -1}, r"^auto\.commit\.interval\.ms must be >= 0"),
    ],
)
def test_groups_that_cannot_be_are_named(config: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings(ConsumerSettings, config, {})


def test_a_keyword_argument_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="did you mean 'client_id'"):
        read_settings(CommonSettings, None, {"clientid": "x"})


def test_copy_settings_takes_fields_of_the_same_name_and_renamed_ones() -> None:
    chosen = ProducerSettings(
        retries=4, retry_backoff_ms=7, max_in_flight_requests_per_connection=3, transactional_id="t"
    )
    copied = copy_settings(SenderSettings, chosen, max_in_flight=chosen.max_in_flight_requests_per_connection)
    assert copied == SenderSettings(retries=4, retry_backoff_ms=7, max_in_flight=3, transactional_id="t")


@pytest.mark.parametrize(
    ("config", "protocol"),
    [
        ({}, "auto"),
        ({"group.protocol": "CLASSIC"}, "classic"),
        ({"group.protocol": "CONSUMER", "group.remote.assignor": "range"}, "consumer"),
        ({"group.protocol": "auto", "partition.assignment.strategy": "sticky"}, "classic"),
        ({"group.protocol": "auto", "session.timeout.ms": 6000}, "classic"),
        ({"group.protocol": "auto", "heartbeat.interval.ms": 1000}, "classic"),
    ],
)
def test_auto_is_classic_with_settings_that_only_classic_groups_have(config: dict[str, object], protocol: str) -> None:
    assert read_settings(ConsumerSettings, config, {}).joins_by == protocol
