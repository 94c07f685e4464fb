"""JSON values, validated by a JSON Schema, with a schema id in front."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ...app.extras import require
from ...plugins.data_classes import is_data_class
from ...ports.errors import ConfigError, Malformed
from ..access import RegistryAccess
from ..client import RegisteredSchema, RegistryClient, SchemaReference
from ..subjects import SchemaSettings, SubjectNaming, client_of
from ..wire import HEADER_BYTES, frame, unframe
from .typed import Typed, WrittenAs, json_schema_of, schema_text

KIND = "JSON"


@frozen(eq=False)
class _Checked:
    text: str
    name: str
    validator: Any

    def check(self, value: Any, schema_id: int) -> None:
        from jsonschema.exceptions import best_match

        error = best_match(self.validator.iter_errors(value))
        if error is not None:
            text = f"the value does not match the JSON Schema {self.name} ({schema_id})"
            raise Malformed(f"{text}: {error.json_path}: {error.message}")


class JsonSchemaEncoder:
    """Encoder and decoder of JSON with a schema. Its parameters are those of `AvroEncoder`, and:

    schema:   a dataclass, an attrs class or a pydantic model, or a JSON Schema as text, file (`Path`) or parsed JSON.
    validate: validate each value by its schema when it is written and when it is read.
    """

    def __init__(
        self,
        registry: str | Sequence[str] | RegistryAccess | RegistryClient,
        schema: Any = None,
        *,
        validate: bool = True,
        is_key: bool = False,
        subject_naming: str | SubjectNaming = "TopicName",
        auto_register: bool = True,
        use_latest: bool = False,
        references: Sequence[SchemaReference] = (),
    ) -> None:
        require("JSON Schema", ("jsonschema",), "schemas")
        self._settings = SchemaSettings(
            client=client_of(registry),
            is_key=is_key,
            naming=subject_naming,
            auto_register=auto_register,
            use_latest=use_latest,
        )
        self._validate = validate
        self._references = tuple(references)
        self._written = WrittenAs(schema, self._read, for_json=True)
        self._typed = Typed(schema, for_json=True) if is_data_class(schema) else None
        self._known: dict[int, _Checked] = {}

    def encode(self, topic: str, value: Any) -> bytes | None:
        """Encode a value; None stays None. Raises `ConfigError`, `Malformed` for a value that does not match the
        schema, and the client's errors."""
        if value is None:
            return None
        own, value = self._written.of(value)
        if own is None or self._settings.use_latest:
            found = self._settings.latest(topic, own.name if own else "")
            schema_id, checked = found.id, self._of(found)
        else:
            subject = self._settings.subject(topic, own.name)
            schema_id, checked = self._settings.id_of(subject, KIND, own.text, self._references), own
        if self._validate:
            checked.check(value, schema_id)
        return frame(schema_id, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    def decode(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002  # the id says it all
        """Decode a value; None stays None. Raises `Malformed` for data that does not match its schema, client
        errors."""
        if data is None:
            return None
        schema_id = unframe(data)
        try:
            value = json.loads(data[HEADER_BYTES:])
        except ValueError as error:
            raise Malformed(f"invalid JSON after the schema id {schema_id}: {error}") from error
        if self._validate:
            self._of(self._settings.client.by_id(schema_id)).check(value, schema_id)
        return value if self._typed is None else self._typed.made(value)

    def _of(self, schema: RegisteredSchema) -> _Checked:
        known = self._known.get(schema.id)
        if known is None:
            if schema.kind != KIND:
                raise ConfigError(f"schema {schema.id} is of type {schema.kind}, expected JSON")
            known = self._known[schema.id] = _checked(schema.text, self._settings.client.referred(schema.references))
        return known

    def _read(self, schema: Any) -> _Checked:
        if is_data_class(schema):
            schema = json_schema_of(schema)
        text = schema_text(schema)
        referred = self._settings.client.referred(self._references)
        return _checked(text, referred)


def _checked(text: str, referred: Mapping[str, str]) -> _Checked:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    try:
        schema = json.loads(text)
        kind = validator_for(schema, default=Draft7Validator)
        kind.check_schema(schema)
        resources = [
            (name, Resource.from_contents(json.loads(each), default_specification=DRAFT7))
            for name, each in referred.items()
        ]
    except (ValueError, SchemaError) as error:
        raise ConfigError(f"invalid JSON Schema: {getattr(error, 'message', error)}") from error
    registry: Any = Registry().with_resources(resources)
    name = str(schema.get("title", "")) if isinstance(schema, dict) else ""
    return _Checked(text, name, kind(schema, registry=registry))
