"""Confluent's client of schema registries, unchanged, against ours."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from support.schema_registry import client_of, serving
from support.waiting import PATIENCE_S

from barnabas.testing import TestBroker

VIEW = '{"type":"record","name":"View","fields":[{"name":"page","type":"string"}]}'
VIEW_2 = (
    '{"type":"record","name":"View","fields":[{"name":"page","type":"string"},'
    '{"name":"user","type":["null","string"],"default":null}]}'
)
VIEW_OTHER = '{"type":"record","name":"View","fields":[{"name":"page","type":"int"}]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture
def url(broker: TestBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test has a topic of schemas of its own."""
    with serving(broker.bootstrap, f"_schemas-{request.node.name[:100]}") as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with client_of(url) as client:
        yield client


def refused(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_a_schema_and_its_versions(client: SchemaRegistryClient) -> None:
    first = client.register_schema("views-value", Schema(VIEW, "AVRO"))
    assert client.register_schema("views-value", Schema(VIEW, "AVRO")) == first
    assert client.register_schema("other-value", Schema(VIEW, "AVRO")) == first  # an id for what it says
    second = client.register_schema("views-value", Schema(VIEW_2, "AVRO"))
    assert second != first
    assert client.get_schema(second, fmt="").schema_str == VIEW_2
    assert client.get_versions("views-value") == [1, 2]
    latest = client.get_latest_version("views-value")
    assert (latest.version, latest.schema_id, latest.schema.schema_str) == (2, second, VIEW_2)
    assert client.get_version("views-value", 1).schema_id == first
    assert client.lookup_schema("views-value", Schema(VIEW, "AVRO")).version == 1
    assert client.get_subjects() == ["other-value", "views-value"]
    with pytest.raises(SchemaRegistryError) as incompatible:
        client.register_schema("views-value", Schema(VIEW_OTHER, "AVRO"))
    assert refused(incompatible) == (409, 409)
    assert "/fields/0/type" in str(incompatible.value)


def test_avro_through_a_topic(broker: TestBroker, client: SchemaRegistryClient) -> None:
    """Written with the first schema, read with the second."""
    context = SerializationContext("views", MessageField.VALUE)
    serialize = AvroSerializer(client, VIEW)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("views", serialize({"page": "/"}, context))
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["views"])
    try:
        (message,) = consumer.consume(1, 10)
    finally:
        consumer.close()
    deserialize = AvroDeserializer(client, VIEW_2)
    assert deserialize(message.value(), context) == {"page": "/", "user": None}


def test_confluent_client_sets_and_tests_compatibility_levels(client: SchemaRegistryClient) -> None:
    client.register_schema("views-value", Schema(VIEW, "AVRO"))
    assert client.get_compatibility() == "BACKWARD"
    assert client.test_compatibility("views-value", Schema(VIEW_OTHER, "AVRO")) is False
    client.set_compatibility("views-value", "NONE")
    assert client.get_compatibility("views-value") == "NONE"
    assert client.test_compatibility("views-value", Schema(VIEW_OTHER, "AVRO")) is True
    client.register_schema("views-value", Schema(VIEW_OTHER, "AVRO"))
    client.set_compatibility(level="FORWARD")
    assert client.get_compatibility() == "FORWARD"


def test_confluent_client_deletes_versions_and_subjects(client: SchemaRegistryClient) -> None:
    first = client.register_schema("views-value", Schema(VIEW, "AVRO"))
    client.register_schema("views-value", Schema(VIEW_2, "AVRO"))
    assert client.delete_version("views-value", 2) == 2
    assert client.get_versions("views-value") == [1]
    assert client.get_latest_version("views-value").schema_id == first
    assert client.delete_subject("views-value") == [1]
    assert client.delete_subject("views-value", permanent=True) == [1, 2]
    assert client.get_subjects() == []


