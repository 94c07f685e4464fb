"""The common interface of parsed schemas."""

from typing import Protocol, Self

from ...ports.errors import BarnabasError
from ...ports.values import frozen

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
FORMATS = (JSON, PROTOBUF, AVRO)
"""The names of the Confluent REST API; a schema without a type is Avro."""

TEXT_CHARS_MAX = 1_000_000
"""Maximum size of a schema: a larger one exceeds the default maximum of a record."""
DEPTH_MAX = 100
"""Maximum nesting depth of a schema, since its functions are recursive."""


class InvalidSchema(BarnabasError):
    """The text is not a schema of its format; the message has place and reason."""


class UnsupportedFormat(BarnabasError):
    """The format is unknown, or its packages are not installed."""


@frozen
class Referenced:
    """A schema that another one refers to, under the name used there."""

    name: str
    text: str


@frozen
class Difference:
    """An incompatibility of two schemas, and its place."""

    kind: str
    """A constant such as TYPE_MISMATCH."""
    path: str
    """A JSON pointer into the reader's schema."""
    text: str
    """A text with `{reader}` and `{writer}` for the two schemas."""
    detail: str = ""

    def said(self, reader: str, writer: str) -> str:
        """Return the text for people, in the form of Confluent's messages, with these names of the schemas."""
        text = self.text.replace("{reader}", reader).replace("{writer}", writer)
        info = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.kind}', description:'At {self.path}: {text}'{info}}}"


class ParsedSchema(Protocol):
    """A parsed schema."""

    @property
    def format(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text to store: equal for texts that differ only in form (whitespace, order of attributes)."""
        ...

    @property
    def normalized(self) -> str:
        """The normalized text: also equal for other orders of properties, or other namespaces of the same names."""
        ...

    def cannot_read(self, writer: Self) -> list[Difference]:
        """Return why data written with `writer` cannot always be read with this schema; empty if it can."""
        ...
