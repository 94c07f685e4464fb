"""Descriptions of structs that read and write themselves: one description serves the broker and the client.

The field tables of the protocol (facts E1) are stated with these as data. `Struct` names the attribute of our value
that each field of the wire belongs to, in wire order, with the versions that have it.

A struct can be read and written field by field, each by calls of its codec. Structs that are used often get functions
without loops, for one version and one encoding. These do the usual case in place (neighbouring numbers by one `struct`
call, short strings, null) and call the codec for everything else, which finds what is wrong with a field.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from operator import attrgetter
from struct import Struct as Layout
from typing import Any, Generic, Protocol, TypeVar, cast

from attrs import field

from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.values import frozen
from . import wire
from .grouping import by_topic, grouped
from .topic_ids import read_id, write_id
from .wire import COPIED_BYTES_MAX, Reader, Writer

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
            lines += [f"out += {code.bind('pack', wire.I16.pack)}(n)", "out += c"]
        code.add(*(f"    {line}" if has_else else line for line in lines))
    elif shape in _COMPACT_NULLS and is_compact:
        code.add(f"if v is None: out.append({_COMPACT_NULLS[shape]})", "else:", *(f"    {line}" for line in by_codec))
    else:
        code.add(*by_codec)


T = TypeVar("T")

EnumT = TypeVar("EnumT", bound=IntEnum)
NEWEST = 0x7FFF
ERROR_TEXT_MAX = 2000
"""Characters of an error's text; more than a person reads, and far below what the encodings can carry."""
_ITEMS_PER_STEP = 16
_OFTEN = 256
"""A version of a struct becomes code when it is used this often: to make the code (0.2 to 0.6 ms) takes as long as it
saves in these uses."""
_TOPIC_ID = attrgetter("topic_id")


class FieldCodec(Protocol[T]):
    """The encoding of a value of one type in each version."""

    def read(self, reader: Reader, version: int) -> T:
        """Raises `Malformed` or one of `wire.DECODE_ERRORS`."""
        ...

    def write(self, writer: Writer, version: int, value: T) -> None:
        """Raises one of `wire.ENCODE_ERRORS`."""
        ...


class Stepped(FieldCodec[T], Protocol[T]):
    """One whose values are written a little at a time where they may be large."""

    @property
    def has_steps(self) -> bool:
        """True if a single value may be large."""
        ...

    def write_in_steps(self, writer: Writer, version: int, value: T) -> Iterator[None]:
        """Write like `write`; others may have their turn whenever it yields."""
        ...


def write_in_steps(codec: FieldCodec[T], writer: Writer, version: int, value: T) -> Iterator[None]:
    """Write like `codec.write`, in steps if the codec has them."""
    if getattr(codec, "has_steps", False):
        yield from cast(Stepped[T], codec).write_in_steps(writer, version, value)
    else:
        codec.write(writer, version, value)


class Number:
    """An integer of fixed width."""

    shape = CodeShape.FIXED

    def __init__(self, layout: Layout) -> None:
        self.format = layout.format[1:]
        self._unpack, self._pack, self._size = layout.unpack_from, layout.pack, layout.size

    def read(self, reader: Reader, version: int) -> int:  # noqa: ARG002
        # Like `reader.unpack`, which is a call more for most fields of most requests.
        number: int = self._unpack(reader.buffer, reader.position)[0]
        reader.position += self._size
        return number

    def write(self, writer: Writer, version: int, value: int) -> None:  # noqa: ARG002
        writer.out += self._pack(value)


class Bool:
    """A byte, 0 or 1."""

    shape = CodeShape.FIXED
    format = "?"

    def read(self, reader: Reader, version: int) -> bool:  # noqa: ARG002
        return bool(reader.unpack(wire.I8)[0])

    def write(self, writer: Writer, version: int, value: bool) -> None:  # noqa: ARG002
        writer.out.append(1 if value else 0)


class Text:
    """A string."""

    shape = CodeShape.TEXT

    def read(self, reader: Reader, version: int) -> str:  # noqa: ARG002
        return reader.text()

    def write(self, writer: Writer, version: int, value: str) -> None:  # noqa: ARG002
        writer.text(value)


class NullableText:
    """A string or null."""

    shape = CodeShape.NULLABLE_TEXT

    def read(self, reader: Reader, version: int) -> str | None:  # noqa: ARG002
        return reader.nullable_text()

    def write(self, writer: Writer, version: int, value: str | None) -> None:  # noqa: ARG002
        writer.nullable_text(value)


