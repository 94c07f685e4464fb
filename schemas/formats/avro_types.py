"""An Avro schema as a graph: a named type is one object, wherever it is used."""

from __future__ import annotations

from typing import Any

from attrs import define, field

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})


@define(eq=False)
class AvroType:
    """A type; its kind decides which fields are set. `props`: attributes unknown to Avro."""

    kind: str
    props: dict[str, Any] = field(factory=dict)
    name: str = ""
    """Name of a named type, with the namespace."""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """With their namespaces."""
    fields: list[AvroField] = field(factory=list)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    inner: AvroType | None = None
    """Items of an array, values of a map."""
    branches: tuple[AvroType, ...] = ()

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """Return the description for messages."""
        return self.name or self.kind.upper()


@define(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: dict[str, Any] = field(factory=dict)
