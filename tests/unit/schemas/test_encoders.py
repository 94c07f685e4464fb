"""Encoders with a registry: both ways, generic and typed, and with Confluent's own on the other side."""

import datetime
import decimal
import enum
import uuid
from collections.abc import Iterator
from typing import Annotated, Any

import attrs
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support.registry_stub import RegistryStub, registry_stub

from barnabas.plugins.host import PluginHost
from barnabas.ports.errors import BarnabasError, ConfigError, Malformed
from barnabas.schemas import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder
from barnabas.schemas.encoders import plugin

CONTEXT = SerializationContext("orders", MessageField.VALUE)
ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@attrs.frozen
class Line:
    article: str
    count: int = 1


@attrs.frozen
class Order:
    id: int
    at: datetime.datetime
    lines: list[Line]
    price: Annotated[decimal.Decimal, (10, 2)]
    customer: uuid.UUID
    size: Size = Size.SMALL
    note: str | None = None
    extra: dict[str, float] = attrs.field(factory=dict)


AN_ORDER = Order(
    id=7,
    at=datetime.datetime(2011, 6, 12, 9, 30, tzinfo=datetime.UTC),
    lines=[Line("book", 2), Line("pen")],
    price=decimal.Decimal("12.50"),
    customer=uuid.UUID(int=5),
    size=Size.LARGE,
    extra={"weight": 0.5},
)


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def test_avro_is_what_confluents_client_reads_and_writes(stub: RegistryStub) -> None:
    encoder = AvroEncoder(stub.url, ORDER)
    theirs = SchemaRegistryClient({"url": stub.url})
    value = {"id": 3, "note": "hello"}
    assert AvroDeserializer(theirs)(encoder.encode("orders", value), CONTEXT) == value
    assert encoder.decode("orders", AvroSerializer(theirs, ORDER)(value, CONTEXT)) == value
    assert encoder.encode("orders", None) is None
    assert encoder.decode("orders", None) is None
    assert list(stub.subjects) == ["orders-value"]


def test_json_is_what_confluents_client_reads_and_writes(stub: RegistryStub) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # 1.5 s: 38 grammars

    schema = '{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
    encoder = JsonSchemaEncoder(stub.url, schema)
    theirs = SchemaRegistryClient({"url": stub.url})
    data = encoder.encode("orders", {"id": 3})
    assert JSONDeserializer(None, schema_registry_client=theirs)(data, CONTEXT) == {"id": 3}
    assert encoder.decode("orders", JSONSerializer(schema, theirs)({"id": 4}, CONTEXT)) == {"id": 4}
    with pytest.raises(Malformed, match=r"JSON Schema Order \(1\): \$.id: 'x' is not of type 'integer'"):
        encoder.encode("orders", {"id": "x"})


