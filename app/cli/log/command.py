"""`barnabas log`: dump, check and repair the files of a broker, running or not."""

import json
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.types import Buffer
from .check import add_check_commands
from .entries import SMALL_FILES, RecordDecoder, as_lines, entries, small_file_entries
from .stats import stats

log = typer.Typer(help="Dump, check, repair and summarize the files of a log.", no_args_is_help=True)
add_check_commands(log)
log.command()(stats)

_LOG_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot|kafka)")


def register(app: typer.Typer) -> None:
    app.add_typer(log, name="log")


@log.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of a log, or folders of them.")],
    records: Annotated[bool, typer.Option("--records", help="Print the messages too.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets-decoder", help="The messages of __consumer_offsets, decoded.")
    ] = False,
    transactions: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="The messages of __transaction_state, decoded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each entry.")] = False,
) -> None:
    """Print the content of segments (batches or classic messages), indexes, snapshots and checkpoints."""
    decoder = _decoder(offsets=offsets, transactions=transactions)
    for path in _log_files(paths):
        with _mapped(path) as content:
            found = _LOG_FILE.fullmatch(path.name)
            if found is None:
                printed, kind = small_file_entries(bytes(content), path.name), path.name
            else:
                base_offset, kind = int(found[1]), found[2]
                with_records = records or decoder is not None
                printed = entries(content, kind, base_offset, records=with_records, decoder=decoder)
            if not as_json:
                typer.echo(f"{path}  {counted(len(content), 'byte')}")
            for fields in printed:
                if as_json:
                    typer.echo(json.dumps({"file": str(path), "type": kind, **fields}, ensure_ascii=False))
                    continue
                for line in as_lines(fields):
                    typer.echo(f"  {line}")


def _decoder(*, offsets: bool, transactions: bool) -> RecordDecoder | None:
    if offsets and transactions:
        raise ConfigError("--offsets-decoder and --transaction-log-decoder are for different topics; give one of them")
    if not (offsets or transactions):
        return None
    from . import decoders

    return decoders.offsets if offsets else decoders.transactions


def _log_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and _is_log_file(p))
            if not found:
                raise ConfigError(f"{path} has no segments; give a partition folder or a broker's data folder")
            yield from found
        elif not path.exists():
            raise ConfigError(f"{path} does not exist")
        elif not _is_log_file(path):
            raise ConfigError(f"{path} is not a file of a log (20 digits and .log, .index and so on, or a checkpoint)")
        else:
            yield path


def _is_log_file(path: Path) -> bool:
    return path.name in SMALL_FILES or _LOG_FILE.fullmatch(path.name) is not None


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    """Map the content of a file into memory."""
    if path.stat().st_size == 0:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
