"""Schemas of messages: formats, encoders, and a registry that speaks the Confluent REST API.

from barnabas.schemas import AvroEncoder

with Producer("127.0.0.1:9092", encoder=AvroEncoder("http://127.0.0.1:8081", Order)) as producer: ...
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import RegistryClient, SchemaReference
    from .encoders.avro import AvroEncoder
    from .encoders.json_decoder import JsonDecoder
    from .encoders.json_schema import JsonSchemaEncoder
    from .encoders.protobuf import ProtobufEncoder

_HOMES = {
    "AvroEncoder": "encoders.avro",
    "JsonDecoder": "encoders.json_decoder",
    "JsonSchemaEncoder": "encoders.json_schema",
    "ProtobufEncoder": "encoders.protobuf",
    "RegistryClient": "client",
    "SchemaReference": "client",
}

__all__ = ["AvroEncoder", "JsonDecoder", "JsonSchemaEncoder", "ProtobufEncoder", "RegistryClient", "SchemaReference"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
