"""Avro schemas as parsed by fastavro, with their references."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..app.extras import require
from ..ports.errors import ConfigError
from .client import RegisteredSchema, RegistryClient


@frozen(eq=False)
class LoadedAvro:
    """`parsed` is fastavro's form; `names` has all used named types; `name` is the full name of the type."""

    parsed: Any
    names: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.parsed.get("name", self.parsed["type"])) if isinstance(self.parsed, dict) else str(self.parsed)


def load_avro(schema: Any, referred: Mapping[str, str] | None = None) -> LoadedAvro:
    """Parse a schema given as text or parsed JSON; `referred` has the texts of its references, dependencies first.

    Raises `ConfigError`.
    """
    require("schemas of Avro", ("fastavro",), "schemas")
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    names: dict[str, Any] = {}
    try:
        for text in (referred or {}).values():
            parse_schema(json.loads(text), named_schemas=names)
        return LoadedAvro(parse_schema(_loaded(schema), named_schemas=names), names)
    except UnknownType as error:
        raise ConfigError(f"the Avro schema uses an undefined type {error.name!r}") from error
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"invalid Avro schema: {error!r}") from error


def registered_avro(client: RegistryClient, schema: RegisteredSchema) -> LoadedAvro:
    """Load a registered schema. Raises `ConfigError`, and the client's errors."""
    if schema.kind != "AVRO":
        raise ConfigError(f"schema {schema.id} is of type {schema.kind}, expected AVRO")
    return load_avro(schema.text, client.referred(schema.references))


def _loaded(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    return json.loads(text) if text[:1] in ("{", "[", '"') else text
