"""What every format makes of a schema's text."""

from typing import Protocol, Self

from ...ports.errors import BarnabasError
from ...ports.values import frozen

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
FORMATS = (JSON, PROTOBUF, AVRO)
"""As the Confluent REST API names them; a schema without a type is Avro's."""

TEXT_CHARS_MAX = 1_000_000
"""No larger one fits into a record, as brokers take them by default."""
DEPTH_MAX = 100
"""How deep a schema may nest: what works on it calls itself for each level."""


class InvalidSchema(BarnabasError):
    """The text is not a schema of its format; the message says where and why."""


class UnsupportedFormat(BarnabasError):
    """What would read schemas of this format is not installed, or there is no such format."""


@frozen
class Referenced:
    """A schema that another one needs, under the name by which it is asked for there."""

    name: str
    text: str


@frozen
class Difference:
    """Why what was written with one schema cannot be read with another one, and where."""

    kind: str
    """In capitals, such as TYPE_MISMATCH."""
    path: str
    """A JSON pointer into the reader's schema."""
    text: str
    """With `{reader}` and `{writer}` where the two schemas are named."""
    detail: str = ""

    def said(self, reader: str, writer: str) -> str:
        """For people, in the form of Confluent's messages. `reader`, `writer`: what to call the schemas."""
        text = self.text.replace("{reader}", reader).replace("{writer}", writer)
        info = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.kind}', description:'At {self.path}: {text}'{info}}}"


class ParsedSchema(Protocol):
    """A schema that was understood."""

    @property
    def format(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text as it is kept: two texts that differ only in form (blanks, order of attributes) have one."""
        ...

    @property
    def normalized(self) -> str:
        """The same, also for schemas that name the same things another way (order of properties, namespaces)."""
        ...

    def cannot_read(self, writer: Self) -> list[Difference]:
        """Why data written with `writer` cannot always be read with this schema; empty: it always can."""
        ...
