"""Every setting of other Kafka clients is understood, ignored with a text, or refused with a text."""

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from support.foreign_clients import JAVA, aiokafka_settings, confluent_kafka_settings, kafka_python_settings

from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, SimpleConsumer
from barnabas.app.clients.shared.client_arguments import ClientArguments
from barnabas.app.clients.shared.foreign_settings import COUNTERPARTS, IGNORED, OTHER_NAMES, REFUSED
from barnabas.app.clients.shared.settings import (
    RETRIES_MAX,
    CommonSettings,
    ConsumerSettings,
    ProducerSettings,
    is_client_setting,
    read_settings,
)
from barnabas.app.config.security_settings import SecuritySettings, is_security_key
from barnabas.core.client.consumer.subscription_state import Reset
from barnabas.ports.errors import ConfigError
from barnabas.testing import TestBroker

SAMPLES = {"acks": "1", "auto_offset_reset": "earliest", "enable_auto_commit": "false", "compression_type": "gzip"}
"""Values of fields that are no numbers."""
JAVA_SERDES, JAVA_PRODUCER = "org.apache.kafka.common.serialization", "org.apache.kafka.clients.producer"
KINDS = (ProducerSettings, ConsumerSettings)


@pytest.mark.parametrize(("name", "field"), sorted(OTHER_NAMES.items()))
def test_other_name_of_a_setting_reaches_its_field(name: str, field: str) -> None:
    text = "round_robin" if field == "partitioner" else "string" if "coder" in field else "7"
    value = SAMPLES.get(field, text)
    kinds = [kind for kind in KINDS if hasattr(kind(), field)]
    assert kinds
    for kind in kinds:
        of_ours = getattr(read_settings(kind, {field.replace("_", "."): value}, {}), field)
        assert of_ours != getattr(kind(), field)
        assert getattr(read_settings(kind, {name: value}, {}), field) == of_ours
        assert getattr(read_settings(kind, {}, {name.replace(".", "_"): value}), field) == of_ours


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_ignored_setting_is_named_in_a_warning_with_the_reason(key: str, caplog: pytest.LogCaptureFixture) -> None:
    read_settings(CommonSettings, {key: "5"}, {})
    read_settings(ConsumerSettings, {}, {key.replace(".", "_"): "5"})
    texts = [f"{key} ({IGNORED[key]})", f"{key.replace('.', '_')} ({IGNORED[key]})"]
    assert caplog.messages == [
        f"settings without effect in {client}: {text}"
        for client, text in zip(("an Admin", "a Consumer"), texts, strict=True)
    ]


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_refused_setting_raises_its_advice_unless_the_value_is_harmless(key: str) -> None:
    for harmless in (*REFUSED[key].harmless, None):
        read_settings(ProducerSettings, {key: harmless}, {})
    for kind in KINDS:
        with pytest.raises(ConfigError) as refused:
            read_settings(kind, {key: "something"}, {})
        assert str(refused.value) == f"{key}: {REFUSED[key].advice}"
    named = key.replace(".", "_")
    with pytest.raises(ConfigError) as refused:
        read_settings(CommonSettings, {}, {named: print})
    assert str(refused.value) == f"{named}: {REFUSED[key].advice}"