def _message_class() -> Any:
    """Make a class as protoc would: a file with two types, the second with a nested one."""
    file = descriptor_pb2.FileDescriptorProto(name=f"shop{uuid.uuid4().hex}.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    outer = file.message_type.add(name="Order")
    inner = outer.nested_type.add(name="Line")
    inner.field.add(name="article", number=1, type=9, label=1)
    outer.field.add(name="id", number=1, type=3, label=1)
    outer.field.add(name="lines", number=2, type=11, label=3, type_name=".shop.Order.Line")
    outer.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    from barnabas.schemas.descriptors import import_well_known

    import_well_known()
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_is_what_confluents_client_reads_and_writes(stub: RegistryStub) -> None:
    Message = _message_class()
    encoder = ProtobufEncoder(stub.url, Message)
    theirs = SchemaRegistryClient({"url": stub.url})
    at = datetime.datetime(2011, 6, 12, tzinfo=datetime.UTC)
    value = {"id": 2**60, "lines": [{"article": "book"}], "at": at}
    data = encoder.encode("orders", value)
    read = ProtobufDeserializer(Message, {"use.deprecated.format": False})(data, CONTEXT)
    assert (read.id, read.lines[0].article) == (2**60, "book")
    theirs_data = ProtobufSerializer(Message, theirs, {"use.deprecated.format": False})(read, CONTEXT)
    assert theirs_data == data
    assert encoder.decode("orders", theirs_data) == read
    generic = ProtobufEncoder(stub.url)
    assert generic.decode("orders", data) == value
    inner = ProtobufEncoder(stub.url).encode("lines", Message(id=1).lines.add(article="pen"))
    assert ProtobufEncoder(stub.url).decode("lines", inner) == {"article": "pen"}


@pytest.mark.parametrize("kind", [AvroEncoder, JsonSchemaEncoder])
def test_objects_of_attrs_go_and_come(stub: RegistryStub, kind: Any) -> None:
    assert kind(stub.url, Order).decode("orders", kind(stub.url).encode("orders", AN_ORDER)) == AN_ORDER
    generic = kind(stub.url).decode("orders", kind(stub.url, Order).encode("orders", AN_ORDER))
    assert generic["lines"][1] == {"article": "pen", "count": 1}


def test_a_field_that_came_later_has_its_default(stub: RegistryStub) -> None:
    @attrs.frozen
    class Line:
        article: str
        count: int = 1
        weight: float | None = None

    old = {"type": "record", "name": "Line", "fields": [{"name": "article", "type": "string"}]}
    data = AvroEncoder(stub.url, old).encode("lines", {"article": "book"})
    assert AvroEncoder(stub.url, Line).decode("lines", data) == Line("book")
    AvroEncoder(stub.url, Line).encode("lines", Line("pen"))  # now the newest version
    newest = AvroEncoder(stub.url, use_latest=True)
    assert newest.decode("lines", data) == {"article": "book", "count": 1, "weight": None}
    assert newest.decode("lines", newest.encode("lines", {"article": "pen"}))["count"] == 1


@pytest.mark.parametrize(
    "naming,subject",
    [
        ("TopicName", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordName", "orders-shop.Order"),
        (lambda topic, is_key, record: f"my {topic}", "my orders"),
    ],
)
def test_the_names_of_subjects(stub: RegistryStub, naming: Any, subject: str) -> None:
    AvroEncoder(stub.url, ORDER, subject_naming=naming).encode("orders", {"id": 1})
    assert list(stub.subjects) == [subject]


def test_a_schema_that_refers_to_another(stub: RegistryStub) -> None:
    from barnabas.schemas import SchemaReference

    stub.put("line", '{"type": "record", "name": "shop.Line", "fields": [{"name": "article", "type": "string"}]}')
    lines = {"name": "lines", "type": {"type": "array", "items": "shop.Line"}}
    outer = {"type": "record", "name": "shop.Cart", "fields": [lines]}
    encoder = AvroEncoder(stub.url, outer, references=[SchemaReference("shop.Line", "line", 1)])
    data = encoder.encode("carts", {"lines": [{"article": "book"}]})
    assert AvroEncoder(stub.url).decode("carts", data) == {"lines": [{"article": "book"}]}


def test_encoder_error_names_the_fault(stub: RegistryStub, tmp_path: Any) -> None:
    encoder = AvroEncoder(stub.url, ORDER)
    data = encoder.encode("orders", {"id": 1})
    assert data is not None
    cases: list[tuple[Any, str]] = [
        (lambda: encoder.decode("orders", b"plain text"), "no schema's id: expected 00 and four bytes"),
        (lambda: encoder.decode("orders", data[:5]), r"match the Avro schema shop.Order \(1\)"),
        (lambda: encoder.encode("orders", {"id": "x"}), r"match the Avro schema shop.Order \(1\)"),
        (lambda: encoder.encode("orders", {"id": 1, "nott": "a slip"}), r"match the Avro schema shop.Order \(1\)"),
        (lambda: AvroEncoder(stub.url).encode("nobody", {}), "Subject not found.*or give the encoder one: a class"),
        (lambda: AvroEncoder(stub.url, ORDER, auto_register=False).encode("nobody", {"id": 1}), "register the schema"),
        (lambda: AvroEncoder(stub.url, '{"type": "recrod"}'), "invalid Avro schema|undefined type"),
        (lambda: AvroEncoder(stub.url, tmp_path / "gone.avsc"), "the schema cannot be read"),
        (lambda: AvroEncoder(stub.url, subject_naming="Other"), "expected TopicName, RecordName, TopicRecordName"),
        (lambda: JsonSchemaEncoder(stub.url, '{"type": "nothing"}'), "invalid JSON Schema"),
        (
            lambda: JsonSchemaEncoder(stub.url).decode("orders", data),
            "is of type AVRO, expected JSON|invalid JSON after the schema id",
        ),
        (
            lambda: ProtobufEncoder(stub.url).decode("orders", data + b"\0"),
            "is of type AVRO, expected PROTOBUF|of its type",
        ),
        (lambda: ProtobufEncoder(stub.url, dict), "expected a class made by protoc"),
    ]
    for number, (call, text) in enumerate(cases):
        with pytest.raises(BarnabasError, match=text):
            call()
            pytest.fail(f"case {number} passed")


def test_by_name_as_a_plug_in(stub: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> None:
    host = PluginHost([plugin], load_entry_points=False)
    stub.put("orders-value", ORDER)
    encoder = host.encoder(f"avro:{stub.url}")
    assert host.decoder(f"avro:{stub.url}").decode("orders", encoder.encode("orders", {"id": 1})) == {
        "id": 1,
        "note": None,
    }
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    with pytest.raises(ConfigError, match="say where the schema registry is: avro:http://HOST:PORT, or SCHEMA"):
        host.encoder("avro")
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", stub.url)
    host.encoder("avro-key")
    with pytest.raises(ConfigError, match=r"unknown encoder 'avr'; known: avro, avro-key, .*protobuf"):
        host.encoder("avr")
