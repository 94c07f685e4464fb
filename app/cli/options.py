"""Options that several commands share."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ...ports.errors import ConfigError
from .client_files import parse_settings, read_client_file
from .command_config import connection_settings, refuse_secrets

if TYPE_CHECKING:
    from ..clients.admin.admin import Admin

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", help="A broker of the cluster.", envvar="BARNABAS_BOOTSTRAP"
    ),
]
AnyBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker of the cluster; classic://HOST:PORT for a classic cluster.",
        envvar="BARNABAS_BOOTSTRAP",
    ),
]
BrokerList = Annotated[
    str | None,
    typer.Option("--broker-list", metavar="ID:HOST:PORT,...", help="Classic brokers instead of --bootstrap."),
]
ZkConnect = Annotated[
    str | None,
    typer.Option("--zk-connect", metavar="HOST:PORT/CHROOT", help="Classic brokers registered in ZooKeeper."),
]
EtcdConnect = Annotated[
    str | None,
    typer.Option("--etcd-connect", metavar="HOST:PORT/PREFIX", help="Classic brokers registered in etcd."),
]
Coordination = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="URL",
        help="Classic brokers registered at zookeeper://..., etcd://... or the URL of a plug-in.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Execute = Annotated[bool, typer.Option("--execute", help="Really do it; without it, only show what would change.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal there is no question.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the changes, and make none.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be repeated.")
]
ClientConfig = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Client settings: TOML, or key=value lines."),
]
SkipDamaged = Annotated[
    bool,
    typer.Option("--skip-damaged", help="Skip corrupt records and report the skipped offsets."),
]
IsolationLevel = Annotated[
    str | None,
    typer.Option(
        "--isolation-level", metavar="LEVEL", help="read_committed excludes messages of aborted transactions."
    ),
]
FromBucket = Annotated[
    str,
    typer.Option(
        "--from-bucket",
        metavar="URL",
        help="The cluster's remote storage, s3://BUCKET/PREFIX or file:///PATH: what brokers have only there is read "
        "past them. Keys and endpoint of S3 come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
        "AWS_ENDPOINT, AWS_REGION).",
    ),
]


PATIENCE_MS = 10_000
"""Timeout of a command for a cluster that does not answer, while a person waits."""


def open_admin(bootstrap: str, patience_ms: int = PATIENCE_MS) -> "Admin":
    """Return an `Admin` that gives up after `patience_ms`. Raises `BarnabasError` for an unreachable host."""
    from ..clients.admin.admin import Admin
    from .reaching import check_reachable

    check_reachable(bootstrap)
    patience = {"default.api.timeout.ms": patience_ms}
    if patience_ms > PATIENCE_MS:
        patience["request.timeout.ms"] = patience_ms
    return Admin(bootstrap, config={**patience, **connection_settings()})


def client_settings(file: Path | None, pairs: Iterable[str] | None) -> dict[str, Any]:
    """Return the settings of `--command-config` and of the file, except its brokers (see --bootstrap), overridden by
    those of `--set`.

    Raises `ConfigError`, also for a secret on the command line.
    """
    settings = {} if file is None else read_client_file(file)
    settings.pop("bootstrap.servers", None)
    given = parse_settings(pairs)
    refuse_secrets(given.keys(), "--set")
    return {**connection_settings(), **settings, **given}


def reading_settings(settings: dict[str, Any], *, skip_damaged: bool, isolation_level: str | None) -> dict[str, Any]:
    """Return the settings with those of the options."""
    if isolation_level is not None:
        settings = {**settings, "isolation.level": isolation_level}
    return {**settings, "skip.damaged": "true"} if skip_damaged else settings


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table for a person: aligned columns, no frames, also readable by `awk`."""
    header = [column.upper() for column in columns]
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


Row = Mapping[str, Any]


def print_rows(
    columns: Iterable[str],
    rows: Sequence[Row],
    as_json: bool,
    cells: Callable[[Row], Iterable[object]] = lambda row: row.values(),
) -> None:
    """Print what a command lists, adds or removes: as JSON objects, or as a table of the `cells` of each row."""
    if as_json:
        print_json([dict(row) for row in rows])
    else:
        print_table(columns, map(cells, rows))


def check_known(wanted: Iterable[str], known: Iterable[str], otherwise: str) -> None:
    """Raise `ConfigError` with the text and the names that are unknown, if there are some."""
    if missing := sorted(set(wanted) - set(known)):
        raise ConfigError(f"{otherwise} {', '.join(missing)}")


def asks(*, yes: bool) -> bool:
    """Return True if a command asks before it deletes: on a terminal, without --yes. Scripts are not asked."""
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, yes: bool, answers: Collection[str] = ("y", "Y", "yes", "Yes")) -> None:
    """Ask, if the command `asks`, and end it with 1 unless the answer is one of `answers`."""
    if not asks(yes=yes):
        return
    answer: str = typer.prompt(question, default="", show_default=False, err=True)
    if answer.strip() not in answers:
        typer.echo("barnabas: nothing was deleted", err=True)
        raise typer.Exit(1)


class Advance(Protocol):
    """Reports progress in the unit of `total`; None leaves total and label unchanged."""

    def __call__(self, done: float, total: float | None = None, label: str | None = None) -> None: ...


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Advance]:
    """Show a progress bar on standard error if it is a terminal.

    Yields a function to report progress. `total` is None if it is unknown.
    """
    if not sys.stderr.isatty():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    parts = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*parts, console=console) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: float, total: float | None = None, label: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield advance


def _no_progress(done: float, total: float | None = None, label: str | None = None) -> None:
    """Ignore the progress without a terminal."""


def describe(mapping: Mapping[str, object]) -> str:
    """Format `{"a": 1, "b": 2}` → `a=1, b=2`."""
    return ", ".join(f"{key}={value}" for key, value in sorted(mapping.items()))
