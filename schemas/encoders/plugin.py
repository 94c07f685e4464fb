"""The encoders by name: `avro`, `json-schema`, `protobuf`, as in `value.serializer = avro:http://127.0.0.1:8081`.

The addresses of the registry follow the colon, or are in SCHEMA_REGISTRY_URL of the environment. A name that ends in
`-key` is for keys: `avro-key`.
"""

import os
from collections.abc import Sequence
from typing import Any

from ...plugins import hookimpl
from ...ports.errors import ConfigError

_ENVIRONMENT = "SCHEMA_REGISTRY_URL"
_NAMES = ("avro", "json-schema", "protobuf")


@hookimpl
def barnabas_names(kind: str) -> Sequence[str]:
    return [f"{name}{suffix}" for name in _NAMES for suffix in ("", "-key")] if kind in ("encoder", "decoder") else []


@hookimpl
def barnabas_encoder(name: str) -> Any:
    return _made(name)


@hookimpl
def barnabas_decoder(name: str) -> Any:
    return _made(name)


def _made(name: str) -> Any:
    known, _, addresses = name.partition(":")
    plain = known.removesuffix("-key")
    if plain not in _NAMES:
        return None
    registry = addresses or os.environ.get(_ENVIRONMENT, "")
    if not registry:
        text = f"say where the schema registry is: {known}:http://HOST:PORT, or {_ENVIRONMENT} in the environment"
        raise ConfigError(text)
    from .. import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder

    kinds = {"avro": AvroEncoder, "json-schema": JsonSchemaEncoder, "protobuf": ProtobufEncoder}
    return kinds[plain](registry, is_key=known != plain)