class ErrorText(NullableText):
    """The reason of a refusal, or null. A reason that quotes input could be longer than any string, so it is cut."""

    shape = CodeShape.ERROR_TEXT

    def write(self, writer: Writer, version: int, value: str | None) -> None:  # noqa: ARG002
        writer.nullable_text(cut(value))


def cut(text: str | None) -> str | None:
    """Return an error's text, short enough for every encoding."""
    return text if text is None or len(text) <= ERROR_TEXT_MAX else f"{text[:ERROR_TEXT_MAX]}..."


class TextOrNone:
    """A string that cannot be null; we hold an empty one as None."""

    def read(self, reader: Reader, version: int) -> str | None:  # noqa: ARG002
        return reader.text() or None

    def write(self, writer: Writer, version: int, value: str | None) -> None:  # noqa: ARG002
        writer.text(value or "")


class Data:
    """Bytes, copied out of the frame. Null is read as none."""

    def read(self, reader: Reader, version: int) -> bytes:  # noqa: ARG002
        data = reader.nullable_data()
        return b"" if data is None else bytes(data)

    def write(self, writer: Writer, version: int, value: bytes) -> None:  # noqa: ARG002
        if len(value) > COPIED_BYTES_MAX:
            writer.data(value)
        else:
            writer.count(len(value))  # the length has the same form
            writer.out += value


class Uuid:
    """16 bytes; all zero means none."""

    shape = CodeShape.ID
    format = "16s"

    def read(self, reader: Reader, version: int) -> bytes:  # noqa: ARG002
        return bytes(reader.span(16))

    def write(self, writer: Writer, version: int, value: bytes) -> None:  # noqa: ARG002
        if len(value) != 16:
            raise ValueError(f"an id has 16 bytes, not {len(value)}")
        writer.out += value


class Choice(Generic[EnumT]):
    """An integer that means one of an enumeration; a number we do not know is read as `unknown`."""

    shape = CodeShape.CHOICE

    def __init__(self, layout: Layout, kind: type[EnumT], unknown: EnumT) -> None:
        self.format = layout.format[1:]
        self._layout = layout
        self._known = {int(member): member for member in kind}
        self._unknown = unknown

    def of(self, number: int) -> EnumT:
        return self._known.get(number, self._unknown)

    def read(self, reader: Reader, version: int) -> EnumT:  # noqa: ARG002
        return self.of(reader.unpack(self._layout)[0])

    def write(self, writer: Writer, version: int, value: EnumT) -> None:  # noqa: ARG002
        writer.out += self._layout.pack(value)


I8 = Number(wire.I8)
I16 = Number(wire.I16)
I32 = Number(wire.I32)
I64 = Number(wire.I64)
U16 = Number(wire.U16)
BOOL = Bool()
TEXT = Text()
NULLABLE_TEXT = NullableText()
ERROR_TEXT = ErrorText()
TEXT_OR_NONE = TextOrNone()
DATA = Data()
UUID = Uuid()
ERROR = Choice(wire.I16, ErrorCode, ErrorCode.UNKNOWN_SERVER_ERROR)


def _read_items(codec: FieldCodec[T], reader: Reader, version: int, count: int) -> list[T]:
    read = codec.read
    return [read(reader, version) for _ in range(count)]


def _present(count: int) -> int:
    if count < 0:
        raise Malformed("null where an array must be")
    return count


class Array(Generic[T]):
    """A sequence."""

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item
        self.has_steps = hasattr(item, "has_steps")  # one of structs; numbers and strings are written in no time

    def read(self, reader: Reader, version: int) -> Sequence[T]:
        return _read_items(self._item, reader, version, _present(reader.count()))

    def write(self, writer: Writer, version: int, value: Sequence[T]) -> None:
        writer.count(len(value))
        for item in value:
            self._item.write(writer, version, item)

    def write_in_steps(self, writer: Writer, version: int, value: Sequence[T]) -> Iterator[None]:
        writer.count(len(value))
        yield from _items_in_steps(self._item, writer, version, value)