def test_confluent_client_registers_schema_references(client: SchemaRegistryClient) -> None:
    page = '{"type":"record","name":"Page","namespace":"web","fields":[{"name":"path","type":"string"}]}'
    visit = '{"type":"record","name":"Visit","fields":[{"name":"page","type":"web.Page"}]}'
    client.register_schema("page", Schema(page, "AVRO"))
    needs = Schema(visit, "AVRO", [SchemaReference("web.Page", "page", 1)])
    number = client.register_schema("visit", needs)
    assert client.get_schema(number).schema_str == visit
    with pytest.raises(SchemaRegistryError) as needed:
        client.delete_version("page", 1)
    assert refused(needed) == (422, 42206)
    with pytest.raises(SchemaRegistryError) as missing:
        client.register_schema("visit-2", Schema(visit, "AVRO"))
    assert refused(missing) == (422, 42201)
    assert "web.Page" in str(missing.value)
    assert AvroSerializer(client, needs)({"page": {"path": "/"}}, SerializationContext("v", MessageField.VALUE))


def test_json_schema_through_its_serializer(client: SchemaRegistryClient) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # 1.5 s: 38 grammars

    member = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    closed = {"title": "Visit", "type": "object", "additionalProperties": False}
    visit = closed | {"properties": {"by": {"$ref": "member.json"}}}
    visit_2 = closed | {"properties": {"by": {"$ref": "member.json"}, "page": {"type": "string"}}}
    client.register_schema("member", Schema(json.dumps(member), "JSON"))
    needs = [SchemaReference("member.json", "member", 1)]
    context = SerializationContext("visits", MessageField.VALUE)
    serialize = JSONSerializer(Schema(json.dumps(visit), "JSON", needs), client)
    data = serialize({"by": {"id": 4}}, context)
    deserialize = JSONDeserializer(Schema(json.dumps(visit_2), "JSON", needs), schema_registry_client=client)
    assert deserialize(data, context) == {"by": {"id": 4}}
    assert client.test_compatibility("visits-value", Schema(json.dumps(visit_2), "JSON", needs)) is True
    client.register_schema("visits-value", Schema(json.dumps(visit_2), "JSON", needs))
    assert client.test_compatibility("visits-value", Schema(json.dumps(visit), "JSON", needs)) is False
    with pytest.raises(SchemaRegistryError) as invalid:
        client.register_schema("other", Schema('{"type":"objekt"}', "JSON"))
    assert refused(invalid) == (422, 42201)


@pytest.mark.slow
def test_protobuf_through_its_serializer(client: SchemaRegistryClient, url: str) -> None:
    """Registered as a descriptor by Confluent's serializer, with what it imports; then looked up as text."""
    pool = DescriptorPool()
    for name, package, number, imports in (
        ("web/page.proto", "web", 0, []),
        ("visit.proto", "log", 1, ["web/page.proto"]),
    ):
        file = FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
        message = file.message_type.add(name=("Page", "Visit")[number])
        field = message.field.add(name=("path", "page")[number], number=1, label=1, type=(9, 11)[number])
        if number:
            field.type_name = ".web.Page"
        pool.Add(file)
    visit = GetMessageClass(pool.FindMessageTypeByName("log.Visit"))
    context = SerializationContext("visits", MessageField.VALUE)
    serialize = ProtobufSerializer(visit, client, {"use.deprecated.format": False})
    data = serialize(visit(page={"path": "/"}), context)
    deserialize = ProtobufDeserializer(visit, {"use.deprecated.format": False}, client)
    assert deserialize(data, context).page.path == "/"
    assert client.get_subjects() == ["visits-value", "web/page.proto"]
    text = 'syntax = "proto3";\npackage log;\nimport "web/page.proto";\nmessage Visit { web.Page page = 1; }'
    needs = [SchemaReference("web/page.proto", "web/page.proto", 1)]
    assert client.lookup_schema("visits-value", Schema(text, "PROTOBUF", needs), True).version == 1
    other = text.replace("web.Page", "string")
    assert client.test_compatibility("visits-value", Schema(other, "PROTOBUF", needs)) is False
    more = text.replace("page = 1;", "page = 1; int64 at = 2;")
    second = client.register_schema("visits-value", Schema(more, "PROTOBUF", needs))
    assert client.get_schema(second, fmt="serialized").schema_str != more
    with client_of(url) as fresh:
        deserialize = ProtobufDeserializer(visit, {"use.deprecated.format": False}, fresh)
        assert deserialize(b"\0" + second.to_bytes(4, "big") + data[5:], context).page.path == "/"
