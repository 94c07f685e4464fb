"""Methods of other Kafka clients: the error names the counterpart, and the counterpart exists."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

import barnabas
from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, Message, Producer
from barnabas.app.clients.consumer.rebalance_listener import listener_of
from barnabas.app.clients.shared.delivery import DeliveryHandle
from barnabas.app.clients.shared.foreign_methods import (
    ADMIN,
    ASYNC_CONSUMER,
    CONSUMER,
    HANDLE,
    KEYWORDS,
    MESSAGE,
    PRODUCER,
    explain_foreign_names,
)
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestBroker

TABLES = [
    (Producer, PRODUCER),
    (AsyncProducer, PRODUCER),
    (Consumer, CONSUMER),
    (AsyncConsumer, ASYNC_CONSUMER),
    (Admin, ADMIN),
    (Message, MESSAGE),
    (DeliveryHandle, HANDLE),
]
OURS = (Producer, AsyncProducer, Consumer, AsyncConsumer, Admin, Message)


def names_of(kind: object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and name.islower()}


@pytest.mark.parametrize(("kind", "names"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_name_of_another_client_raises_an_error_with_the_counterpart(kind: type, names: Mapping[str, str]) -> None:
    foreign = [name for name in names if not hasattr(kind, name)]
    for name in foreign:
        with pytest.raises(AttributeError) as missing:
            getattr(kind, name)
        text = str(missing.value)
        assert text.startswith(f"{kind.__name__} has no {name!r}, a name of other Kafka clients; ")
        assert text.endswith(names[name])
    own = {AsyncProducer: {"send_and_wait"}, Admin: set(), Message: set()}
    assert names.keys() - {*foreign} == own.get(kind, set())


@pytest.mark.parametrize(("kind", "names"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_counterparts_are_calls_and_properties_that_exist(kind: type, names: Mapping[str, str]) -> None:
    texts = [*names.values()]
    if kind is Consumer:
        texts += [text for of_method in KEYWORDS.values() for text in of_method.values()]
    known = {name for ours in OURS for name in dir(ours)} | {"len", "result", "to_thread", *barnabas.__all__}
    for text in texts:
        called = re.findall(r"(\w+)\(", text) + re.findall(r"(?:consumer|message)\.(\w+)", text)
        assert set(called) - {"consumer"} <= known, text


@pytest.mark.parametrize("method", sorted(KEYWORDS))
def test_keyword_of_another_client_raises_an_error_with_the_counterpart(method: str) -> None:
    with TestBroker() as broker, broker.consumer(group_id="g") as consumer:
        for name, counterpart in KEYWORDS[method].items():
            with pytest.raises(TypeError) as refused:
                getattr(consumer, method)(**{name: 1})
            assert str(refused.value) == (
                f"{method}() has no {name!r}, a name of other Kafka clients; use {counterpart}"
            )
        with pytest.raises(TypeError, match="unexpected keyword argument 'misspelt'"):
            getattr(consumer, method)(misspelt=1)


def test_foreign_names_are_not_listed_among_the_members_of_an_object() -> None:
    message = Message(b"x", timestamp_ms=5)
    assert {"timestamp_ms", "value"} <= names_of(message)
    assert not {"timestamp", "error"} & names_of(message)
    assert message.timestamp_ms == 5


def test_a_name_that_a_class_has_itself_stays_its_own() -> None:
    @explain_foreign_names({"poll": "another", "produce": "send()"})
    class Client:
        def poll(self) -> int:
            return 1

    assert Client().poll() == 1
    assert not hasattr(Client(), "produce")


def public_names(path: str) -> set[str]:
    module, _, name = path.rpartition(".")
    library = pytest.importorskip(module, reason=f"{module} is not installed")
    return names_of(getattr(library, name))


LIBRARY_CLASSES: list[tuple[str, type[Any], Mapping[str, str]]] = [
    ("kafka.KafkaProducer", Producer, PRODUCER),
    ("kafka.KafkaConsumer", Consumer, CONSUMER),
    ("kafka.KafkaAdminClient", Admin, ADMIN),
    ("kafka.consumer.fetcher.ConsumerRecord", Message, MESSAGE),
    ("confluent_kafka.Producer", Producer, PRODUCER),
    ("confluent_kafka.Consumer", Consumer, CONSUMER),
    ("confluent_kafka.Message", Message, MESSAGE),
    ("confluent_kafka.admin.AdminClient", Admin, ADMIN),
    ("aiokafka.AIOKafkaProducer", AsyncProducer, PRODUCER),
    ("aiokafka.AIOKafkaConsumer", AsyncConsumer, ASYNC_CONSUMER),
]


@pytest.mark.parametrize(
    ("path", "kind", "names"), LIBRARY_CLASSES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_every_method_of_a_library_is_ours_or_has_a_counterpart(
    path: str, kind: type, names: Mapping[str, str]
) -> None:
    inside = {"max_usable_produce_magic", "bootstrap"}
    assert public_names(path) - names.keys() - set(dir(kind)) - inside == set()


def test_listener_of_another_library_is_called_with_partitions() -> None:
    class Listener:
        def __init__(self) -> None:
            self.calls: list[tuple[str, list[TopicPartition]]] = []

        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            self.calls.append(("assigned", assigned))

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            self.calls.append(("revoked", revoked))

    given, partitions = Listener(), [TopicPartition("orders", 0)]
    listener = listener_of(given, None, None, None)
    listener.on_assigned(partitions)
    listener.on_revoked(partitions)
    listener.on_lost(partitions)
    assert given.calls == [("assigned", partitions), ("revoked", partitions), ("revoked", partitions)]


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("kafka.admin", {"topic_configs": {"retention.ms": 5000}, "replica_assignments": {0: [1], 1: [1]}}),
        ("confluent_kafka.admin", {"config": {"retention.ms": "5000"}, "replica_assignment": [[1], [1]]}),
    ],
)
def test_new_topics_of_other_libraries_and_names_are_created(path: str, arguments: dict[str, Any]) -> None:
    library = pytest.importorskip(path, reason=f"{path} is not installed")
    with TestBroker() as broker, broker.admin() as admin:
        (node,) = admin.describe_cluster().brokers
        arguments = {name: _of_broker(value, node.node_id) for name, value in arguments.items()}
        given = [library.NewTopic("assigned", **arguments), library.NewTopic("counted", 3, 1), "named"]
        admin.create_topics(given)
        counts = {each.name: len(each.partitions) for each in admin.describe_topics()}
        assert counts == {"assigned": 2, "counted": 3, "named": 1}
        assert admin.topic_overrides("assigned") == {"retention.ms": "5000"}
        with pytest.raises(TypeError, match="expected NewTopic, got int"):
            admin.create_topics([5])  # type: ignore[list-item]  # that is the question


def _of_broker(value: Any, node: int) -> Any:
    """Return replica assignments with the id of this broker, other values as they are."""
    if isinstance(value, list):
        return [[node] for _ in value]
    return {key: [node] for key in value} if all(isinstance(each, list) for each in value.values()) else value


def test_pattern_in_confluent_kafkas_form_is_not_taken_for_a_topic() -> None:
    with (
        TestBroker() as broker,
        broker.consumer(group_id="g") as consumer,
        pytest.raises(ConfigError, match=r"pattern '\^orders.*' by pattern="),
    ):
        consumer.subscribe(["^orders.*"])