def _items_in_steps(codec: FieldCodec[T], writer: Writer, version: int, items: Sequence[T]) -> Iterator[None]:
    if getattr(codec, "has_steps", False):
        for item in items:
            yield from write_in_steps(codec, writer, version, item)
            yield
        return
    write = codec.write
    for start in range(0, len(items), _ITEMS_PER_STEP):
        for item in items[start : start + _ITEMS_PER_STEP]:
            write(writer, version, item)
        yield


class NullableArray(Generic[T]):
    """A sequence or null."""

    shape = CodeShape.NULLABLE_ARRAY

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item

    def read(self, reader: Reader, version: int) -> Sequence[T] | None:
        count = reader.count()
        return None if count < 0 else _read_items(self._item, reader, version, count)

    def write(self, writer: Writer, version: int, value: Sequence[T] | None) -> None:
        writer.count(-1 if value is None else len(value))
        for item in value or ():
            self._item.write(writer, version, item)


class One(Generic[T]):
    """A single value where later versions have an array, which is how we hold it."""

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item
        self.has_steps = getattr(item, "has_steps", False)

    def read(self, reader: Reader, version: int) -> Sequence[T]:
        return (self._item.read(reader, version),)

    def write(self, writer: Writer, version: int, value: Sequence[T]) -> None:
        if len(value) != 1:
            raise ValueError(f"{len(value)} values where version {version} has room for one")
        self._item.write(writer, version, value[0])

    def write_in_steps(self, writer: Writer, version: int, value: Sequence[T]) -> Iterator[None]:
        if len(value) != 1:
            self.write(writer, version, value)
        yield from write_in_steps(self._item, writer, version, value[0])


class Row(Generic[T]):
    """A struct of a single field that we hold as just its value."""

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item

    def read(self, reader: Reader, version: int) -> T:
        value = self._item.read(reader, version)
        reader.skip_tags()
        return value

    def write(self, writer: Writer, version: int, value: T) -> None:
        self._item.write(writer, version, value)
        writer.end()


class Missing(Enum):
    """The encoding of an absent mapping, which we hold as None."""

    REFUSED = "it cannot"
    NULL = "a null array"
    EMPTY = "an empty array"


class Pairs:
    """An array of structs of two fields, which we hold as a mapping."""

    def __init__(self, key: FieldCodec[Any], value: FieldCodec[Any], missing: Missing = Missing.REFUSED) -> None:
        self._key = key
        self._value = value
        self._missing = missing

    def read(self, reader: Reader, version: int) -> Mapping[Any, Any] | None:
        count = reader.count()
        if (count < 0 and self._missing is Missing.NULL) or (count == 0 and self._missing is Missing.EMPTY):
            return None
        found = {}
        for _ in range(_present(count)):
            key = self._key.read(reader, version)
            found[key] = self._value.read(reader, version)
            reader.skip_tags()
        return found

    def write(self, writer: Writer, version: int, value: Mapping[Any, Any] | None) -> None:
        if value is None:
            if self._missing is Missing.REFUSED:
                raise ValueError("null where a mapping must be")
            writer.count(0 if self._missing is Missing.EMPTY else -1)
            return
        writer.count(len(value))
        for key, item in value.items():
            self._key.write(writer, version, key)
            self._value.write(writer, version, item)
            writer.end()


class Nullable(Generic[T]):
    """A struct or null, in flexible versions: a byte, -1 for null, 1 before a struct."""

    shape = CodeShape.NULLABLE_STRUCT

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item

    def read(self, reader: Reader, version: int) -> T | None:
        return None if reader.unpack(wire.I8)[0] < 0 else self._item.read(reader, version)

    def write(self, writer: Writer, version: int, value: T | None) -> None:
        writer.out += wire.I8.pack(-1 if value is None else 1)
        if value is not None:
            self._item.write(writer, version, value)


_REQUIRED: Any = object()


@frozen
class Field:
    """One field: the attribute it belongs to, its type, the versions that have it, and the value where they do not
    (without `absent`: the default of our type)."""

    name: str
    codec: FieldCodec[Any]
    since: int = field(default=0, kw_only=True)
    until: int = field(default=NEWEST, kw_only=True)
    absent: Any = field(default=_REQUIRED, kw_only=True)


@frozen
class Filler:
    """A field that our types leave out: always written as `value`, read and dropped."""

    codec: FieldCodec[Any]
    value: Any
    since: int = field(default=0, kw_only=True)
    until: int = field(default=NEWEST, kw_only=True)


