"""A server.properties of Kafka, read as Java reads it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.app.config import BrokerConfig, read_config
from barnabas.app.config.properties import parse_properties
from barnabas.ports.errors import ConfigError

OF_KAFKA_4 = """\
############################# Server Basics #############################
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=CONTROLLER://localhost:9093,PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=9
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

OF_KAFKA_2 = """\
broker.id=0
num.network.threads=3
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181/chroot
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b \n", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\fb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("# a=b\n! c=d\n\n  # e", {}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=1\\\n   ,2\\\n,3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\r\n#2\r\nb=3\rc=4", {"a": "1#2", "b": "3", "c": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        (r"a\=\:\ b=c\td\ne\z\#", {"a=: b": "c\td\nez#"}),
        (r"a=\u00e4\u20AC\uD83D\uDE00", {"a": "ä€\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_property_lines_parse_as_in_java(content: str, found: dict[str, str]) -> None:
    assert parse_properties(content.encode()) == found


def test_latin_1_and_utf_8() -> None:
    assert parse_properties("a=Käse".encode("latin-1")) == {"a": "Käse"}
    assert parse_properties("\ufeffa=Käse".encode()) == {"a": "Käse"}


@pytest.mark.parametrize("content", [r"x=1\u12", r"x=\uGGGG", r"x=\u", r"x=\uD83D"])
def test_escapes_that_are_none(content: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2: "):
        parse_properties(f"# a comment\n{content}".encode())


@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused(content: bytes) -> None:
    try:
        parse_properties(content)
    except ValueError as error:
        assert str(error).startswith("line ")


def test_the_file_that_kafka_4_comes_with(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(OF_KAFKA_4)
    config = read_config(file, {"num.partitions": "5"})
    assert (config.broker_id, config.num_partitions, config.data_dirs) == (7, 5, ("/tmp/kraft-combined-logs",))
    assert [str(listener) for listener in config.listener_list] == ["kafka://:9092"]
    assert [str(listener) for listener in config.advertised_listener_list] == ["kafka://localhost:9092"]
    assert config.value("num.io.threads") == "9"
    assert config.without_effect == [
        "controller.quorum.bootstrap.servers",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "process.roles",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ]


def test_a_file_of_the_time_of_zookeeper(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(OF_KAFKA_2)
    config = read_config(file)
    assert (config.broker_id, config.coordination) == (0, "zookeeper://localhost:2181/chroot")


def test_config_file_format_is_detected_from_content(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:9094\nlog.dirs=/a,/b")
    assert read_config(file).data_dirs == ("/a", "/b")
    file.write_text('listeners = ["kafka://127.0.0.1:9094"]\n[log]\ndirs = ["/a"]')
    assert read_config(file).data_dirs == ("/a",)
    file.write_text("[log\ndirs = ")
    with pytest.raises(ConfigError, match="is neither TOML nor a properties file"):
        read_config(file)


def test_config_file_errors_name_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(r"a=\u1")
    with pytest.raises(ConfigError, match=r"server\.properties is not a properties file: line 1: "):
        read_config(file)
    with pytest.raises(ConfigError, match=r"missing\.properties cannot be read"):
        read_config(tmp_path / "missing.properties")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"process.roles": "controller"}, "process.roles=controller"),
        ({"process.roles": "leader"}, "process.roles='leader' is not a list of broker, controller"),
        ({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}, "of controllers only"),
        ({"listeners": "INTERNAL://:9093"}, "is not of the form kafka://HOST:PORT"),
        ({"listener.security.protocol.map": "A:B"}, "listener.security.protocol.map has 'A:B'"),
        ({"ssl.engine.factory.class": "x"}, "only Java has a use for it"),
        ({"zookeeper.ssl.crl.enable": "true"}, "is not one of false"),
        ({"password.encoder.secret": "s"}, "no passwords are stored"),
        ({"security.inter.broker.protocol": "SSL"}, "no listener speaks it"),
        ({"remote.log.storage.system.enable": "true"}, "needs remote.log.storage.manager.class.name"),
    ],
)
def test_contradictory_broker_settings_are_refused(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.from_mapping(settings)
    assert fault in str(error.value)


def test_listeners_with_names_of_their_own() -> None:
    config = BrokerConfig.from_mapping(
        {
            "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://:9094",
            "advertised.listeners": "EXTERNAL://kafka.example:443,INTERNAL://10.0.0.1:9092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        }
    )
    assert config.listeners == ("INTERNAL://10.0.0.1:9092", "EXTERNAL://:9094")
    assert [str(each) for each in config.listener_list] == ["kafka://10.0.0.1:9092", "kafka://:9094"]
    assert [each.name for each in config.listener_list] == ["INTERNAL", "EXTERNAL"]
    observed = ["kafka://10.0.0.1:9092", "kafka://kafka.example:443"]
    assert [str(each) for each in config.advertised_listener_list] == observed


_NAMED = {
    "listeners": "classic://:6667,INTERNAL://10.0.0.1:9092,kafka://:9093,CONTROLLER://:9095",
    "advertised.listeners": "CONTROLLER://x:1,CLASSIC://a:1,INTERNAL://10.0.0.1:9092,PLAINTEXT://a:3",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


@pytest.mark.parametrize(
    ("settings", "index"),
    [
        ({}, 0),
        (_NAMED, 1),
        ({**_NAMED, "inter.broker.listener.name": "internal"}, 1),
        ({**_NAMED, "inter.broker.listener.name": "PLAINTEXT"}, 2),
        ({**_NAMED, "inter.broker.listener.name": "kafka"}, 2),
        ({"listeners": "classic://:6667"}, None),
    ],
)
def test_the_listener_for_brokers(settings: dict[str, object], index: int | None) -> None:
    assert BrokerConfig.from_mapping(settings).inter_broker_listener == index


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"inter.broker.listener.name": "X"}, "=X is the name of none of the listeners: PLAINTEXT"),
        ({**_NAMED, "inter.broker.listener.name": "CONTROLLER"}, "none of the listeners: INTERNAL, PLAINTEXT"),
        ({**_NAMED, "inter.broker.listener.name": "CLASSIC"}, "none of the listeners: INTERNAL, PLAINTEXT"),
        ({"listeners": "classic://:6667", "inter.broker.listener.name": "A"}, "there are none of kafka://"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "set only one of them",
        ),
    ],
)
def test_a_listener_for_brokers_that_is_none(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.from_mapping(settings)
    assert fault in str(error.value)
