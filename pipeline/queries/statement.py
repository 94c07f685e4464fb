"""Analysis of a statement: its relations, columns, and bounds for topics. DuckDB itself parses it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from ...ports.errors import ConfigError

Node = Mapping[str, Any]
_BOUNDED = ("offset", "partition", "timestamp")
_FLIPPED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}
_CONSTANT_CLASSES = {"CONSTANT", "CAST", "FUNCTION", "TYPE"}
_SAME_EACH_TIME = {
    *("+", "-", "*", "trunc", "now", "get_current_timestamp", "current_timestamp", "current_date", "today"),
    *("to_seconds", "to_minutes", "to_hours", "to_days", "to_weeks", "to_months", "to_years", "to_milliseconds"),
    *("date_trunc", "make_timestamp", "make_timestamptz", "to_timestamp", "epoch_ms", "strptime", "make_date"),
}


@frozen
class Condition:
    """`column` compared with constants that DuckDB can work out from `expressions`: what every wanted row meets."""

    column: str
    comparison: str
    expressions: Sequence[Node]


@define
class Relation:
    """A name that stands where a table would, by its parts, and what is asked of it."""

    path: tuple[str, ...]
    conditions: list[Condition] = field(factory=list)
    """Only of a relation that is named once: another mention would have to see all rows."""
    mentions: int = 0


@frozen
class Statement:
    """One SELECT. `columns` None: the statement may want any column; otherwise their names in lower case."""

    relations: Sequence[Relation]
    columns: frozenset[str] | None
    named: frozenset[str] | None = frozenset()
    """The names that stand in the statement, also next to a star (`* exclude (value)`). None: they may be any."""

    def names(self, column: str) -> bool:
        """Return True if the column is named, or may be: a star does not name it."""
        return self.named is None or column in self.named

    def wants(self, *names: str) -> bool:
        """Return True if one of these columns is named, or all are wanted."""
        return self.columns is None or any(name in self.columns for name in names)

    def others(self, known: Sequence[str]) -> frozenset[str] | None:
        """Return the named columns that are none of these; None: all."""
        return None if self.columns is None else self.columns - {*known}


def parse_statement(connection: Any, sql: str) -> Statement:
    """Raises `ConfigError` for what is not one SELECT, or no SQL."""
    (text,) = connection.execute("select json_serialize_sql(?)", [sql]).fetchall()[0]
    found = json.loads(text)
    if found["error"]:
        hint = ""
        if found.get("error_type") != "parser":
            hint = "; a query is one SELECT"
        elif re.search(r'(?<!")\boffset\b(?!")', sql, re.IGNORECASE):
            hint = '; offset is a word of SQL: the column is "offset", in double quotes'
        raise ConfigError(f"the query: {found['error_message']}{hint}")
    if len(found["statements"]) != 1:
        raise ConfigError(f"the query has {len(found['statements'])} statements; give one SELECT")
    root = found["statements"][0]["node"]
    nodes = list(_nodes(root))
    defined = {entry["key"].lower() for node in nodes if "cte_map" in node for entry in node["cte_map"]["map"]}
    relations: dict[tuple[str, ...], Relation] = {}
    names: set[str] = set()
    for node in nodes:
        if node.get("type") == "BASE_TABLE":
            path = _path(node)
            names |= {*map(str.lower, path), node["alias"].lower()}
            if len(path) > 1 or path[0].lower() not in defined:
                relations.setdefault(_key(path), Relation(path)).mentions += 1
    for node in nodes:
        if node.get("type") == "SELECT_NODE" and node.get("where_clause"):
            _take_conditions(node, relations)
    return Statement([*relations.values()], _columns(nodes, names), _named(nodes))


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _nodes(each)


def _path(table: Node) -> tuple[str, ...]:
    if "qualified_name" in table:
        return tuple(table["qualified_name"]["path"])
    return tuple(filter(None, (table["catalog_name"], table["schema_name"], table["table_name"])))


def _key(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of a name: names in DuckDB are case-insensitive, quoted or not."""
    return tuple(map(str.lower, path))


