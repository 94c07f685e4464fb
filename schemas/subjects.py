"""Subject names, and the ids of schemas in messages."""

from collections.abc import Callable, Sequence

from attrs import field, frozen

from ..ports.errors import ConfigError
from .access import RegistryAccess
from .client import RegisteredSchema, RegistryClient, SchemaReference

SubjectNaming = Callable[[str, bool, str], str]
"""(topic, is the schema of a key, full name of the record) → subject."""


def _by_topic(topic: str, is_key: bool, record: str) -> str:  # noqa: ARG001
    return f"{topic}-{'key' if is_key else 'value'}"


def _by_record(topic: str, is_key: bool, record: str) -> str:  # noqa: ARG001
    return _known(record)


def _by_topic_and_record(topic: str, is_key: bool, record: str) -> str:  # noqa: ARG001
    return f"{topic}-{_known(record)}"


def _known(record: str) -> str:
    if not record:
        raise ConfigError("the subject needs the name of the record: give the encoder a schema with a name")
    return record


_NAMINGS: dict[str, SubjectNaming] = {
    "TopicName": _by_topic,
    "RecordName": _by_record,
    "TopicRecordName": _by_topic_and_record,
}


def naming_of(given: str | SubjectNaming) -> SubjectNaming:
    """Return the naming of that name, or of one of Confluent's class names. Raises `ConfigError`."""
    if not isinstance(given, str):
        return given
    found = _NAMINGS.get(given.rpartition(".")[2].removesuffix("Strategy"))
    if found is None:
        raise ConfigError(f"subject_naming {given!r}: expected {', '.join(_NAMINGS)}, or a function")
    return found


@frozen(kw_only=True)
class SchemaSettings:
    """The registry settings of all encoders."""

    client: RegistryClient
    is_key: bool = False
    naming: SubjectNaming = field(converter=naming_of)
    auto_register: bool = True
    """True: an unknown schema becomes a version of its subject; else it must be registered."""
    use_latest: bool = False
    """True: messages are written, and read, with the newest version of the subject instead of the encoder's schema."""

    def subject(self, topic: str, record: str) -> str:
        return self.naming(topic, self.is_key, record)

    def id_of(self, subject: str, kind: str, text: str, references: Sequence[SchemaReference] = ()) -> int:
        """Return the id of a schema in its subject. Raises the client's errors."""
        ask = self.client.register if self.auto_register else self.client.look_up
        return ask(subject, kind, text, references)

    def latest(self, topic: str, record: str = "", *, serialized: bool = False) -> RegisteredSchema:
        return self.client.latest(self.subject(topic, record), serialized=serialized)


def client_of(registry: str | Sequence[str] | RegistryAccess | RegistryClient) -> RegistryClient:
    """Return the given client, or one for these addresses."""
    return registry if isinstance(registry, RegistryClient) else RegistryClient(registry)
