"""Protobuf messages with schema id and message indexes in front."""

from collections.abc import Sequence
from typing import Any

from ...app.extras import require
from ...ports.errors import ConfigError, Malformed
from ..access import RegistryAccess
from ..client import RegistryClient, SchemaReference
from ..descriptors import (
    KIND,
    WELL_KNOWN_PREFIXES,
    descriptor_text,
    indexes_of,
    message_class,
    message_of,
    plain_message,
)
from ..subjects import SchemaSettings, SubjectNaming, client_of
from ..wire import frame, message_indexes, read_message_indexes, unframe


class ProtobufEncoder:
    """Encoder and decoder of protobuf messages. Its parameters are those of `AvroEncoder`, and:

    message: the class made by `protoc`, for messages or dicts to write, and messages to read. None: messages are
             written by their own class, dicts by the newest schema of the subject; dicts are read.

    Imported files are registered under their own names (Confluent's default).
    """

    def __init__(
        self,
        registry: str | Sequence[str] | RegistryAccess | RegistryClient,
        message: Any = None,
        *,
        is_key: bool = False,
        subject_naming: str | SubjectNaming = "TopicName",
        auto_register: bool = True,
        use_latest: bool = False,
    ) -> None:
        require("protobuf", ("google.protobuf",), "schemas")
        if message is not None and not hasattr(message, "DESCRIPTOR"):
            raise ConfigError(f"message: expected a class made by protoc, not {message!r}")
        self._settings = SchemaSettings(
            client=client_of(registry),
            is_key=is_key,
            naming=subject_naming,
            auto_register=auto_register,
            use_latest=use_latest,
        )
        self._message = message
        self._classes: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._files: dict[tuple[str, Any], tuple[int, bytes]] = {}

    def encode(self, topic: str, value: Any) -> bytes | None:
        """Encode a value; None stays None. Raises `ConfigError`, `Malformed` for a value that does not match the
        message type, and the client's errors."""
        from google.protobuf.message import EncodeError, Message

        if value is None:
            return None
        try:
            message = value if isinstance(value, Message) else message_of(self._class_for(topic), value)
            payload = message.SerializeToString()
        except (ValueError, TypeError, EncodeError, AttributeError) as error:
            raise Malformed(f"the value does not match the protobuf message type: {error}") from error
        schema_id, indexes = self._id_of(topic, message.DESCRIPTOR)
        return frame(schema_id, indexes + payload)

    def decode(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002  # the id says it all
        """Decode a value; None stays None. Raises `Malformed` for data that does not match its schema, client
        errors."""
        from google.protobuf.message import DecodeError

        if data is None:
            return None
        schema_id = unframe(data)
        indexes, begin = read_message_indexes(data)
        made = (self._message or self._class(schema_id, indexes))()
        try:
            made.ParseFromString(data[begin:])
        except DecodeError as error:
            text = f"the data does not match the protobuf message {made.DESCRIPTOR.full_name} ({schema_id}): {error}"
            raise Malformed(text) from error
        return made if self._message is not None else plain_message(made)

    def _class_for(self, topic: str) -> Any:
        return self._message or self._class(self._settings.latest(topic).id, (0,))

    def _class(self, schema_id: int, indexes: tuple[int, ...]) -> Any:
        known = self._classes.get((schema_id, indexes))
        if known is None:
            client = self._settings.client
            known = message_class(client.by_id(schema_id, serialized=True), client, indexes)
            self._classes[schema_id, indexes] = known
        return known

    def _id_of(self, topic: str, descriptor: Any) -> tuple[int, bytes]:
        known = self._files.get((topic, descriptor))
        if known is None:
            settings = self._settings
            if settings.use_latest or self._is_registered(descriptor):
                schema_id = settings.latest(topic, descriptor.full_name).id
            else:
                subject = settings.subject(topic, descriptor.full_name)
                text = descriptor_text(descriptor.file)
                schema_id = settings.id_of(subject, KIND, text, self._imported(descriptor.file))
            known = schema_id, message_indexes(indexes_of(descriptor))
            if not settings.use_latest:
                self._files[topic, descriptor] = known
        return known

    def _is_registered(self, descriptor: Any) -> bool:
        """Return True for a class made from a registered schema."""
        return any(each.DESCRIPTOR is descriptor for each in self._classes.values())

    def _imported(self, file: Any) -> list[SchemaReference]:
        references = []
        for each in file.dependencies:
            if each.name.startswith(WELL_KNOWN_PREFIXES):
                continue
            inner = self._imported(each)
            text = descriptor_text(each)
            self._settings.id_of(each.name, KIND, text, inner)
            version = self._settings.client.version_of(each.name, KIND, text, inner)
            references.append(SchemaReference(each.name, each.name, version))
        return references
