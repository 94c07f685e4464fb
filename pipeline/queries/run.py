"""Queries over topics and tables: DuckDB answers them, and only the relations that the statement names are read."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.cli.times import parse_time_ms
from ...app.extras import require
from ...ports.errors import BarnabasError, ConfigError
from ...schemas.access import access_of, is_access_setting
from .bounds import Window
from .scope import Scope

if TYPE_CHECKING:
    import pyarrow as pa


QUERY_PACKAGES = ("duckdb", "numpy", "pyarrow")
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
) -> "pa.Table":
    """Return the rows of one SELECT over topics, and over tables that `load` has filled, as a `pyarrow.Table`.

    `sql`: one SELECT of DuckDB. `bootstrap`: the brokers. `memory`: what DuckDB may use, like "2GB".

        query("select status, count(*) from access group by status", "localhost:9092", since="1h")

    A topic's columns are those of Spark's Kafka source (key and value as text where they are) and the fields of its
    JSON values; `json` is all of them. `tables`: folders, or name → folder; a topic there is NAME.TOPIC. `since`,
    `until`: an ISO time (UTC), an age ("30m", "2h", "7d"), or ms; `last`: the number of the newest messages of each
    topic to read, by their time. `registry`: the URL of a schema registry, for Avro, Protobuf and JSON Schema: a value
    is a struct then, whose fields are columns, and null with a reason in `value_error` where it does not decode;
    `client` may have the settings of its client, such as `basic.auth.user.info`.

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

    from .relations import Relations, missing_column
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
