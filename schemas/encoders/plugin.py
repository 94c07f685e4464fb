"""The encoders by name: `avro`, `json-schema`, `protobuf`, as in `value.serializer = avro:http://127.0.0.1:8081`.

The addresses of the registry follow the colon, or are in SCHEMA_REGISTRY_URL of the environment. A name that ends in
`-key` is for keys: `avro-key`. SCHEMA_REGISTRY_CONFIG of the environment may name a file with further settings of a
registry's client, such as `basic.auth.user.info` and `schema.registry.ssl.truststore.location`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugins import hookimpl
from ...ports.errors import ConfigError

if TYPE_CHECKING:
    from ..access import RegistryAccess

_ENVIRONMENT = "SCHEMA_REGISTRY_URL"
_CONFIG_ENVIRONMENT = "SCHEMA_REGISTRY_CONFIG"
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
    urls = addresses or os.environ.get(_ENVIRONMENT, "")
    if not urls:
        text = f"say where the schema registry is: {known}:http://HOST:PORT, or {_ENVIRONMENT} in the environment"
        raise ConfigError(text)
    from ...app.cli.client_files import read_client_file
    from .. import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder
    from ..access import access_of

    file = os.environ.get(_CONFIG_ENVIRONMENT)
    registry: str | RegistryAccess = access_of(read_client_file(Path(file)), urls) if file else urls
    kinds = {"avro": AvroEncoder, "json-schema": JsonSchemaEncoder, "protobuf": ProtobufEncoder}
    return kinds[plain](registry, is_key=known != plain)