@pytest.mark.parametrize(
    ("key", "value"),
    [("enable.partition.eof", 0), ("enable.auto.offset.store", "1"), ("interceptor.classes", []), ("ssl_crlfile", "")],
)
def test_value_that_asks_for_what_is_done_anyway_is_accepted_in_every_form(
    key: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    read_settings(ConsumerSettings, {key: value}, {})
    assert not caplog.messages


def test_no_setting_stands_in_two_tables_or_is_our_own() -> None:
    tables: list[set[str]] = [set(OTHER_NAMES), set(COUNTERPARTS), set(IGNORED), set(REFUSED)]
    foreign = {name for table in tables for name in table}
    assert sum(map(len, tables)) == len(foreign)
    own = {name.replace("_", ".") for kind in (*KINDS, SecuritySettings) for name in attrs.fields_dict(kind)}
    own |= set(SecuritySettings.ALIASES)
    assert not own & foreign


@pytest.mark.parametrize(
    "settings",
    [lambda: set(JAVA.split()), kafka_python_settings, aiokafka_settings, confluent_kafka_settings],
    ids=["java", "kafka-python", "aiokafka", "confluent-kafka"],
)
def test_every_setting_of_a_library_is_in_a_table(settings: Callable[[], set[str]]) -> None:
    special = {"oauth.cb", "default.topic.config", "default.topic.conf"}
    own = {name.replace("_", ".") for name in attrs.fields_dict(SecuritySettings)} | set(SecuritySettings.ALIASES)
    assert all(map(is_security_key, own))
    unknown = {
        name
        for name in settings()
        if (key := name.replace("_", ".")) not in special and not is_client_setting(key) and key not in own
    }
    assert not unknown


@pytest.mark.parametrize(
    ("kind", "given", "field", "value"),
    [
        (ProducerSettings, {"queue.buffering.max.kbytes": "64"}, "buffer_memory", 65_536),
        (ProducerSettings, {"retries": float("inf")}, "retries", RETRIES_MAX),
        (ProducerSettings, {"message.timeout.ms": 0}, "delivery_timeout_ms", RETRIES_MAX),
        (ProducerSettings, {"default.topic.config": {"acks": 1}}, "acks", 1),
        (ProducerSettings, {"default.topic.config": {"acks": 1}, "acks": "all"}, "acks", -1),
        (ProducerSettings, {"value.serializer": f"{JAVA_SERDES}.StringSerializer"}, "encoder", "string"),
        (ProducerSettings, {"partitioner": f"{JAVA_PRODUCER}.RoundRobinPartitioner"}, "partitioner", "round_robin"),
        (ConsumerSettings, {"consumer_timeout_ms": float("inf")}, "consumer_timeout_ms", -1),
        (ConsumerSettings, {"auto.offset.reset": "error"}, "auto_offset_reset", Reset.NONE),
        (ConsumerSettings, {"auto_offset_reset": "smallest", "group_id": None}, "auto_offset_reset", Reset.EARLIEST),
        (ConsumerSettings, {"key.deserializer": f"{JAVA_SERDES}.ByteArrayDeserializer"}, "key_decoder", "bytes"),
    ],
)  # fmt: skip
def test_values_of_other_libraries_are_converted(
    kind: type, given: dict[str, object], field: str, value: object
) -> None:
    assert getattr(read_settings(kind, given, {}), field) == value


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queue.buffering.max.kbytes": "much"}, r"^queue\.buffering\.max\.kbytes = 'much': invalid literal"),
        ({"default.topic.config": "acks=1"}, r"^default\.topic\.config: expected a mapping"),
        ({"oauth_cb": "token"}, r"^oauth_cb: expected a function"),
    ],
)
def test_unusable_value_of_another_library_is_named(given: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings(ProducerSettings, given, {})


def test_a_time_as_reset_policy_names_the_way_to_begin_there() -> None:
    with pytest.raises(ConfigError, match=r"assign\(timestamp_ms=\.\.\.\)"):
        read_settings(ConsumerSettings, {"auto.offset.reset": "by_duration:PT1H"}, {})


@pytest.mark.parametrize("library", ["kafka.coordinator.assignors", "aiokafka.coordinator.assignors"])
def test_assignor_classes_of_python_libraries_are_taken_by_name(library: str) -> None:
    module = pytest.importorskip(f"{library}.roundrobin")
    strategies = [module.RoundRobinPartitionAssignor, "range"]
    settings = read_settings(ConsumerSettings, {}, {"partition_assignment_strategy": strategies})
    assert settings.partition_assignment_strategy == ("roundrobin", "range")


def test_oauth_callback_of_confluent_kafka_gets_its_configuration() -> None:
    given: list[str] = []

    def callback(config: str) -> tuple[str, float]:
        given.append(config)
        return "token", 0.0

    secured = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": callback}
    security = read_settings(CommonSettings, {**secured, "sasl.oauthbearer.config": "scope=a"}, {}).security
    assert security.sasl_oauth_token_provider() == ("token", 0.0)
    assert given == ["scope=a"]


def test_a_shared_mapping_of_librdkafka_makes_every_client() -> None:
    with TestBroker() as broker:
        config = {
            "metadata.broker.list": broker.bootstrap,
            "security.protocol": "plaintext",
            "acks": "all",
            "queue.buffering.max.ms": 1,
            "group.id": "readers",
            "auto.offset.reset": "smallest",
            "statistics.interval.ms": 0,
        }
        with Producer(config) as producer:
            producer.send("orders", b"one").result(30)
        with Consumer(config) as consumer:
            consumer.subscribe("orders")
            (message,) = consumer.poll_many(1, timeout=30)
        with Admin(config=config) as admin:
            assert admin.list_topics() == ["orders"]
        with SimpleConsumer({"bootstrap.servers": broker.bootstrap}) as simple:
            assert [each.value for each in simple.fetch("orders", 0, offset=0)] == [b"one"]
        assert message.value == b"one"


def test_keywords_of_kafka_python_make_clients_of_one_process_and_of_asyncio() -> None:
    async def over_asyncio(bootstrap: str) -> object:
        kafka_python: dict[str, Any] = {"bootstrap_servers": bootstrap, "value_serializer": str.encode}
        async with AsyncProducer(**kafka_python) as producer:
            await producer.send_and_wait("orders", "one")
        kafka_python = {"bootstrap_servers": [bootstrap], "value_deserializer": bytes.decode}
        async with AsyncConsumer(group_id=None, consumer_timeout_ms=1000, **kafka_python) as consumer:
            await consumer.assign("orders", position="earliest")
            return (await consumer.poll_many(1, 30))[0].value

    with TestBroker() as broker:
        assert asyncio.run(over_asyncio(broker.bootstrap)) == "one"


def test_serializers_as_objects_are_taken_under_every_name() -> None:
    def encode(value: object) -> bytes:
        return repr(value).encode()

    for arguments in (
        ClientArguments(None, {"value.serializer": encode}, {}),
        ClientArguments({"encoder": encode}, None, {}),
        ClientArguments(None, None, {"value_serializer": encode}),
    ):
        assert arguments.take_object("encoder", None) is encode
        assert (arguments.config, arguments.settings) == ({}, {})
    assert ClientArguments(None, {"value.serializer": "json"}, {}).take_object("encoder", None) is None
    with pytest.raises(ConfigError, match="several names"):
        ClientArguments(None, {"value.serializer": encode}, {}).take_object("encoder", encode)


def test_addresses_are_taken_once() -> None:
    config = {"bootstrap.servers": "a:1", "linger.ms": 5}
    arguments = ClientArguments(config, None, {})
    assert (arguments.bootstrap, arguments.config) == ("a:1", {"linger.ms": 5})
    assert ClientArguments("b:1", config, {}).bootstrap == "b:1"
    assert ClientArguments(None, config, {"bootstrap_servers": ["c:1"]}).bootstrap == ["c:1"]
    assert ClientArguments(None, {"bootstrap_servers": "d:1"}, {}).bootstrap == "d:1"
    with pytest.raises(ConfigError, match=r"bootstrap 'orders' and bootstrap_servers are both given.*subscribe\(\)"):
        Consumer("orders", bootstrap_servers="a:1")  # type: ignore[call-overload]  # foreign names have no types
    with pytest.raises(ConfigError, match="give one of them"):
        Producer(config, config={"acks": 1})
    with pytest.raises(ConfigError, match=r"or bootstrap\.servers"):
        Producer({"acks": 1})


def test_classic_addresses_in_a_mapping_make_classic_clients() -> None:
    from barnabas.app.clients.classic.producer import ClassicProducer
    from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer

    config = {"bootstrap.servers": "classic://127.0.0.1:9"}
    with Producer(config) as producer, SimpleConsumer(config) as consumer:
        assert [type(producer), type(consumer)] == [ClassicProducer, ClassicSimpleConsumer]


def test_serializers_of_confluent_kafka_get_their_context() -> None:
    serialization = pytest.importorskip("confluent_kafka.serialization", reason="confluent-kafka is not installed")
    from barnabas.app.clients.shared.encoding import as_decoder, as_encoder

    class Titled(serialization.Serializer):  # type: ignore[misc, name-defined]  # the library has no types
        def __call__(self, value: str, context: object = None) -> bytes:
            return f"{context.topic}/{context.field}: {value}".encode()  # type: ignore[attr-defined]

    assert as_encoder(Titled(), "key_encoder").encode("orders", "x") == b"orders/key: x"
    encoder = as_encoder(serialization.StringSerializer("utf_8"), "encoder")
    assert (encoder.encode("orders", "x"), encoder.encode("orders", None)) == (b"x", None)
    decoder = as_decoder(serialization.IntegerDeserializer(), "decoder")
    assert (decoder.decode("orders", b"\0\0\0\7"), decoder.decode("orders", None)) == (7, None)


def test_serializers_of_kafka_python_get_topic_and_value() -> None:
    abstract = pytest.importorskip("kafka.serializer.abstract", reason="kafka-python is not installed")
    from barnabas.app.clients.shared.encoding import as_decoder, as_encoder

    class Titled(abstract.Serializer, abstract.Deserializer):  # type: ignore[misc, name-defined]  # no types
        def serialize(self, topic: str, headers: object, data: str) -> bytes:
            return f"{topic}: {data}".encode()

        def deserialize(self, topic: str, headers: object, data: bytes) -> str:
            return f"{topic}: {data.decode()}"

    assert as_encoder(Titled(), "encoder").encode("orders", "x") == b"orders: x"
    assert as_decoder(Titled(), "decoder").decode("orders", b"x") == "orders: x"
    assert as_encoder(Titled(), "encoder").encode("orders", None) is None
