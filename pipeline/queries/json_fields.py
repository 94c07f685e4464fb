"""The fields of JSON values as columns: which there are, and of what types, is found in what was read."""

import json
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from .topics import RECORD_COLUMNS, quoted

FIELDS_MAX = 1000
"""The limit of fields of one object. An object with more is a map, whose keys are no columns."""
_TYPES = {"UBIGINT": "BIGINT", "HUGEINT": "DOUBLE", "UHUGEINT": "DOUBLE", "NULL": "VARCHAR", "JSON": "VARCHAR"}
"""Whole numbers are signed, so that they can be subtracted; what differs from row to row, or is nothing, is text."""

Structure = dict[str, Any] | list[Any] | str


@frozen
class JsonFields:
    """The fields of the objects, by name, with their types; and whether every value is an object."""

    fields: dict[str, Structure]
    all_objects: bool


def infer(connection: Any, source: str, value: str) -> JsonFields:
    """Look through all values of a relation, which `value` gives as text."""
    found = connection.execute(
        f"""select json_group_structure(j), count(j), count(*) from (
            select case when json_valid(v) and json_type(v) = 'OBJECT' then v::json end as j
            from (select {value} as v from {source} where value is not null))"""
    ).fetchall()[0]
    structure = json.loads(found[0]) if found[1] else {}
    fields = _plain(structure)
    return JsonFields(fields if isinstance(fields, dict) else {}, found[1] == found[2])


def view_columns(
    found: JsonFields, wanted: frozenset[str] | None, value: str, taken: Sequence[str]
) -> tuple[list[str], str]:
    """(columns for the fields that are wanted, the struct `j` that they come from). Those with the name of another
    column are to be had through the column `json` only, which has them all."""
    chosen = {
        name: type_
        for name, type_ in found.fields.items()
        if wanted is None or name.lower() in wanted or "json" in wanted
    }
    if not chosen:
        return [], ""
    structure = json.dumps(chosen).replace("'", "''")
    text = value if found.all_objects else f"case when json_valid({value}) then {value} end"
    others = {"json", *map(str.lower, (*RECORD_COLUMNS, *taken))}
    columns = [f"j.{quoted(name)} as {quoted(name)}" for name in chosen if name.lower() not in others]
    return [*columns, "j as json"], f"from_json({text}, '{structure}')"


def _plain(structure: Structure) -> Structure:
    if isinstance(structure, dict):
        names: set[str] = set()
        fields = {}
        for name, type_ in structure.items():
            if name and name.lower() not in names:  # names in DuckDB are case-insensitive
                names.add(name.lower())
                fields[name] = _plain(type_)
        return fields if 0 < len(fields) <= FIELDS_MAX else "VARCHAR"
    if isinstance(structure, list):
        return [_plain(each) for each in structure] or "VARCHAR"
    return _TYPES.get(structure, structure)
