"""The conversion and check of the arguments of `send`, before they go into a batch."""

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, Protocol

from ....core.client.cluster_view import TopicView
from ....core.client.errors import EncodeError, EncodeTypeError, EncodeValueError
from ....core.client.producer.partitioner import Partitioner
from ....core.client.producer.producer_batch import EncodedMessage
from ....core.client.serde import Decoder, Encoder
from ....core.message.message import Headers
from ....plugins.builtin.encoders import BytesSerde
from ....plugins.data_classes import is_data_class
from ....plugins.host import PluginHost
from ....ports.errors import ConfigError
from ....ports.report import counted

_TIMESTAMP_MAX = 2**63 - 1


class Encoding:
    """The encoders of values and keys; bytes with the default encoder need no call."""

    __slots__ = ("_encoder", "_key_encoder", "plain", "plain_keys")

    def __init__(self, encoder: Encoder, key_encoder: Encoder) -> None:
        self._encoder = encoder
        self._key_encoder = key_encoder
        self.plain = type(encoder) is BytesSerde
        """True if values that are bytes already need no encoding; `plain_keys`: keys."""
        self.plain_keys = type(key_encoder) is BytesSerde

    def encode(self, topic: str, value: Any, key: Any) -> tuple[bytes | None, bytes | None]:
        """Return value and key as bytes. Raises `EncodeError`."""
        if not self.plain or type(value) is not bytes:
            value = _encoded(self._encoder, topic, value, "value")
        if key is not None and not (self.plain_keys and type(key) is bytes):
            key = _encoded(self._key_encoder, topic, key, "key")
        return value, key


class EncoderSettings(Protocol):
    """The names of the encoders, for those that are not given as objects."""

    @property
    def encoder(self) -> str: ...

    @property
    def key_encoder(self) -> str: ...


def encoding_of(host: PluginHost, chosen: EncoderSettings, encoder: object, key_encoder: object) -> Encoding:
    """Return the given encoders, or those in the settings. Raises `ConfigError`."""
    return Encoding(
        host.encoder(chosen.encoder) if encoder is None or isinstance(encoder, str) else as_encoder(encoder, "encoder"),
        host.encoder(chosen.key_encoder)
        if key_encoder is None or isinstance(key_encoder, str)
        else as_encoder(key_encoder, "key_encoder"),
    )


class DecoderSettings(Protocol):
    """The names of the decoders, for those that are not given as objects."""

    @property
    def decoder(self) -> str: ...

    @property
    def key_decoder(self) -> str: ...


def decoders_of(
    host: PluginHost, chosen: DecoderSettings, decoder: object, key_decoder: object
) -> tuple[Decoder, Decoder]:
    """Return the decoders of values and keys: the given ones, or those in the settings. Raises `ConfigError`."""
    return (
        host.decoder(chosen.decoder) if decoder is None or isinstance(decoder, str) else as_decoder(decoder, "decoder"),
        host.decoder(chosen.key_decoder)
        if key_decoder is None or isinstance(key_decoder, str)
        else as_decoder(key_decoder, "key_decoder"),
    )


class _Function:
    """An encoder or decoder made of a function, as other libraries take it; null stays null."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def encode(self, topic: str, value: Any) -> Any:  # noqa: ARG002
        return None if value is None else self._function(value)

    def decode(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002
        return None if data is None else self._function(data)


class _ConfluentSerializer:
    """A serializer or deserializer of confluent-kafka, which takes a context and the value; null stays null."""

    def __init__(self, function: Callable[[Any, Any], Any], *, is_key: bool) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._function = function
        self._context: Callable[[str, Any], Any] = SerializationContext
        self._field = MessageField.KEY if is_key else MessageField.VALUE

    def encode(self, topic: str, value: Any) -> Any:
        return None if value is None else self._function(value, self._context(topic, self._field))

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else self._function(data, self._context(topic, self._field))


class _KafkaPythonSerializer:
    """A serializer or deserializer of kafka-python, which takes topic, headers and the value; null stays null."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def encode(self, topic: str, value: Any) -> Any:
        return None if value is None else self._given.serialize(topic, [], value)

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else self._given.deserialize(topic, [], data)


def as_encoder(given: object, setting: str) -> Encoder:
    """Return the encoder for an object with `encode`, or for a function from a value to bytes.

    Raises `ConfigError` that names the setting.
    """
    made: Encoder = _serde(given, "encode", setting)
    return made


