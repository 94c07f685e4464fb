"""Queries over topics and tables: DuckDB answers them, and only the relations that the statement names are read.

Topics are read into tables of DuckDB; loaded tables are views.
"""

import json
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from attrs import frozen

from ...app.cli.times import parse_time_ms
from ...app.extras import require
from ...ports.errors import BarnabasError, ConfigError
from ...schemas.access import access_of, is_access_setting
from .bounds import TopicLimits, Window, limits_of
from .scope import QUERY_PACKAGES, Scope
from .statement import Relation, Statement, constant
from .tables import files_by_topic, loaded_topic
from .topics import RECORD_COLUMNS, Staged, TopicReader, quoted

if TYPE_CHECKING:
    from types import TracebackType

    from .typed import RegisteredValues


FIELDS_MAX = 1000
"""The limit of fields of one object. An object with more is a map, whose keys are no columns."""
_TYPES = {"UBIGINT": "BIGINT", "HUGEINT": "DOUBLE", "UHUGEINT": "DOUBLE", "NULL": "VARCHAR", "JSON": "VARCHAR"}
"""Whole numbers are signed, so that they can be subtracted; what differs from row to row, or is nothing, is text."""

Structure = dict[str, Any] | list[Any] | str


@frozen
class JsonFields:
    """The fields of the objects, by name, with their types; whether every value is an object, and each of its fields
    among them.
    """

    fields: dict[str, Structure]
    all_objects: bool
    complete: bool = False


def infer(connection: Any, source: str, value: str) -> JsonFields:
    """Look through all values of a relation, which `value` gives as text."""
    found = connection.execute(
        f"""select json_group_structure(j), count(j), count(*) from (
            select case when json_valid(v) and json_type(v) = 'OBJECT' then v::json end as j
            from (select {value} as v from {source} where value is not null))"""
    ).fetchall()[0]
    structure = json.loads(found[0]) if found[1] else {}
    fields = _plain(structure)
    if not isinstance(fields, dict):
        return JsonFields({}, found[1] == found[2])
    complete = isinstance(structure, dict) and len(fields) == len(structure)
    return JsonFields(fields, found[1] == found[2], complete and found[1] == found[2])


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


_OWN_SCHEMAS = {"information_schema", "pg_catalog", "main", "system", "temp"}
_SQL_TYPES = {"timestamp": "timestamptz"}


