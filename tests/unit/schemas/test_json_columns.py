"""Columns of JSON: quickly where all is well, one by one where it is not."""

import datetime
import decimal
import json

import pyarrow as pa
import pytest

from barnabas.schemas.columns.json import JsonColumns, inferred_type

KIND = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)


def decoded(kind: pa.DataType, *rows: bytes | None) -> tuple[list[object], dict[int, str]]:
    found = JsonColumns(kind).decode(pa.array([b"before", *rows], pa.binary()).slice(1))
    found.values.validate(full=True)
    assert found.values.type == kind
    return found.values.to_pylist(), dict(found.errors)


def test_rows_that_are_well() -> None:
    at = datetime.datetime(2011, 6, 12, 9, 30, tzinfo=datetime.UTC)
    rows, errors = decoded(
        KIND,
        b'{"id":1,"name":"a","at":"2011-06-12T09:30:00Z","tags":["x"],"more":{"y":1}}',
        None,
        b"\0\0\0\0\1" + b'{\n  "id": 2\n}',
        b"null",
    )
    assert errors == {}
    assert rows[0] == {"id": 1, "name": "a", "at": at, "tags": ["x"]}
    assert rows[1:] == [None, {"id": 2, "name": None, "at": None, "tags": None}, None]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b'{"id":1} {"id":2}',
        b'{"id":1},{"id":2}',
        b'{"id":"x"}',
        b"[]",
        b"text",
        b'{"id":1}]',
        b"\xff",
        b"[" * 9000,
    ],
)
def test_bad_rows_move_no_others(bad: bytes) -> None:
    good = [json.dumps({"id": n}).encode() for n in range(200)]
    rows, errors = decoded(KIND, *good[:77], bad, *good[77:])
    assert set(errors) == {77}
    assert errors[77].startswith("not JSON of this type: ")
    assert [row and row["id"] for row in rows] == [*range(77), None, *range(77, 200)]  # type: ignore[index]


def test_types_that_are_read_one_by_one() -> None:
    kind = pa.struct(
        [
            pa.field("day", pa.date32()),
            pa.field("map", pa.map_(pa.string(), pa.field("value", pa.int64()))),
            pa.field("data", pa.binary()),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("any", pa.string()),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
    )
    text = b'{"day":"2011-06-12","map":{"a":1},"data":"aGk=","price":12.5,"any":{"x":[1]},"at":"2011-06-12T09:30:00"}'
    [row], errors = decoded(kind, text)
    assert errors == {}
    assert row == {
        "day": datetime.date(2011, 6, 12),
        "map": [("a", 1)],
        "data": b"hi",
        "price": decimal.Decimal("12.50"),
        "any": '{"x":[1]}',
        "at": datetime.datetime(2011, 6, 12, 9, 30, tzinfo=datetime.UTC),
    }


def test_a_type_from_a_sample() -> None:
    found = inferred_type([b'{"a":1,"b":null}', b'{"a":1.5,"c":[{"d":"2011-06-12 09:30:00"}]}'])
    assert found == pa.struct(
        [
            pa.field("a", pa.float64()),
            pa.field("b", pa.string()),
            pa.field("c", pa.list_(pa.field("element", pa.struct([pa.field("d", pa.timestamp("us", "UTC"))])))),
        ]
    )
    with pytest.raises(ValueError, match="JSON"):
        inferred_type([b"plain text"])
