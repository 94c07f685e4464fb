"""`barnabas query` and `barnabas sql`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ...app.cli.command_config import registry_settings
from ...app.cli.options import FromBucket, Settings, client_settings, progress
from ...app.cli.reaching import check_reachable
from ...app.extras import require
from ...ports.errors import ConfigError
from ...ports.report import counted
from ...schemas.access import access_of
from .output import FORMATS, chosen_format, print_rows, rows_of, write_file
from .scope import QUERY_PACKAGES, Scope

_Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker of the cluster whose topics are named.",
        envvar="BARNABAS_BOOTSTRAP",
    ),
]
_Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="[NAME=]DIR",
        help="A folder that `barnabas load` has filled; a topic in it is NAME.TOPIC (default: the folder's name). May "
        "be given again.",
    ),
]
_Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Default: as --out is called, else a table, or vertical where that would be too narrow.",
    ),
]


def register_query(app: typer.Typer) -> None:
    app.command("query")(query)


def register_sql(app: typer.Typer) -> None:
    app.command("sql")(sql)


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT; - reads it from standard input.")],
    bootstrap: _Bootstrap = "",
    tables: _Tables = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on: 2026-01-31T12:00 (UTC), 30m, 2h, 7d, or ms.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of each partition, up to the first message of this time or later."),
    ] = None,
    last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the N newest messages of each topic, by their time.")
    ] = None,
    format_: _Format = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the rows there.")] = None,
    registry: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="A schema registry: values of topics that it knows are decoded.",
            envvar="SCHEMA_REGISTRY_URL",
        ),
    ] = "",
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="What to hold in memory, as 2GB, before going to disk.")
    ] = "",
    from_bucket: FromBucket = "",
    settings: Settings = None,
) -> None:
    """Ask topics and loaded tables by SQL.

    A topic is a table with the columns key, value, topic, partition, "offset", timestamp, timestampType and headers,
    and the fields of its JSON values, which * shows in place of the value. Only what the query names is read, up to
    where the topics end now.
    """
    format_ = chosen_format(format_, out)
    require("a query", QUERY_PACKAGES, "query")
    from .run import answered, window_of

    if bootstrap:
        check_reachable(bootstrap)
    if from_bucket:
        _check_bucket(from_bucket, bootstrap)
    if sql == "-":
        sql = sys.stdin.read()
    with ExitStack() as stack:
        with progress("query", None) as advance:
            scope = Scope(
                bootstrap=bootstrap,
                tables=named_folders(tables or []),
                window=window_of(since, until, last),
                client=client_settings(None, settings),
                registry=access_of(registry_settings(), registry),
                memory=memory,
                bucket=from_bucket,
                report=lambda text: typer.echo(text, err=True),
                progress=lambda done, total, topic: advance(done, total, f"read {topic}"),
            )
            connection = stack.enter_context(answered(sql, scope))
            written = None if out is None else write_file(connection, sql, out, format_)
        if written is not None:
            typer.echo(f"{counted(written, 'row')} in {out}")
            return
        found = connection.execute(sql)
        print_rows([column[0] for column in found.description], rows_of(found), format_)


def _check_bucket(bucket: str, bootstrap: str) -> None:
    """Raise `ConfigError` for a bucket without brokers, or a malformed URL."""
    if not bootstrap:
        raise ConfigError("--from-bucket goes with --bootstrap: brokers say what is only in the bucket")
    from ...app.clients.consumer.remote_ranges import RemoteRanges

    RemoteRanges(bucket).close()


def named_folders(texts: Sequence[str]) -> dict[str, Path]:
    """NAME=DIR or DIR. Raises `ConfigError` for a name that is given twice."""
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        path = Path(folder if equals else text)
        name = name if equals else path.resolve().name
        if name in found:
            raise ConfigError(f"two tables are called {name!r}; write --table NAME={path}")
        found[name] = path
    return found


def sql(
    statement: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="SQL", help="Run this, and end; several with semicolons.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run what stands there, and end.")
    ] = None,
    bootstrap: _Bootstrap = "",
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="[NAME=]DIR",
            help="A folder that `barnabas load` has filled; a topic in it is NAME_TOPIC (default: the folder's name). "
            "May be given again.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="table|vertical|csv|json", help="Default: a table, or vertical if too narrow."
        ),
    ] = None,
    cores: Annotated[int | None, typer.Option(metavar="N", min=1, help="Of this machine; default: all.")] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="For Spark's Java.")] = "2g",
    from_bucket: FromBucket = "",
    settings: Settings = None,
) -> None:
    """Open a Spark SQL session in which all topics and loaded tables are views.

    A topic is the view TOPIC, a topic of a loaded table is NAME_TOPIC; names with other characters than letters, digits
    and _ stand in backquotes. Each statement reads what there is when it runs.
    """
    from ..session import local_session, require_spark

    require_spark("barnabas sql")
    from .spark_sql import converse, define_views, run_statement, statements
    from .tables import files_by_topic

    format_ = chosen_format(format_, None)
    if statement is not None and file is not None:
        raise ConfigError("give one of -e and -f")
    if bootstrap:
        check_reachable(bootstrap)
    if from_bucket:
        _check_bucket(from_bucket, bootstrap)
    folders = named_folders(tables or [])
    for folder in folders.values():
        files_by_topic(folder)  # says what is no table before Spark starts, which takes long
    text = statement
    if file is not None:
        text = file.read_text(encoding="utf-8")
    elif text is None and not sys.stdin.isatty():
        text = sys.stdin.read()
    client = client_settings(None, settings)
    with local_session("barnabas sql", cores=cores, memory=memory, quick=text is not None) as spark:
        names = define_views(spark, bootstrap, client, folders, bucket=from_bucket)
        if text is None:
            typer.echo(f"views: {', '.join(names)}; a statement ends with a semicolon, the session with exit", err=True)
            converse(spark, format_, lambda error: typer.echo(error, err=True))
            return
        for each in statements(text):
            run_statement(spark, each, format_)
