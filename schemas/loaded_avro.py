"""Schemas of Avro as fastavro parses them, with what they refer to."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..app.extras import require
from ..ports.errors import ConfigError
from .client import RegisteredSchema, RegistryClient


@frozen(eq=False)
class LoadedAvro:
    """`parsed` is what fastavro takes; `names` has every named type it uses; `name` is the full name of the type."""

    parsed: Any
    names: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.parsed.get("name", self.parsed["type"])) if isinstance(self.parsed, dict) else str(self.parsed)


def load_avro(schema: Any, referred: Mapping[str, str] | None = None) -> LoadedAvro:
    """A schema as text or as what JSON makes of it; `referred` are the texts of those it refers to, in their order.

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
        raise ConfigError(f"the Avro schema uses a type {error.name!r} that it does not define") from error
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"this is no Avro schema: {error!r}") from error


def registered_avro(client: RegistryClient, schema: RegisteredSchema) -> LoadedAvro:
    """Raises `ConfigError`, and what the client does."""
    if schema.kind != "AVRO":
        raise ConfigError(f"schema {schema.id} is of {schema.kind}, not of AVRO")
    return load_avro(schema.text, client.referred(schema.references))


def _loaded(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    return json.loads(text) if text[:1] in ("{", "[", '"') else text
