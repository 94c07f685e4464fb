"""A column in a wider type: nulls where it has nothing, and all else as it was."""

import pyarrow as pa

from barnabas.schemas.columns.decoded import conformed

NARROW = pa.struct(
    [
        pa.field("a", pa.int64()),
        pa.field("items", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32())])))),
        pa.field("by_name", pa.map_(pa.string(), pa.field("value", pa.struct([pa.field("x", pa.int32())])))),
    ]
)
INNER = pa.struct([pa.field("y", pa.string()), pa.field("x", pa.int32())])
WIDE = pa.struct(
    [
        pa.field("new", pa.date32()),
        pa.field("a", pa.int64()),
        pa.field("items", pa.list_(pa.field("element", INNER))),
        pa.field("by_name", pa.map_(pa.string(), pa.field("value", INNER))),
    ]
)


def test_missing_field_is_null() -> None:
    rows = [
        {"a": 0, "items": [{"x": 9}], "by_name": [("z", None)]},
        None,
        {"a": 1, "items": [{"x": 1}, None, {"x": 2}], "by_name": [("k", {"x": 3})]},
        {"a": None, "items": None, "by_name": None},
        {"a": 2, "items": [], "by_name": []},
    ]
    found = conformed(pa.array(rows, NARROW).slice(1), WIDE)
    found.validate(full=True)
    assert found.type == WIDE
    assert found.to_pylist() == [
        None,
        {
            "new": None,
            "a": 1,
            "items": [{"y": None, "x": 1}, None, {"y": None, "x": 2}],
            "by_name": [("k", {"y": None, "x": 3})],
        },
        {"new": None, "a": None, "items": None, "by_name": None},
        {"new": None, "a": 2, "items": [], "by_name": []},
    ]
