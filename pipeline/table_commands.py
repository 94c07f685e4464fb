"""`barnabas table`: look at a loaded table, and keep it in good order."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import asdict

from ..app.cli.options import AsJson, Execute, print_json, print_table, progress
from ..app.cli.times import age_text, parse_time_ms
from ..app.extras import require
from ..ports.report import counted
from .session import SPARK_PACKAGES

if TYPE_CHECKING:
    from .tables.state import TopicState
    from .tables.store import TableStore

table = typer.Typer(help="Look at a loaded table, and keep it in good order.", no_args_is_help=True)

_MB = 1024 * 1024

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The table's folder.")]


def register_table(app: typer.Typer) -> None:
    app.add_typer(table, name="table")


@table.command("describe")
def describe_(folder: Folder, as_json: AsJson = False) -> None:
    """Format, layout, rows, files, offsets of each partition, damage, and how old the newest row is."""
    from .tables.upkeep.describe import describe_table

    with _opened(folder) as store, progress(f"describe {folder}", None) as advance:
        found = describe_table(store, progress=advance)
    age = None if found.newest_ms is None else max(0, time.time_ns() // 1_000_000 - found.newest_ms)
    if as_json:
        print_json({**asdict(found), "newest_ms": found.newest_ms, "age_ms": age})
        return
    typer.echo(f"{found.folder}: {found.format}, laid out by {', '.join(found.layout) or 'nothing yet'}")
    typer.echo(f"commit {found.commit} of {_moment(found.committed_ms)}")
    typer.echo("no row yet" if age is None else f"newest row {age_text(age)} old: {_moment(found.newest_ms)}")
    rows = [
        (each.topic, each.rows, each.files, each.size_bytes, _moment(each.oldest_ms), _moment(each.newest_ms),
         " ".join(f"{partition}:{offset}" for partition, offset in each.next_offsets.items()))
        for each in found.topics
    ]  # fmt: skip
    print_table(("topic", "rows", "files", "bytes", "oldest", "newest", "next offsets"), rows)
    for text in found.damaged:
        typer.echo(f"not in the table, since it was damaged: {text}")


@table.command("history")
def history(
    folder: Folder,
    limit: Annotated[int, typer.Option(min=1, help="Number of the newest commits.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The commits, newest first: what each did, and how far the topics were loaded after it."""
    from itertools import islice

    with _opened(folder) as store:
        store.finish_commit()
        commits = list(islice(store.history(), limit))
    if as_json:
        print_json([asdict(each) for each in commits])
        return
    rows = [
        (each.number, _moment(each.created_ms), each.operation, each.rows, each.replaced_rows, len(each.files),
         len(each.removed), " ".join(f"{name}:{_reached(state)}" for name, state in each.topics.items()))
        for each in commits
    ]  # fmt: skip
    print_table(("commit", "time", "operation", "rows", "rows gone", "files", "files gone", "offsets in all"), rows)


@table.command("compact")
def compact_(
    folder: Folder,
    target_mb: Annotated[int, typer.Option("--target-mb", min=1, help="How large a file should be, in MiB.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Make few large files of the many small ones that loads leave in a partition. Rows and offsets stay."""
    from .tables.upkeep.maintenance import compact

    with _changed(folder) as store, progress(f"compact {folder}", None) as advance:
        done = compact(store, target_bytes=target_mb * _MB, progress=advance)
    if as_json:
        print_json(asdict(done))
    elif done.commit is None:
        typer.echo("nothing to do")
    else:
        sizes = f"{done.bytes_before} to {done.bytes_after} bytes"
        typer.echo(f"{counted(done.files_before, 'file')} became {done.files_after}, {sizes}, commit {done.commit}")


@table.command("delete-before")
def delete_before_(
    folder: Folder,
    before: Annotated[str, typer.Argument(metavar="TIME", help="2026-01-31[T12:00][Z], milliseconds, or an age: 90d.")],
    topics: Annotated[
        list[str] | None, typer.Option("--topics", metavar="TOPIC[,TOPIC...]", help="Only of these; default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete the rows whose records are older. The offsets stay, so that no later load brings them again."""
    from .tables.upkeep.maintenance import delete_before

    before_ms = parse_time_ms(before, "TIME")
    names = {name for group in topics or () for name in group.split(",") if name}
    with _changed(folder) as store, progress(f"delete from {folder}", None) as advance:
        done = delete_before(store, before_ms, topics=names, progress=advance)
    if as_json:
        print_json({**asdict(done), "before_ms": before_ms})
    elif done.commit is None:
        typer.echo(f"no row is older than {_moment(before_ms)}")
    else:
        files = f"files gone: {done.files}, rewritten: {done.rewritten}"
        typer.echo(
            f"{counted(done.rows, 'row')} from before {_moment(before_ms)} deleted: {files}, commit {done.commit}"
        )


@table.command("vacuum")
def vacuum(
    folder: Folder,
    before: Annotated[
        str, typer.Option(metavar="TIME", help="Versions that were replaced before then go: a time, or an age.")
    ] = "7d",
    execute: Execute = False,
    as_json: AsJson = False,
    run: Annotated[bool, typer.Option("--run", hidden=True, help="The earlier name of --execute.")] = False,
) -> None:
    """Remove the files that no version of the table since a time needs. Shows them, unless --execute is given.

    Who reads an older version, or began to read before that time, finds its files gone.
    """
    before_ms, execute = parse_time_ms(before, "--before"), execute or run
    with _changed(folder) as store:
        store.finish_commit()
        sizes = {name: _size(folder / name) for name in store.vacuum(before_ms, dry_run=True)}
        names = store.vacuum(before_ms, dry_run=False) if execute else list(sizes)
    in_all = sum(sizes.get(name, 0) for name in names)
    if as_json:
        print_json({"before_ms": before_ms, "removed": execute, "files": list(names), "bytes": in_all})
        return
    for name in names:
        typer.echo(name)
    what = "removed" if execute else "to remove; add --execute to do it"
    typer.echo(f"{counted(len(names), 'file')}, {in_all} bytes {what}", err=True)


@table.command("convert")
def convert(
    folder: Folder,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="delta or iceberg.")],
    catalog: Annotated[
        str, typer.Option(metavar="URI", help="Of Iceberg: a REST or SQL catalog. Default: SQLite in the folder.")
    ] = "",
    name: Annotated[
        str, typer.Option("--table", metavar="NAMESPACE.NAME", help="Of Iceberg. Default: barnabas.FOLDER.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a table in another format of a Parquet table, in place: its files stay as they are."""
    from .tables.state import plain_os_errors
    from .tables.upkeep.maintenance import convert_table

    with plain_os_errors(folder), progress(f"convert {folder}", None):
        done = convert_table(folder, to, catalog=catalog, table=name)
    if as_json:
        print_json({"format": to, "commit": done.number, "files": len(done.files)})
    else:
        typer.echo(f"{folder} is a table in format {to} now: {counted(len(done.files), 'file')}, commit {done.number}")


@contextmanager
def _opened(folder: Path) -> Iterator["TableStore"]:
    require("a table", SPARK_PACKAGES, "spark")
    from .tables.formats import open_store
    from .tables.state import plain_os_errors

    with plain_os_errors(folder):
        yield open_store(folder)


@contextmanager
def _changed(folder: Path) -> Iterator["TableStore"]:
    with _opened(folder) as store:
        store.finish_commit()
        with store.locked():
            store.recover()
            yield store


def _reached(state: "TopicState") -> int:
    return sum(state.next_offsets.values())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _moment(ms: int | None) -> str:
    return "-" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
