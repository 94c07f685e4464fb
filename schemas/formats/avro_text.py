"""Avro schemas as text, in the form of Avro's own library for Java, which registries store and compare."""

from __future__ import annotations

from typing import Any

from .avro_types import PRIMITIVES, AvroField, AvroType
from .bounded_json import write_json


def canonical_text(schema: AvroType, known: frozenset[str] = frozenset()) -> str:
    """Return the text with attributes in Avro's order, and names as short as their namespace allows.

    `known`: names of types that other schemas define; they are not written out.
    """
    return write_json(_Writer(set(known), normal=False).write(schema, ""))


def normalized_text(schema: AvroType, known: frozenset[str] = frozenset()) -> str:
    """Return the text with full names, and a fixed order of attributes and aliases, which has no meaning."""
    return write_json(_Writer(set(known), normal=True).write(schema, ""))


class _Writer:
    def __init__(self, seen: set[str], *, normal: bool) -> None:
        self._seen = seen
        self._normal = normal

    def write(self, schema: AvroType, space: str) -> Any:
        if schema.kind == "union":
            return [self.write(branch, space) for branch in schema.branches]
        if schema.kind in PRIMITIVES:
            return {"type": schema.kind, **self._props(schema.props)} if schema.props else schema.kind
        if schema.inner is not None:
            part = "items" if schema.kind == "array" else "values"
            return {"type": schema.kind, part: self.write(schema.inner, space), **self._props(schema.props)}
        return self._named(schema, space)

    def _named(self, schema: AvroType, space: str) -> Any:
        if schema.name in self._seen:
            return self._reference(schema, space)
        self._seen.add(schema.name)
        out: dict[str, Any] = {"type": schema.kind, **self._name(schema, space)}
        if schema.doc is not None:
            out["doc"] = schema.doc
        if schema.kind == "enum":
            out["symbols"] = list(schema.symbols)
            if schema.default_symbol is not None:
                out["default"] = schema.default_symbol
        elif schema.kind == "fixed":
            out["size"] = schema.size
        else:
            out["fields"] = [self._field(each, schema.namespace) for each in schema.fields]
        out |= self._props(schema.props)
        if schema.aliases:
            out["aliases"] = self._aliases(schema.aliases, schema.namespace)
        return out

    def _field(self, given: AvroField, space: str) -> dict[str, Any]:
        out: dict[str, Any] = {"name": given.name, "type": self.write(given.type, space)}
        if given.doc is not None:
            out["doc"] = given.doc
        if given.has_default:
            out["default"] = given.default
        if given.order != "ascending":
            out["order"] = given.order
        if given.aliases:
            out["aliases"] = sorted(given.aliases) if self._normal else list(given.aliases)
        return out | self._props(given.props)

    def _reference(self, schema: AvroType, space: str) -> str:
        shortened = not self._normal and schema.namespace == space and schema.short_name not in PRIMITIVES
        return schema.short_name if shortened else schema.name

    def _name(self, schema: AvroType, space: str) -> dict[str, str]:
        if self._normal:
            return {"name": schema.name}
        name = {"name": schema.short_name}
        return name if schema.namespace == space else {**name, "namespace": schema.namespace}

    def _aliases(self, aliases: tuple[str, ...], space: str) -> list[str]:
        if self._normal:
            return sorted(aliases)
        return [alias.rpartition(".")[2] if alias.rpartition(".")[0] == space else alias for alias in aliases]

    def _props(self, props: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self._normal else props
