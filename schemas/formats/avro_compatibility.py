"""Compatibility of Avro schemas: the specification's schema resolution, decided in advance.

A schema reads another one's data if every value that the writer's schema allows resolves; the specification leaves
much of that to the time when a value is read. Aliases are those of the reader.
"""

from __future__ import annotations

from collections.abc import Iterable

from .avro_types import NAMED, AvroField, AvroType
from .parsed import Difference

_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Reader's kind → other kinds that it reads."""


def cannot_read(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Return every incompatibility, with its place in the reader's schema."""
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: dict[tuple[int, int], bool] = {}
        """Pairs of types whose comparison has begun: a recursive pair is compatible unless something else is not."""

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if reader.kind == "union" or writer.kind == "union":
            return self._unions(reader, writer, path)
        if reader.kind not in NAMED:
            return self._plain(reader, writer, path)
        if (pair := (id(reader), id(writer))) in self._under_way:
            return []
        self._under_way[pair] = True
        return self._named(reader, writer, path)

    def _unions(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if writer.kind == "union":
            found: list[Difference] = []
            for number, branch in enumerate(writer.branches):
                where = f"{path}/{number}" if reader.kind == "union" else path
                found += self.compare(reader, branch, where)
            return found
        chosen = _branch_for(reader.branches, writer)
        if chosen is None:
            text = f"{{reader}} has no branch for {writer.label} of {{writer}}"
            return [_difference("MISSING_UNION_BRANCH", path, text, writer.label)]
        return self.compare(chosen, writer, path)

    def _plain(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if reader.inner is not None and writer.inner is not None and reader.kind == writer.kind:
            return self.compare(reader.inner, writer.inner, f"{path}/{'items' if reader.kind == 'array' else 'values'}")
        if reader.kind != writer.kind and writer.kind not in _PROMOTED.get(reader.kind, ()):
            return [_mismatch(reader, writer, path)]
        return _decimals(reader, writer, path) if reader.kind == writer.kind else []

    def _named(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if _kind(reader) != _kind(writer):
            return [_mismatch(reader, writer, path)]
        found = []
        if not _same_name(reader, writer):
            text = f"{{writer}} calls it {writer.name}, {{reader}} {reader.name}"
            found.append(_difference("NAME_MISMATCH", f"{path}/name", text, writer.name))
        if reader.kind == "fixed":
            if reader.size != writer.size:
                text = f"{writer.size} bytes in {{writer}}, {reader.size} in {{reader}}"
                found.append(_difference("FIXED_SIZE_MISMATCH", f"{path}/size", text))
            return found + _decimals(reader, writer, path)
        if reader.kind == "enum":
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if missing and reader.default_symbol is None:
                symbols = ", ".join(missing)
                text = f"{{reader}} has neither the symbols {symbols} nor a default for them"
                found.append(_difference("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text, symbols))
            return found
        return found + self._fields(reader, writer, path)

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        found: list[Difference] = []
        written = {each.name: each for each in writer.fields}
        own = {each.name for each in reader.fields}
        for number, each in enumerate(reader.fields):
            where = f"{path}/fields/{number}"
            other = _written(each, written, own)
            if other is not None:
                found += self.compare(each.type, other.type, f"{where}/type")
            elif not each.has_default:
                text = f"field {each.name} of {{reader}} has no default, and {{writer}} does not have the field"
                found.append(_difference("READER_FIELD_MISSING_DEFAULT_VALUE", where, text, each.name))
        return found


def _written(wanted: AvroField, written: dict[str, AvroField], own: Iterable[str]) -> AvroField | None:
    """Return the writer's field of that name, or of an alias; a field that the reader has too is not renamed."""
    if wanted.name in written:
        return written[wanted.name]
    return next((written[alias] for alias in wanted.aliases if alias in written and alias not in own), None)


def _branch_for(branches: Iterable[AvroType], writer: AvroType) -> AvroType | None:
    """Return the branch of a reader's union for the writer's type: of the full name, of the same kind, or the first
    that reads it."""
    reading = [branch for branch in branches if _matches(branch, writer)]
    for branch in reading:
        if branch.kind == writer.kind and branch.name == writer.name:
            return branch
    return reading[0] if reading else None


def _matches(reader: AvroType, writer: AvroType) -> bool:
    if reader.kind in NAMED:
        return _kind(reader) == _kind(writer) and _same_name(reader, writer)
    return reader.kind == writer.kind or writer.kind in _PROMOTED.get(reader.kind, ())


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    """Compare names without namespace, as the specification says; or by an alias."""
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _kind(schema: AvroType) -> str:
    return "record" if schema.kind == "error" else schema.kind


def _decimals(reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
    """Compare scale and precision: with another scale the same bytes are another number, without an error."""
    if not reader.props.get("logicalType") == writer.props.get("logicalType") == "decimal":
        return []
    scales = writer.props.get("scale", 0), reader.props.get("scale", 0)
    if scales[0] != scales[1]:
        return [
            _difference(
                "TYPE_MISMATCH",
                f"{path}/scale",
                f"a decimal of scale {scales[0]} in {{writer}}, {scales[1]} in {{reader}}",
            )
        ]
    wide, narrow = writer.props["precision"], reader.props["precision"]
    if narrow < wide:
        text = f"a decimal of precision {wide} in {{writer}}, only {narrow} in {{reader}}"
        return [_difference("TYPE_MISMATCH", f"{path}/precision", text)]
    return []


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Difference:
    text = f"{{reader}} has {reader.kind.upper()}, {{writer}} has {writer.kind.upper()}"
    return _difference("TYPE_MISMATCH", path, text)


def _difference(kind: str, path: str, text: str, detail: str = "") -> Difference:
    return Difference(kind, path or "/", text, detail)
