"""`barnabas log`: look at the files of a broker, running or not, and look after them."""

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...ports.errors import ConfigError
from ...ports.words import Buffer
from .log_check import add_check_commands
from .log_entries import as_lines, entries
from .options import AsJson, print_json

log = typer.Typer(help="Look at the files of a log, check and mend them: dump, verify, repair.", no_args_is_help=True)
add_check_commands(log)

_LOG_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|kafka)")


def register(app: typer.Typer) -> None:
    app.add_typer(log, name="log")


@log.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of a log, or folders with them.")],
    records: Annotated[bool, typer.Option("--records", help="Print the messages too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the batches or classic messages of segments and the entries of indexes."""
    for path in _log_files(paths):
        base_offset, kind = _name(path)
        with _mapped(path) as content:
            found = entries(content, kind, base_offset, records=records)
            if as_json:
                print_json({"file": str(path), "entries": list(found)})
                continue
            typer.echo(f"{path}  {len(content)} bytes")
            for fields in found:
                for line in as_lines(fields):
                    typer.echo(f"  {line}")


def _log_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and _LOG_FILE.fullmatch(p.name))
            if not found:
                raise ConfigError(f"{path} holds no segments; give a partition's folder or a broker's data folder")
            yield from found
        elif not path.exists():
            raise ConfigError(f"{path} does not exist")
        else:
            _name(path)
            yield path


def _name(path: Path) -> tuple[int, str]:
    match = _LOG_FILE.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"{path} is no file of a log (20 digits and .log, .index, .timeindex or .kafka)")
    return int(match[1]), match[2]


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    """The content of a file without reading all of it into memory."""
    if path.stat().st_size == 0:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