def as_decoder(given: object, setting: str) -> Decoder:
    """Return the decoder for an object with `decode`, or for a function from bytes to a value.

    Raises `ConfigError` that names the setting.
    """
    made: Decoder = _serde(given, "decode", setting)
    return made


def _serde(given: Any, method: str, setting: str) -> Any:
    if isinstance(given, type):
        if is_data_class(given) and not hasattr(given, method):
            way = f"JsonDecoder({given.__name__})" if method == "decode" else '"json"'
            text = f"for JSON give {way}, with a schema AvroEncoder(REGISTRY, {given.__name__})"
            raise ConfigError(f"{setting}: {given.__name__} is the class of the values; {text} of barnabas.schemas")
        raise ConfigError(f"{setting}: {given.__name__} is a class; give an object: {given.__name__}(...)")
    if callable(getattr(given, method, None)):
        return given
    if callable(given) and any(base.__module__.startswith("confluent_kafka.") for base in type(given).__mro__):
        return _ConfluentSerializer(given, is_key=setting.startswith("key_"))
    if callable(getattr(given, {"encode": "serialize", "decode": "deserialize"}[method], None)):
        return _KafkaPythonSerializer(given)
    if callable(given):
        return _Function(given)
    raise ConfigError(
        f"{setting}: {type(given).__name__} is not a name, an object with {method}(topic, value), or a function"
    )


def by_name(**given: object) -> dict[str, Any]:
    """Return the arguments that are names: those become settings, unlike objects."""
    return {name: thing for name, thing in given.items() if isinstance(thing, str)}


def _encoded(encoder: Encoder, topic: str, thing: Any, what: str) -> bytes | None:
    try:
        data: object = encoder.encode(topic, thing)
    except Exception as error:
        kind = EncodeTypeError if isinstance(error, TypeError) else EncodeError
        raise kind(f"the {what} of a message to {topic} cannot be encoded: {error}") from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise EncodeError(f"the {what} encoder {type(encoder).__name__} gave {type(data).__name__}, not bytes")


def choose_partition(partitioner: Partitioner, topic: str, message: EncodedMessage, view: TopicView) -> int:
    """Return the partitioner's choice. Raises `EncodeError` when it fails, or its partition does not exist."""
    return choose_index(partitioner, topic, message[1], message[0], len(view.leaders), view.available)


def choose_index(
    partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None, count: int, available: Sequence[int]
) -> int:
    """Return the choice like `choose_partition`, among `count` partitions of which `available` have a leader."""
    try:
        chosen = partitioner.partition(topic, key, value, count, available)
    except Exception as error:
        raise EncodeError(f"the partitioner {type(partitioner).__name__} failed: {error!r}") from error
    if type(chosen) is not int or not 0 <= chosen < count:
        raise EncodeError(
            f"the partitioner {type(partitioner).__name__} chose {chosen!r}; {topic} has {counted(count, 'partition')}"
        )
    return chosen


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the headers in the form that a batch takes. Raises `EncodeError`."""
    checked = []
    for entry in headers.items() if isinstance(headers, dict) else headers:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise EncodeTypeError(f"header {entry!r}: expected a pair of name and bytes")
        name, content = entry
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise EncodeTypeError(f"header {name!r}: expected a str and bytes or None, got {type(content).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise EncodeValueError(f"header {name!r}: {error}") from error
        checked.append((name, content))
    return tuple(checked)


def checked_timestamp(timestamp_ms: int) -> None:
    """Raises `EncodeError` for a value that is no number of milliseconds since 1970."""
    if type(timestamp_ms) is not int:
        raise EncodeTypeError(f"timestamp_ms {timestamp_ms!r:.80}: expected milliseconds since 1970")
    if not 0 <= timestamp_ms <= _TIMESTAMP_MAX:
        raise EncodeValueError(f"timestamp_ms {timestamp_ms}: expected milliseconds since 1970")


def checked_partition(partition: object) -> int:
    """Return the partition as an int. Raises `EncodeError` for a value that is no whole number."""
    try:
        return index(partition)  # type: ignore[arg-type]  # that is the question
    except TypeError as error:
        raise EncodeTypeError(f"partition {partition!r:.80}: expected a number") from error


def check_callback(given: object) -> None:
    """Raises `TypeError` for an object that cannot be called; None means no callback."""
    if given is not None and not callable(given):
        raise TypeError(f"on_delivery: expected a function, got {type(given).__name__}")
