"""Columns of protobuf messages: what a class of protoc writes, with the schema that a registry has."""

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from support.registry_stub import RegistryStub, registry_stub

from barnabas.ports.errors import ConfigError
from barnabas.schemas import ProtobufEncoder, RegistryClient
from barnabas.schemas.columns.protobuf import ProtobufColumns

INT64, UINT64, STRING, MESSAGE, ENUM, UINT32, BYTES = 3, 4, 9, 11, 14, 13, 12


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def message_classes(*fields: dict[str, Any], recursive: bool = False) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="visits.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    visit = file.message_type.add(name="Visit")
    for number, field in enumerate(fields, 1):
        visit.field.add(number=number, **{"label": 1, **field})
    entry = visit.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=STRING, label=1)
    entry.field.add(name="value", number=2, type=INT64, label=1)
    colour = visit.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    other = file.message_type.add(name="Other")
    other.field.add(name="self", number=1, type=MESSAGE, label=1, type_name=".shop.Other")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Visit", "Other")]


FIELDS: tuple[dict[str, Any], ...] = (
    {"name": "id", "type": INT64},
    {"name": "at", "type": MESSAGE, "type_name": ".google.protobuf.Timestamp"},
    {"name": "tags", "type": STRING, "label": 3},
    {"name": "counts", "type": MESSAGE, "label": 3, "type_name": ".shop.Visit.CountsEntry"},
    {"name": "colour", "type": ENUM, "type_name": ".shop.Visit.Colour"},
    {"name": "size", "type": UINT64},
    {"name": "note", "type": MESSAGE, "type_name": ".google.protobuf.StringValue"},
    {"name": "data", "type": BYTES},
)


def test_messages_of_an_older_and_the_newest_schema(stub: RegistryStub) -> None:
    at = datetime.datetime(2011, 6, 12, 9, 30, tzinfo=datetime.UTC)
    old, _ = message_classes(*FIELDS[:1])
    new, other = message_classes(*FIELDS)
    encoder = ProtobufEncoder(stub.url)
    full = {
        "id": 2,
        "at": at,
        "tags": ["a"],
        "counts": {"x": 1},
        "colour": 1,
        "size": 2**64 - 1,
        "note": {"value": "n"},
        "data": b"\0",
    }
    rows = [
        encoder.encode("visits", old(id=1)),
        encoder.encode("visits", new(**full)),
        None,
        encoder.encode("visits", other()),
        (encoder.encode("visits", old(id=1)) or b"") + b"\x0a",
        b"plain",
    ]
    client = RegistryClient(stub.url)
    found = ProtobufColumns(client, client.latest("visits-value", serialized=True)).decode(pa.array(rows, pa.binary()))
    blank: dict[str, Any] = {
        "at": None,
        "tags": [],
        "counts": [],
        "colour": "RED",
        "size": decimal.Decimal(0),
        "note": None,
    }
    assert found.values.to_pylist() == [
        {"id": 1, **blank, "data": b""},
        {**full, "counts": [("x", 1)], "colour": "BLUE", "size": decimal.Decimal(2**64 - 1), "note": "n"},
        *(None,) * 4,
    ]
    assert set(found.errors) == {3, 4, 5}
    assert "a message of type shop.Other, not shop.Visit" in found.errors[3]
    with pytest.raises(ConfigError, match=r"shop\.Other is recursive"):
        ProtobufColumns(client, client.latest("visits-value", serialized=True), (1,))
