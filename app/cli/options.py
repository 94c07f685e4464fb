"""Options that several commands share."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ...ports.errors import ConfigError
from .client_files import read_client_file

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
        help="A broker of the cluster; classic://HOST:PORT: of a classic one.",
        envvar="BARNABAS_BOOTSTRAP",
    ),
]
BrokerList = Annotated[
    str | None, typer.Option("--broker-list", metavar="ID:HOST:PORT,...", help="Classic brokers instead of it.")
]
ZkConnect = Annotated[
    str | None,
    typer.Option("--zk-connect", metavar="HOST:PORT/CHROOT", help="Classic brokers that are registered in ZooKeeper."),
]
EtcdConnect = Annotated[
    str | None,
    typer.Option("--etcd-connect", metavar="HOST:PORT/PREFIX", help="Classic brokers that are registered in etcd."),
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
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be given again.")
]
ClientConfig = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings of the client: TOML, or key=value lines as Kafka's tools."),
]
SkipDamaged = Annotated[
    bool,
    typer.Option("--skip-damaged", help="Go on behind damaged messages and tell which offsets were left out."),
]
IsolationLevel = Annotated[
    str | None,
    typer.Option(
        "--isolation-level", metavar="LEVEL", help="read_committed: without the messages of aborted transactions."
    ),
]


PATIENCE_MS = 10_000
"""How long a command waits for a cluster that does not answer: a person is waiting for the command."""


def open_admin(bootstrap: str) -> "Admin":
    """An `Admin` that gives up after `PATIENCE_MS`. Raises `BarnabasError` for a host that is not there."""
    from ..clients.admin.admin import Admin
    from .reaching import check_reachable

    check_reachable(bootstrap)
    return Admin(bootstrap, default_api_timeout_ms=PATIENCE_MS)


def parse_settings(pairs: Iterable[str] | None) -> dict[str, str]:
    """`["a=1", "b=x=y"]` → `{"a": "1", "b": "x=y"}`. Raises `ConfigError`."""
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{pair!r} is not KEY=VALUE")
        settings[key.strip()] = value
    return settings


def client_settings(file: Path | None, pairs: Iterable[str] | None) -> dict[str, Any]:
    """Those of the file (where the brokers are stands in --bootstrap), and over them those of `--set`.

    Raises `ConfigError`.
    """
    settings = {} if file is None else read_client_file(file)
    settings.pop("bootstrap.servers", None)
    return {**settings, **parse_settings(pairs)}


def reading_settings(settings: dict[str, Any], *, skip_damaged: bool, isolation_level: str | None) -> dict[str, Any]:
    """The settings, with what the options say."""
    if isolation_level is not None:
        settings = {**settings, "isolation.level": isolation_level}
    return {**settings, "skip.damaged": "true"} if skip_damaged else settings


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table for a person: aligned columns, no frames, also readable by `awk`."""
    header = [column.upper() for column in columns]
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


class Advance(Protocol):
    """Tells how far the work has come, in the unit of `total`; None leaves total and label as they are."""

    def __call__(self, done: float, total: float | None = None, label: str | None = None) -> None: ...


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Advance]:
    """A progress bar on standard error where a person waits at a terminal; nothing otherwise.

    Yields a function to call as the work goes on. `total` None: not known yet.
    """
    if not sys.stderr.isatty():
        yield _nobody_waits
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


def _nobody_waits(done: float, total: float | None = None, label: str | None = None) -> None:
    """There is no terminal to show progress on."""


def describe(mapping: Mapping[str, object]) -> str:
    """`{"a": 1, "b": 2}` → `a=1, b=2`."""
    return ", ".join(f"{key}={value}" for key, value in sorted(mapping.items()))