@frozen
class Flag:
    """An attribute that says what the version can do: true in versions from `since` on. It is not on the wire."""

    name: str
    since: int = field(kw_only=True)


@frozen
class ByVersion:
    """An attribute that says what the version means. It is not on the wire."""

    name: str
    value: Callable[[int], Any]


StructPart = Field | Filler | Flag | ByVersion


class _Plan:
    """The fields that a version has, in order: by attribute name ("" for a filler) how each is read, and how it is
    written, with the value of a filler."""

    __slots__ = ("absent", "fields")

    def __init__(self, fields: Sequence[StructPart], version: int) -> None:
        present = [part for part in fields if isinstance(part, Field | Filler) and part.since <= version <= part.until]
        self.fields: list[tuple[str, FieldCodec[Any], Any]] = [
            ("", part.codec, part.value) if isinstance(part, Filler) else (part.name, part.codec, None)
            for part in present
        ]
        names = {name for name, _, _ in self.fields}
        self.absent = {
            part.name: part.absent
            for part in fields
            if isinstance(part, Field) and part.name not in names and part.absent is not _REQUIRED
        }
        self.absent.update({part.name: version >= part.since for part in fields if isinstance(part, Flag)})
        self.absent.update({part.name: part.value(version) for part in fields if isinstance(part, ByVersion)})


class Struct(Generic[T]):
    """A struct and the type that holds it. An `inline` one is fields among others, without tagged fields of its own.

    given: the attributes that `read_with` gets from elsewhere.
    """

    def __init__(
        self, kind: Callable[..., T], *fields: StructPart, inline: bool = False, given: Sequence[str] = ()
    ) -> None:
        self._kind = kind
        self._fields = fields
        self._inline = inline
        self._given = given
        self._plans: dict[int, _Plan] = {}
        self._read_functions: dict[int, ReadFunction] = {}
        """The code of versions that are often read: by the version, times two, and one more in the compact encoding."""
        self._write_functions: dict[int, WriteFunction] = {}
        self._reads: Counter[int] = Counter()
        self._writes: Counter[int] = Counter()
        self.has_steps = any(
            getattr(part.codec, "has_steps", False) for part in fields if isinstance(part, Field | Filler)
        )

    def read(self, reader: Reader, version: int) -> T:
        function = self._read_functions.get(2 * version + reader.is_compact)
        if function is not None:
            value: T = function(reader, version)
            return value
        return self.read_by_fields(reader, version)

    def read_with(self, reader: Reader, version: int, *given: Any) -> T:
        """Return the value, with attributes that are `given` from elsewhere."""
        function = self._read_functions.get(2 * version + reader.is_compact)
        if function is not None:
            value: T = function(reader, version, *given)
            return value
        return self.read_by_fields(reader, version, *given)

    def read_by_fields(self, reader: Reader, version: int, *given: Any) -> T:
        """Read field by field; where this happens often it becomes code."""
        key = 2 * version + reader.is_compact
        self._reads[key] += 1
        if self._reads[key] == _OFTEN:
            self._read_functions[key] = self.read_function(version, is_compact=reader.is_compact)
        plan = self._plans.get(version) or self._plan(version)
        values = plan.absent | dict(zip(self._given, given, strict=True))
        for name, codec, _ in plan.fields:
            value = codec.read(reader, version)
            if name:
                values[name] = value
        if not self._inline:
            reader.skip_tags()
        return self._kind(**values)

    def write(self, writer: Writer, version: int, value: T) -> None:
        function = self._write_functions.get(2 * version + writer.is_compact)
        if function is not None:
            function(writer, version, value)
        else:
            self.write_by_fields(writer, version, value)

    def write_by_fields(self, writer: Writer, version: int, value: T) -> None:
        """Write field by field; where this happens often it becomes code."""
        key = 2 * version + writer.is_compact
        self._writes[key] += 1
        if self._writes[key] == _OFTEN:
            self._write_functions[key] = self.write_function(version, is_compact=writer.is_compact)
        plan = self._plans.get(version) or self._plan(version)
        for name, codec, filler in plan.fields:
            codec.write(writer, version, getattr(value, name) if name else filler)
        if not self._inline:
            writer.end()

    def write_in_steps(self, writer: Writer, version: int, value: T) -> Iterator[None]:
        plan = self._plans.get(version) or self._plan(version)
        for name, codec, filler in plan.fields:
            yield from write_in_steps(codec, writer, version, getattr(value, name) if name else filler)
        if not self._inline:
            writer.end()

    def read_function(self, version: int, *, is_compact: bool) -> ReadFunction:
        """Return the code that reads a version in one encoding."""
        plan = self._plans.get(version) or self._plan(version)
        return reading(
            self._kind, plan.fields, plan.absent, self._given, is_compact=is_compact, has_tags=not self._inline
        )

    def write_function(self, version: int, *, is_compact: bool) -> WriteFunction:
        """Return the code that writes a version in one encoding."""
        plan = self._plans.get(version) or self._plan(version)
        return writing(plan.fields, is_compact=is_compact, has_tags=not self._inline)

    def _plan(self, version: int) -> _Plan:
        plan = self._plans[version] = _Plan(self._fields, version)
        return plan


