"""Structs of the protocol as straight code: for one struct, one version and one encoding a function without loops.

A struct that is described as data is read and written field by field, each by calls of its codec. What is used often
gets functions that do the usual case in place (neighbouring numbers by one `struct` call, short strings, null) and call
the codec for everything else, which therefore finds what is wrong with a field and says so in its own words.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from struct import Struct as Layout
from typing import Any

from .wire import I16, Writer

ReadFunction = Callable[..., Any]
"""(reader, version, then the values that are given from elsewhere)."""
WriteFunction = Callable[[Writer, int, Any], None]


class CodeShape(Enum):
    """The kind of code for a field; a codec names it with `shape`, and its `struct` format with `format`."""

    FIXED = "a number"
    CHOICE = "a number that means a member of an enumeration"
    ID = "16 bytes"
    TEXT = "a string"
    NULLABLE_TEXT = "a string or null"
    ERROR_TEXT = "a string that is cut where it is written, or null"
    NULLABLE_ARRAY = "an array or null"
    NULLABLE_STRUCT = "a struct or null"
    ARRAY = "an array"
    OTHER = "whatever the codec does"


_PACKED = (CodeShape.FIXED, CodeShape.CHOICE, CodeShape.ID)
_TEXTS = (CodeShape.TEXT, CodeShape.NULLABLE_TEXT, CodeShape.ERROR_TEXT)
_COMPACT_NULLS = {CodeShape.ERROR_TEXT: 0, CodeShape.NULLABLE_ARRAY: 0, CodeShape.NULLABLE_STRUCT: 255}
"""The byte for null in the compact encoding, of what is written by its codec otherwise."""


def _shape(codec: Any) -> CodeShape:
    shape: CodeShape = getattr(codec, "shape", CodeShape.OTHER)
    return shape


class _Code:
    """The lines of a function, and the objects that they name."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.names: dict[str, Any] = {}

    def add(self, *lines: str) -> None:
        self.lines += [f"    {line}" for line in lines]

    def bind(self, prefix: str, value: Any) -> str:
        """Return a name for an object."""
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def function(self) -> Any:
        exec("\n".join(self.lines), self.names)
        return self.names["run"]


class _Runs:
    """Cuts the fields of a struct into runs of fixed width, and others one by one."""

    def __init__(self, fields: Sequence[tuple[str, Any, Any]]) -> None:
        self.runs: list[list[tuple[str, Any, Any]]] = []
        was_packed = False
        for each in fields:
            is_packed = _shape(each[1]) in _PACKED
            if is_packed and was_packed:
                self.runs[-1].append(each)
            else:
                self.runs.append([each])
            was_packed = is_packed


def _layout(run: Sequence[tuple[str, Any, Any]]) -> Layout:
    return Layout(">" + "".join(codec.format for _, codec, _ in run))


def reading(
    kind: Callable[..., Any],
    fields: Sequence[tuple[str, Any, Any]],
    absent: dict[str, Any],
    given: Sequence[str],
    *,
    is_compact: bool,
    has_tags: bool,
) -> ReadFunction:
    """Return the function that reads a struct: its `fields` are (attribute or "", codec, _), in their order."""
    code = _Code(f"def run({', '.join(['reader', 'version', *given])}):")
    code.add("b = reader.buffer", "p = reader.position")
    values = {name: name for name in given}
    number = 0
    for run in _Runs(fields).runs:
        targets = [f"v{number + index}" for index in range(len(run))]
        number += len(run)
        if _shape(run[0][1]) in _PACKED:
            layout = _layout(run)
            code.add(f"{', '.join(targets)}, = {code.bind('unpack', layout.unpack_from)}(b, p)", f"p += {layout.size}")
        else:
            _read_one(code, run[0][1], targets[0], is_compact=is_compact)
        for (name, codec, _), target in zip(run, targets, strict=True):
            if name:
                is_choice = _shape(codec) is CodeShape.CHOICE
                values[name] = f"{code.bind('of', codec.of)}({target})" if is_choice else target
    if is_compact and has_tags:
        code.add("if b[p] == 0: reader.position = p + 1", "else:", "    reader.position = p", "    reader.skip_tags()")
    else:
        code.add("reader.position = p")
    values |= {name: code.bind("absent", value) for name, value in absent.items() if name not in values}
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    code.add(f"return {code.bind('kind', kind)}({arguments})")
    function: ReadFunction = code.function()
    return function


def _read_one(code: _Code, codec: Any, target: str, *, is_compact: bool) -> None:
    shape = _shape(codec)
    by_codec = ["reader.position = p", f"{target} = {code.bind('read', codec.read)}(reader, version)"]
    by_codec.append("p = reader.position")
    otherwise = ["else:", *(f"    {line}" for line in by_codec)]
    if is_compact and shape in _TEXTS:
        if shape is not CodeShape.TEXT:
            code.add("if b[p] == 0:", f"    {target} = None", "    p += 1")
        code.add(
            f"{'if' if shape is CodeShape.TEXT else 'elif'} 0 < b[p] < 128 and (e := p + b[p]) <= reader.size:",
            f"    {target} = str(b[p + 1:e], 'utf-8')",
            "    p = e",
            *otherwise,
        )
    elif is_compact and shape is CodeShape.NULLABLE_ARRAY:
        code.add("if b[p] == 0:", f"    {target} = None", "    p += 1", *otherwise)
    else:
        code.add(*by_codec)


def writing(fields: Sequence[tuple[str, Any, Any]], *, is_compact: bool, has_tags: bool) -> WriteFunction:
    """Return the function that writes a struct: its `fields` are (attribute or "", codec, value of a filler)."""
    code = _Code("def run(writer, version, value):")
    code.add("out = writer.out")
    for run in _Runs(fields).runs:
        values = [f"value.{name}" if name else code.bind("filler", filler) for name, _, filler in run]
        if _shape(run[0][1]) in _PACKED:
            for (_, codec, _), value in zip(run, values, strict=True):
                if _shape(codec) is CodeShape.ID:
                    code.add(f"if len({value}) != 16: {code.bind('write', codec.write)}(writer, version, {value})")
            code.add(f"out += {code.bind('pack', _layout(run).pack)}({', '.join(values)})")
        else:
            _write_one(code, run[0][1], values[0], is_compact=is_compact)
    if is_compact and has_tags:
        code.add("out.append(0)")
    function: WriteFunction = code.function()
    return function


def _write_one(code: _Code, codec: Any, value: str, *, is_compact: bool) -> None:
    shape = _shape(codec)
    by_codec = [f"{code.bind('write', codec.write)}(writer, version, v)", "out = writer.out"]
    code.add(f"v = {value}")
    if shape in (CodeShape.TEXT, CodeShape.NULLABLE_TEXT):
        has_else = shape is CodeShape.NULLABLE_TEXT
        if has_else:
            code.add("if v is None: " + ("out.append(0)" if is_compact else "out += b'\\xff\\xff'"), "else:")
        lines = ["c = v.encode()", "n = len(c)"]
        if is_compact:
            lines += ["if n < 127:", "    out.append(n + 1)", "    out += c", "else:"]
            lines += [f"    {line}" for line in by_codec]
        else:
            lines += [f"out += {code.bind('pack', I16.pack)}(n)", "out += c"]
        code.add(*(f"    {line}" if has_else else line for line in lines))
    elif shape in _COMPACT_NULLS and is_compact:
        code.add(f"if v is None: out.append({_COMPACT_NULLS[shape]})", "else:", *(f"    {line}" for line in by_codec))
    else:
        code.add(*by_codec)
