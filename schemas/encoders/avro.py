"""Avro values with a schema id in front."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ...app.extras import require
from ...plugins.data_classes import KINDS, is_data_class
from ...ports.errors import Malformed
from ..access import RegistryAccess
from ..client import RegistryClient, SchemaReference
from ..loaded_avro import LoadedAvro, load_avro, registered_avro
from ..subjects import SchemaSettings, SubjectNaming, client_of
from ..wire import HEADER_BYTES, frame, unframe
from .typed import Typed, WrittenAs, avro_of, schema_text

_KIND = "AVRO"


@frozen(eq=False)
class _Own:
    """The schema given to the encoder."""

    loaded: LoadedAvro
    text: str
    references: tuple[SchemaReference, ...] = ()


class AvroEncoder:
    """Encoder and decoder of values with an Avro schema; give it to `Producer(encoder=...)`, `Consumer(decoder=...)`.

    registry:       addresses of the schema registry, or a `RegistryClient`.
    schema:         the writer's schema: a dataclass, an attrs class or a pydantic model, or a schema as text, a file
                    (`Path`) or parsed JSON. None: an object has the schema of its class; other values the newest of
                    the subject.
    reader:         the reader's schema, in the same forms; None: the class, or the writer's schema.
    subject_naming: TopicName, RecordName, TopicRecordName, or a function of topic, is_key and the record's full name.
    auto_register:  register a new schema of the subject; False: it must be registered.
    use_latest:     write and read with the newest version of the subject.
    references:     the registered schemas that the schema refers to.

    Decoding returns objects if a class was given, else dicts; times have a time zone.
    """

    def __init__(
        self,
        registry: str | Sequence[str] | RegistryAccess | RegistryClient,
        schema: Any = None,
        *,
        reader: Any = None,
        is_key: bool = False,
        subject_naming: str | SubjectNaming = "TopicName",
        auto_register: bool = True,
        use_latest: bool = False,
        references: Sequence[SchemaReference] = (),
    ) -> None:
        require("Avro", ("fastavro",), "schemas")
        self._settings = SchemaSettings(
            client=client_of(registry),
            is_key=is_key,
            naming=subject_naming,
            auto_register=auto_register,
            use_latest=use_latest,
        )
        self._references = tuple(references)
        self._written = WrittenAs(schema, self._read, for_json=False)
        wanted = reader if reader is not None else schema if is_data_class(schema) else None
        self._typed = Typed(wanted, for_json=False) if wanted is not None and is_data_class(wanted) else None
        self._reader = None if wanted is None else self._read(wanted).loaded
        self._loaded: dict[int, LoadedAvro] = {}

    def encode(self, topic: str, value: Any) -> bytes | None:
        """Encode a value; None stays None. Raises `ConfigError`, `Malformed` for a value that does not match the
        schema, and the client's errors."""
        if value is None:
            return None
        own, value = self._written.of(value)
        schema_id, schema = self._chosen(topic, own)
        out = io.BytesIO()
        from fastavro import schemaless_writer

        try:
            schemaless_writer(out, schema.parsed, value, strict_allow_default=True)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            text = f"the value does not match the Avro schema {schema.name} ({schema_id})"
            raise Malformed(f"{text}: {_difference(value, schema) or repr(error)}") from error
        return frame(schema_id, out.getvalue())

    def decode(self, topic: str, data: bytes | None) -> Any:
        """Decode a value; None stays None. Raises `Malformed` for data that does not match its schema, client
        errors."""
        if data is None:
            return None
        schema_id = unframe(data)
        writer = self._by_id(schema_id)
        reader = self._reader
        if reader is None and self._settings.use_latest:
            reader = self._by_id(self._settings.latest(topic, writer.name).id)
        from fastavro import schemaless_reader

        try:
            wanted = None if reader is None else reader.parsed
            value = schemaless_reader(io.BytesIO(data[HEADER_BYTES:]), writer.parsed, wanted)
        except Exception as error:  # fastavro raises anything for bytes that are not Avro
            raise Malformed(
                f"the data does not match the Avro schema {writer.name} ({schema_id}): {error!r}"
            ) from error
        return value if self._typed is None else self._typed.made(value)

    def _chosen(self, topic: str, own: _Own | None) -> tuple[int, LoadedAvro]:
        if own is None or self._settings.use_latest:
            found = self._settings.latest(topic, own.loaded.name if own else "")
            return found.id, self._by_id(found.id)
        subject = self._settings.subject(topic, own.loaded.name)
        return self._settings.id_of(subject, _KIND, own.text, own.references), own.loaded

    def _by_id(self, schema_id: int) -> LoadedAvro:
        known = self._loaded.get(schema_id)
        if known is None:
            client = self._settings.client
            known = self._loaded[schema_id] = registered_avro(client, client.by_id(schema_id))
        return known

    def _read(self, schema: Any) -> _Own:
        if is_data_class(schema):
            schema = avro_of(schema)
        text = schema_text(schema)
        referred = self._settings.client.referred(self._references)
        loaded = load_avro(text, referred)
        return _Own(loaded, text if text.strip()[:1] in ("{", "[", '"') else json.dumps(text.strip()), self._references)


def _difference(value: Any, schema: LoadedAvro) -> str:
    """Return the first field that does not match, "" if the value is one of the schema for all that is found."""
    from fastavro.validation import ValidationError, validate

    if not isinstance(value, Mapping) and isinstance(schema.parsed, dict) and schema.parsed["type"] == "record":
        return f"{type(value).__name__} is no dict, and {KINDS}"
    try:
        validate(value, schema.parsed, strict=True)
    except ValidationError as error:
        return str(error.errors[0])
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
    ):  # for what a validator does not expect, the writer's error says more
        return ""
    return ""
