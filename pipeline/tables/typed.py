"""Loads of typed values: the schema of each topic, and columns of the table that grow with them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen

from ...ports.errors import BarnabasError, ConfigError
from ...schemas.client import RegistryRefused
from .source import LoadSource
from .state import TableError
from .store import TableStore

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_VALUE = "value"


class TopicNotTyped(BarnabasError):
    """The values of a topic have no schema, or one that does not go with the table's columns."""


@frozen(kw_only=True)
class TypedValues:
    """Decoding of the values of each topic; all have the type of the table's column."""

    options: Mapping[str, Mapping[str, str]]
    """The options of the data source per topic. Rows that do not decode are kept, with the reason."""
    type: "DataType"


def typed_values(source: LoadSource, store: TableStore, topics: Sequence[str]) -> TypedValues | None:
    """Return the decoding of a load; None: the values are bytes, or there are no topics. Raises `TopicNotTyped`, and
    `TableError` when the table has the other kind.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    before = _value_type(store)
    untyped = isinstance(before, BinaryType)
    if before is not None and untyped == bool(source.decoding):
        has, how = ("bytes", "without --value-format") if untyped else ("typed values", "with --value-format as before")
        raise TableError(f"{store.folder} has {has}: load {how}, or into another folder")
    if not source.decoding or not topics:
        return None
    given = None if before is None else StructType([StructField(_VALUE, before)])
    found = {topic: _settled(source, topic, given) for topic in topics}
    column = before
    for topic, (_, kind) in found.items():
        try:
            column = kind if column is None else merged(column, kind, _VALUE)
        except TableError as error:
            raise TopicNotTyped(f"{topic}: {error}") from error
    assert column is not None
    whole = {f"{_VALUE}.columns": storable(column).json()}
    return TypedValues(
        options={topic: {**options, **whole} for topic, (options, _) in found.items()}, type=storable(column)
    )


def _value_type(store: TableStore) -> "DataType | None":
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(store.columns().field(_VALUE).type, prefer_timestamp_ntz=True) if store.exists() else None


def _settled(source: LoadSource, topic: str, given: object) -> tuple[dict[str, str], "DataType"]:
    """Return the options with the schema chosen, so that planning and all tasks have the same; and the column's
    type."""
    from ..source.decoding import column_type, settled_by
    from ..source.options import read_options
    from ..topics.connect import connect_cluster

    place = {**{f"kafka.{key}": value for key, value in source.client.items()}, **source.where.options}
    options = read_options({**place, **source.decoding, "subscribe": topic})
    assert options.decoding is not None
    connect = partial(connect_cluster, source.where, source.client)
    try:
        settled = settled_by(connect, options.decoding, options.selection, given)  # type: ignore[arg-type]
        (chosen,) = settled.columns
        kind = column_type(chosen)
    except (RegistryRefused, ConfigError) as error:
        raise TopicNotTyped(f"{topic}: {error}") from error
    schema = {f"{_VALUE}.schema.id": str(chosen.schema_id)} if chosen.schema_id is not None else {}
    if not schema:
        schema = {f"{_VALUE}.schema": chosen.schema}
    without = {k: v for k, v in source.decoding.items() if not k.startswith((f"{_VALUE}.schema", f"{_VALUE}.subject"))}
    return {**without, **schema, "mode": "PERMISSIVE"}, kind


def merged(one: "DataType", other: "DataType", where: str) -> "DataType":
    """Return the type that has the fields of both. Raises `TableError` where they differ in what they have in
    common."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StructField, StructType

    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {field.name: field.dataType for field in one}
        for field in other:
            there = fields.get(field.name)
            inner = f"{where}.{field.name}"
            fields[field.name] = field.dataType if there is None else merged(there, field.dataType, inner)
        return StructType([StructField(name, kind) for name, kind in fields.items()])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(merged(one.elementType, other.elementType, f"{where}[]"))
    if isinstance(one, MapType) and isinstance(other, MapType) and one.keyType == other.keyType:
        return MapType(one.keyType, merged(one.valueType, other.valueType, f"{where}[]"))
    raise TableError(
        f"{where} is {one.simpleString()} in the table and {other.simpleString()} in the schema now; nothing is "
        "loaded: load into another folder, or give the schema to read with (--value-schema)"
    )


def storable(kind: "DataType") -> "DataType":
    """Return the type as a table has it: Parquet has no column of nothing but nulls: text takes its place."""
    from pyspark.sql.types import _parse_datatype_json_string

    text = json.dumps(_without_void(json.loads(kind.json())))
    return _parse_datatype_json_string(text)


def _without_void(thing: object) -> object:
    if isinstance(thing, dict):
        return {
            key: "string" if value == "void" and key != "name" else _without_void(value) for key, value in thing.items()
        }
    return [_without_void(each) for each in thing] if isinstance(thing, list) else thing
