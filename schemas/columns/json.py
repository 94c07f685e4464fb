"""Decodes a column of JSON texts into a typed column; a schema id before the text is skipped."""

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..wire import HEADER_BYTES
from .decoded import DecodedColumn, put_together, regions_of
from .span import Ints, gathered

_TOGETHER_MIN = 64
"""Below this number of rows, a bad one makes all be read alone; more are halved."""
_BLOCK_BYTES_MAX = 2**31 - 1


class JsonColumns:
    """Decodes JSON texts. Fields that the type lacks are dropped, fields that a text lacks are null.

    Numbers and objects are converted to text for a string type; there is no other conversion.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._plain = _plain_of(kind)
        self._rows = pa.schema([pa.field("i", pa.int64()), pa.field("v", pa.list_(kind))])
        self._together = _is_simple(kind)

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        there = np.flatnonzero(np.asarray(encoded.is_valid()))
        begin, end, buffer = regions_of(encoded)
        data = np.frombuffer(buffer, dtype=np.uint8) if buffer.size else np.zeros(1, dtype=np.uint8)
        framed = (end - begin >= HEADER_BYTES) & (data.take(begin, mode="clip") == 0)
        texts = gathered(buffer, (begin + np.where(framed, HEADER_BYTES, 0))[there], end[there])
        parts: list[tuple[Ints, pa.Array]] = []
        errors: dict[int, str] = {}
        self._decode(texts, there, parts, errors)
        return DecodedColumn(put_together(parts, len(encoded), self.type), errors)

    def _decode(
        self, texts: pa.BinaryArray, rows: Ints, parts: list[tuple[Ints, pa.Array]], errors: dict[int, str]
    ) -> None:
        if not len(rows):
            return
        found = self._all(texts) if self._together else None
        if found is not None:
            parts.append((rows, found))
        elif self._together and len(rows) > _TOGETHER_MIN:
            middle = len(rows) // 2
            self._decode(texts.slice(0, middle), rows[:middle], parts, errors)
            self._decode(texts.slice(middle), rows[middle:], parts, errors)
        else:
            self._decode_each(texts, rows, parts, errors)

    def _all(self, texts: pa.BinaryArray) -> pa.Array | None:
        """Read all rows by Arrow's reader; return None if one is invalid.

        Each text is in a line and in a list with its number, so that one that ends early, or has two values, cannot
        shift the others.
        """
        import pyarrow.json as arrow_json

        count = len(texts)
        numbers = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
        lines = pc.binary_join_element_wise(b'{"i":', numbers, b',"v":[', texts, b"]}\n", b"")
        begin, end, buffer = regions_of(lines)
        text = buffer.slice(int(begin[0]), int(end[-1] - begin[0]))
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=min(text.size + 1, _BLOCK_BYTES_MAX)),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._rows, unexpected_field_behavior="ignore", newlines_in_values=True
                ),
            )
        except pa.ArrowInvalid:
            return None
        lists = table.column("v").combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        whole = np.array_equal(table.column("i").to_numpy(), np.arange(count))
        if not whole or lists.null_count or not pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py():
            return None
        return lists.flatten()

    def _decode_each(
        self, texts: pa.BinaryArray, rows: Ints, parts: list[tuple[Ints, pa.Array]], errors: dict[int, str]
    ) -> None:
        values: list[Any] = []
        for row, text in zip(rows.tolist(), texts.to_pylist(), strict=True):
            try:
                value = self._plain(json.loads(text))
                pa.array([value], self.type)
                values.append(value)
            except (
                ValueError,
                TypeError,
                OverflowError,
                decimal.InvalidOperation,
                RecursionError,
                pa.ArrowException,
            ) as error:
                errors[row] = f"not JSON of this type: {str(error) or type(error).__name__}"
                values.append(None)
        parts.append((rows, pa.array(values, self.type)))


def _is_simple(kind: pa.DataType) -> bool:
    """Return True for a type that Arrow's reader reads like ours: without maps, dates, and bytes in base64."""
    if pa.types.is_struct(kind):
        return len(kind) > 0 and all(_is_simple(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _is_simple(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind))


def _plain_of(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the conversion from JSON values to Arrow values of a type."""
    if pa.types.is_struct(kind):
        return partial(_plain_struct, {each.name: _plain_of(each.type) for each in kind})
    if pa.types.is_list(kind):
        return partial(_plain_items, _plain_of(kind.value_type))
    if pa.types.is_map(kind):
        return partial(_plain_pairs, _plain_of(kind.item_type))
    if pa.types.is_timestamp(kind):
        return partial(_plain_time, kind)
    for is_of, plain in _PLAIN:
        if is_of(kind):
            return plain
    return _same


def _same(value: Any) -> Any:
    return value


def _plain_struct(fields: dict[str, Callable[[Any], Any]], value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return {name: plain(value.get(name)) for name, plain in fields.items()}


def _plain_items(inner: Callable[[Any], Any], value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"expected an array, got {type(value).__name__}")
    return None if value is None else [inner(each) for each in value]


def _plain_pairs(inner: Callable[[Any], Any], value: Any) -> Any:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return None if value is None else [(name, inner(each)) for name, each in value.items()]


def _plain_time(kind: pa.DataType, value: Any) -> Any:
    """Parse an ISO 8601 time; UTC by default."""
    if not isinstance(value, str):
        return value
    found = datetime.datetime.fromisoformat(value)
    if kind.tz is None:
        return found.replace(tzinfo=None)
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _plain_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _plain_decimal(value: Any) -> Any:
    return None if value is None else decimal.Decimal(str(value))


_PLAIN: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (pa.types.is_string, _plain_text),
    (pa.types.is_binary, lambda value: None if value is None else base64.b64decode(value, validate=True)),
    (pa.types.is_date, lambda value: None if value is None else datetime.date.fromisoformat(value)),
    (pa.types.is_decimal, _plain_decimal),
)


def inferred_type(texts: Sequence[bytes]) -> pa.DataType:
    """Return the type that Arrow's reader infers from a sample of JSON texts. Raises `ValueError`."""
    import pyarrow.json as arrow_json

    lines = b"".join(b'{"v":' + text.replace(b"\n", b" ") + b"}\n" for text in texts)
    try:
        table = arrow_json.read_json(io.BytesIO(lines), arrow_json.ReadOptions(block_size=len(lines) + 1))
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    return _wider(table.schema.field("v").type)


def _wider(kind: pa.DataType) -> pa.DataType:
    """Replace types of which the sample has only nulls by text."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _wider(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _wider(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_null(kind) else kind