class ByTopic(Generic[T]):
    """Topics with their partitions, which we hold as one flat sequence of values that have a `topic`.

    `inline`: the partitions are bare numbers, no structs. `ids_since`: from this version on topics go by their ids
    (see `topic_ids`).
    """

    has_steps = True

    def __init__(
        self, kind: Callable[..., T], *fields: StructPart, inline: bool = False, ids_since: int = NEWEST + 1
    ) -> None:
        self._item = Struct(kind, *fields, inline=inline, given=("topic",))
        self._ids_since = ids_since

    def read(self, reader: Reader, version: int) -> Sequence[T]:
        return self.read_topics(reader, version, _present(reader.count()))

    def read_topics(self, reader: Reader, version: int, count: int) -> Sequence[T]:
        """Return the rest, when it is known how many topics there are."""
        flat: list[T] = []
        for _ in range(count):
            topic = read_id(reader) if version >= self._ids_since else reader.text()
            for _ in range(_present(reader.count())):
                flat.append(self._item.read_with(reader, version, topic))
            reader.skip_tags()
        return flat

    def write(self, writer: Writer, version: int, value: Sequence[T]) -> None:
        topics = by_topic(value)
        writer.count(len(topics))
        for topic, items in topics.items():
            self._write_topic(writer, version, topic)
            writer.count(len(items))
            for item in items:
                self._item.write(writer, version, item)
            writer.end()

    def write_in_steps(self, writer: Writer, version: int, value: Sequence[T]) -> Iterator[None]:
        topics = by_topic(value)
        writer.count(len(topics))
        for topic, items in topics.items():
            self._write_topic(writer, version, topic)
            writer.count(len(items))
            yield from _items_in_steps(self._item, writer, version, items)
            writer.end()

    def _write_topic(self, writer: Writer, version: int, topic: str) -> None:
        if version >= self._ids_since:
            write_id(writer, topic)
        else:
            writer.text(topic)


class ByTopicId(Generic[T]):
    """Topics by their ids with their partitions, which we hold as one flat sequence of values that have a `topic_id`.

    `inline`: the partitions are bare numbers, no structs.
    """

    def __init__(self, kind: Callable[..., T], *fields: StructPart, inline: bool = False) -> None:
        self._item = Struct(kind, *fields, inline=inline, given=("topic_id",))

    def read(self, reader: Reader, version: int) -> Sequence[T]:
        flat: list[T] = []
        for _ in range(_present(reader.count())):
            topic_id = UUID.read(reader, version)
            for _ in range(_present(reader.count())):
                flat.append(self._item.read_with(reader, version, topic_id))
            reader.skip_tags()
        return flat

    def write(self, writer: Writer, version: int, value: Sequence[T]) -> None:
        topics = grouped(value, _TOPIC_ID)
        writer.count(len(topics))
        for topic_id, items in topics.items():
            UUID.write(writer, version, topic_id)
            writer.count(len(items))
            for item in items:
                self._item.write(writer, version, item)
            writer.end()


class NullableByTopic(Generic[T]):
    """An array like `ByTopic`, or null."""

    def __init__(self, topics: ByTopic[T]) -> None:
        self._topics = topics

    def read(self, reader: Reader, version: int) -> Sequence[T] | None:
        count = reader.count()
        return None if count < 0 else self._topics.read_topics(reader, version, count)

    def write(self, writer: Writer, version: int, value: Sequence[T] | None) -> None:
        if value is None:
            writer.count(-1)
        else:
            self._topics.write(writer, version, value)