class Relations:
    """Defines what a statement names. A context manager, for the connections to brokers."""

    def __init__(self, connection: Any, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope
        self._stack = ExitStack()
        self._reader: TopicReader | None = None
        self._topics: list[str] = []
        self._typed: RegisteredValues | None = None
        self._tables: dict[str, dict[str, list[str]]] = {}
        self.columns: dict[str, list[str]] = {}
        """The columns of each name that is defined, also those that the statement does not want."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self._stack.close()

    def define(self, statement: Statement) -> None:
        """Read and define all that it names. Raises `ConfigError` for a name that is nothing here."""
        scope = self._scope
        self._tables = {name: files_by_topic(folder) for name, folder in scope.tables.items()}
        if scope.bootstrap:
            self._reader = TopicReader(scope.bootstrap, scope.client, bucket=scope.bucket, report=scope.report)
            self._stack.callback(self._reader.close)
            self._topics = self._reader.names()
        for relation in statement.relations:
            self._define(relation, statement)

    def _define(self, relation: Relation, statement: Statement) -> None:
        *schema, name = relation.path
        if self._reader is not None and (topic := _among(".".join(relation.path), self._topics)) is not None:
            self._define_topic(relation, topic, statement)
        elif len(schema) == 1 and (folder := _among(schema[0], self._tables)) is not None:
            found = _among(name, self._tables[folder])
            if found is None:
                raise ConfigError(
                    f"table {folder} has no topic {name!r}; it has {_listed(sorted(self._tables[folder]))}"
                )
            self._define_loaded(relation, self._tables[folder][found], statement)
        elif not Path(name).exists() and not (schema and schema[0].lower() in _OWN_SCHEMAS):
            if self._reader is not None:
                self._reader.check_not_denied(".".join(relation.path))
            raise ConfigError(self._unknown(".".join(relation.path)))

    def _define_topic(self, relation: Relation, topic: str, statement: Statement) -> None:
        assert self._reader is not None
        others = statement.others([name.lower() for name in RECORD_COLUMNS])
        by_fields = others is None or bool(others)
        columns = [
            name for name in RECORD_COLUMNS if statement.wants(name.lower()) or (name == "value" and by_fields)
        ] or ["offset"]
        last = self._scope.window.last
        if last is not None:
            columns += [name for name in ("partition", "offset", "timestamp") if name not in columns]
        decoder = None
        if self._scope.registry and (by_fields or statement.wants("value")):
            decoder = self._typed_values().decoder_of(topic)
            columns = columns if decoder is None or "value" in columns else [*columns, "value"]
        # The newest messages are chosen before WHERE, as by --since.
        limits = self._limits(relation) if last is None else TopicLimits()
        bounds = self._reader.bounds_by_partition(topic, limits, self._scope.window)
        staged = self._reader.stage(
            self._connection,
            f"messages of {topic}",
            bounds,
            columns,
            lambda done, total: self._scope.progress(done, total, topic),
            decoder,
        )
        source = quoted(staged.table)
        if last is not None:
            source = f'(from {source} order by timestamp desc nulls last, "offset" desc, partition limit {last})'
        self._view(relation, source, staged, others if by_fields else frozenset(), statement)

    def _define_loaded(self, relation: Relation, files: Sequence[str], statement: Statement) -> None:
        others = statement.others([name.lower() for name in RECORD_COLUMNS])
        by_fields = others is None or bool(others)
        contents = [name for name in ("key", "value") if statement.wants(name) or (name == "value" and by_fields)]
        loaded = loaded_topic(self._connection, files, self._scope.window, contents)
        staged = Staged(loaded.source, [*loaded.types], set(loaded.text))
        known = {name.lower() for name in loaded.types}
        self._view(relation, loaded.source, staged, None if others is None else others - known, statement)

    def _view(
        self, relation: Relation, source: str, staged: Staged, fields: frozenset[str] | None, statement: Statement
    ) -> None:
        """Define the view that the statement means. `fields`: names that may be those of JSON fields; None: all.

        A star shows what a value holds once: as its fields, or as the value where these are not all of it. `value` and
        `json` are columns in addition to the fields where the statement names them.
        """
        starred = statement.columns is None
        known = [*dict.fromkeys([*RECORD_COLUMNS, *staged.columns])]
        decoded = {name: f"decode({name})" for name in staged.text}
        columns = [f"{decoded[n]} as {n}" if n in decoded else quoted(n) for n in staged.columns]
        parsed, own, whole = "", list[str](), False
        if "value" in staged.text and fields != frozenset():
            found = infer(self._connection, source, decoded["value"])
            own, parsed = view_columns(found, fields, decoded["value"], staged.columns)
            whole = found.complete and len(own) == len(found.fields) + 1
            if starred and not statement.names("json"):
                own = own[:-1]
            taken = {name.lower() for name in known}
            known += [name for name in found.fields if name.lower() not in taken]
            known += ["json"] if found.fields else []
        elif "value" in staged.columns:
            names, whole = self._typed_fields(source, staged.columns)
            own = [f"value.{quoted(name)} as {quoted(name)}" for name in names]
            known += names
        if starred and whole and own and not statement.names("value"):
            columns.pop([*staged.columns].index("value"))
        columns += own
        self.columns[relation.path[-1]] = known
        schema = "".join(f"{quoted(part)}." for part in relation.path[:-1])
        if schema:
            self._connection.execute(f"create schema if not exists {schema[:-1]}")
        parts = f"select *, {parsed} as j from {source}" if parsed else f"select * from {source}"
        view = f"{schema}{quoted(relation.path[-1])}"
        self._connection.execute(f"create view {view} as select {', '.join(columns)} from ({parts})")

    def _typed_fields(self, source: str, taken: Sequence[str]) -> tuple[list[str], bool]:
        """(the fields of a value that is a struct, but for those that would hide another column; whether these are all
        of them)."""
        kind = self._connection.sql(f"select value from {source} limit 0").to_arrow_table().schema.field("value").type
        hidden = {*map(str.lower, (*RECORD_COLUMNS, *taken))}
        names = [each.name for each in kind] if pa.types.is_struct(kind) else []
        found = [name for name in names if name.lower() not in hidden]
        return found, len(found) == len(names)

    def _typed_values(self) -> "RegisteredValues":
        if self._typed is None:
            require("values with a schema", ("fastavro", "google.protobuf"), "schemas")
            from .typed import RegisteredValues

            self._typed = RegisteredValues(self._scope.registry)
        return self._typed

    def _limits(self, relation: Relation) -> TopicLimits:
        return limits_of(
            (each, [constant(self._connection, e, _SQL_TYPES.get(each.column, "bigint")) for e in each.expressions])
            for each in relation.conditions
        )

    def _unknown(self, name: str) -> str:
        hints = []
        if self._reader is None:
            hints.append("topics need --bootstrap HOST:PORT")
        else:
            hints.append(f"topics: {_listed(sorted(self._topics))}")
        if self._tables:
            hints.append(
                "; ".join(f"table {folder}: {_listed(sorted(topics))}" for folder, topics in self._tables.items())
            )
        else:
            hints.append("loaded tables need --table DIR")
        names = [*self._topics, *(f"{folder}.{each}" for folder, topics in self._tables.items() for each in topics)]
        return f"there is no {name!r}{did_you_mean(name, names, ': ')}{'; '.join(hints)}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question about the name that is nearest to this one, or `otherwise`."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower()[:200], by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}? " if near else otherwise


def missing_column(name: str, columns: Mapping[str, Sequence[str]]) -> str:
    """Return the text for a column that none of these relations has."""
    known = [each for names in columns.values() for each in names]
    lists = "; ".join(f"{relation} has {_listed(names)}" for relation, names in columns.items())
    return f'column "{name}" not found{did_you_mean(name, known, ": ")}{lists}'


def _among(name: str, known: Iterable[str]) -> str | None:
    """Find a name as SQL does: exactly, or else case-insensitively if only one name matches."""
    names = list(known)
    if name in names:
        return name
    alike = [each for each in names if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return (", ".join(found[:30]) or "none") + (f" and {len(found) - 30} more" if len(found) > 30 else "")


_log = logging.getLogger("barnabas.pipeline")
_SPARED_ERRORS = ("Binder Error: ", "Catalog Error: ", "Parser Error: ")
_MISSING_COLUMN = re.compile(
    r'(?:Referenced column|does not have a column named|Column) "([^"]+)"(?: not found| in \w+ list not found|\s*$)',
    re.M,
)


def query(
    sql: str,
    bootstrap: str = "",
    *,
    tables: Mapping[str, str | Path] | Sequence[str | Path] = (),
    since: str | None = None,
    until: str | None = None,
    last: int | None = None,
    client: Mapping[str, str] | None = None,
    registry: str = "",
    memory: str = "",
    from_bucket: str = "",
) -> "pa.Table":
    """Return the rows of one SELECT over topics, and over tables that `load` has filled, as a `pyarrow.Table`.

    `sql`: one SELECT of DuckDB. `bootstrap`: the brokers. `memory`: what DuckDB may use, like "2GB".

        query("select status, count(*) from access group by status", "localhost:9092", since="1h")

    A topic's columns are those of Spark's Kafka source (key and value as text where they are) and the fields of its
    JSON values; `json` is all of them. `tables`: folders, or name → folder; a topic there is NAME.TOPIC. `since`,
    `until`: an ISO time (UTC), an age ("30m", "2h", "7d"), or ms; `last`: the number of the newest messages of each
    topic to read, by their time. `registry`: the URL of a schema registry, for Avro, Protobuf and JSON Schema: a value
    is a struct then, whose fields are columns, and null with a reason in `value_error` where it does not decode;
    `client` may have the settings of its client, such as `basic.auth.user.info`. `from_bucket`: the URL of the
    cluster's remote storage, whose keys this process has: what brokers have only there is read past them.

    Raises `ConfigError` for a query that cannot be answered, and what reading raises.
    """
    named = tables if isinstance(tables, Mapping) else {Path(each).resolve().name: each for each in tables}
    client = client or {}
    scope = Scope(
        bootstrap=bootstrap,
        tables={name: Path(folder) for name, folder in named.items()},
        window=window_of(since, until, last),
        client={name: value for name, value in client.items() if not is_access_setting(name)},
        registry=access_of(client, registry),
        memory=memory,
        bucket=from_bucket,
        report=_log.info,
    )
    with answered(sql, scope) as connection:
        return connection.sql(sql).to_arrow_table()


def window_of(since: str | None, until: str | None, last: int | None) -> Window:
    """Raises `ConfigError` for what is no time."""
    return Window(
        since_ms=None if since is None else parse_time_ms(since, "--since"),
        until_ms=None if until is None else parse_time_ms(until, "--until"),
        last=last,
    )


@contextmanager
def answered(sql: str, scope: Scope) -> Iterator[Any]:
    """A connection of DuckDB in which the statement's names mean something; its errors are ours, of one line."""
    require("a query", QUERY_PACKAGES, "query")
    import duckdb

    from .statement import parse_statement

    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-query-"))
        connection = stack.enter_context(duckdb.connect(":memory:", config={"temp_directory": scratch}))
        columns: Mapping[str, Sequence[str]] = {}
        try:
            connection.execute("set timezone = 'UTC'; set python_enable_replacements = false")
            if scope.memory:
                connection.execute("set memory_limit = ?", [scope.memory])
            relations: Relations = stack.enter_context(Relations(connection, scope))
            columns = relations.columns
            relations.define(parse_statement(connection, sql))
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise BarnabasError(f"{_first_line(error)}; give it more with --memory, or ask for less") from error
        except duckdb.Error as error:
            missing = _MISSING_COLUMN.search(str(error))
            text = _first_line(error) if missing is None or not columns else missing_column(missing[1], columns)
            raise ConfigError(f"the query: {text}") from error


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split("\n\nLINE")[0].replace("\n\n", "; ").split())
    for start in _SPARED_ERRORS:
        text = text.removeprefix(start)
    return text