def _columns(nodes: Sequence[Node], relations: set[str]) -> frozenset[str] | None:
    found: set[str] = set()
    for node in nodes:
        if node.get("class") == "STAR" or node.get("ref_type") == "NATURAL":
            return None
        if node.get("class") == "COLUMN_REF":
            parts = [part.lower() for part in node["column_names"]]
            while len(parts) > 1 and parts[0] in relations:
                del parts[0]
            if parts[0] in relations:  # a row as a whole, perhaps
                return None
            found.update(parts)
        found.update(name.lower() for name in node.get("using_columns", ()))
    return frozenset(found)


def _named(nodes: Sequence[Node]) -> frozenset[str] | None:
    found: set[str] = set()
    for node in nodes:
        if node.get("class") == "COLUMN_REF":
            found.update(part.lower() for part in node["column_names"])
        elif node.get("class") == "STAR":
            if node["columns"] and node["expr"] is not None:  # COLUMNS('a pattern')
                return None
            found.update(name.lower() for name in node["exclude_list"])
            found.update(each["key"].lower() for each in node["replace_list"])
            found.update(each["column"].lower() for each in node.get("qualified_exclude_list", ()))
            found.update(each["key"]["column"].lower() for each in node.get("rename_list", ()))
    return frozenset(found)


def _take_conditions(select: Node, relations: Mapping[tuple[str, ...], Relation]) -> None:
    """Add the conditions that every row of a table must meet by WHERE to its relation.

    An outer join does not weaken them: a comparison is false for its nulls, too.
    """
    tables = [node for node in _nodes(select["from_table"]) if node.get("type") == "BASE_TABLE"]
    for condition, owner in _conditions(select["where_clause"]):
        if owner:
            owners = [table for table in tables if owner in (table["alias"].lower(), _path(table)[-1].lower())]
        else:
            owners = tables if select["from_table"]["type"] == "BASE_TABLE" else []
        relation = relations.get(_key(_path(owners[0]))) if len(owners) == 1 else None
        if relation is not None and relation.mentions == 1:
            relation.conditions.append(condition)


def _conditions(node: Node) -> Iterator[tuple[Condition, str]]:
    """(condition, the table that its column is said to be of) of what WHERE joins by AND."""
    kind = node["type"]
    if kind == "CONJUNCTION_AND":
        for each in node["children"]:
            yield from _conditions(each)
    elif kind in _FLIPPED:
        for column, other, comparison in (
            (node["left"], node["right"], kind),
            (node["right"], node["left"], _FLIPPED[kind]),
        ):
            yield from _condition(column, comparison, [other])
    elif kind == "COMPARE_BETWEEN":
        yield from _condition(node["input"], "COMPARE_GREATERTHANOREQUALTO", [node["lower"]])
        yield from _condition(node["input"], "COMPARE_LESSTHANOREQUALTO", [node["upper"]])
    elif kind == "COMPARE_IN":
        yield from _condition(node["children"][0], kind, node["children"][1:])


def _condition(column: Node, comparison: str, values: Sequence[Node]) -> Iterator[tuple[Condition, str]]:
    if column.get("class") != "COLUMN_REF" or not all(map(_is_constant, values)):
        return
    *owner, name = (part.lower() for part in column["column_names"])
    if name in _BOUNDED and len(owner) <= 1:
        yield Condition(name, comparison, values), "".join(owner)


def _is_constant(value: Node) -> bool:
    for node in _nodes(value):
        if node.get("class", "CONSTANT") not in _CONSTANT_CLASSES:
            return False
        if node.get("class") == "FUNCTION" and node["function_name"] not in _SAME_EACH_TIME:
            return False
    return True


def constant(connection: Any, expression: Node, type_: str) -> Any:
    """Return the value of a condition's expression as this SQL type; None where it has none."""
    import duckdb

    (template,) = connection.execute("select json_serialize_sql('select 0')").fetchall()[0]
    tree = json.loads(template)
    tree["statements"][0]["node"]["select_list"] = [expression]
    try:
        (sql,) = connection.execute("select json_deserialize_sql(?::json)", [json.dumps(tree)]).fetchall()[0]
        (value,) = connection.execute(f"select try_cast(({sql}) as {type_})").fetchall()[0]
    except duckdb.Error:
        return None
    return value
