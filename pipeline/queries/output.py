"""Output of query results for people and programs: in the terminal, as CSV, as JSON lines, or in a file."""

import csv
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from ...ports.errors import ConfigError

FORMATS = ("table", "vertical", "csv", "json", "parquet")
FITTING = "fitting"
"""The format without a choice: a table, or vertical where the columns of a table would be too narrow."""
TABLE_ROWS = 1000
LEGIBLE_CHARACTERS = 16
"""A table whose columns are narrower than this, and than their values, is not legible."""
_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_BATCH_ROWS = 10_000


def chosen_format(named: str | None, out: Path | None) -> str:
    """Return the named format, or the one of the file's suffix. Raises `ConfigError`."""
    if named is not None and named not in FORMATS:
        raise ConfigError(f"--format is one of {', '.join(FORMATS)}, not {named!r}")
    found = named or (FITTING if out is None else _SUFFIXES.get(out.suffix.lower(), ""))
    if out is not None and found in ("", "table", "vertical"):
        raise ConfigError(f"say with --format what {out} is to be: csv, json or parquet")
    if out is None and found == "parquet":
        raise ConfigError("Parquet goes to a file: give --out FILE")
    return found


def write_file(connection: Any, sql: str, out: Path, format_: str) -> int:
    """Write the rows to a file, which DuckDB does as they come; returns how many. A file that fails is not left."""
    options = {"csv": "format csv, header", "json": "format json", "parquet": "format parquet, compression zstd"}
    target = str(out).replace("'", "''")
    body = sql.strip().rstrip(";")
    try:
        (rows,) = connection.execute(f"copy (\n{body}\n) to '{target}' ({options[format_]})").fetchall()[0]
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    return int(rows)


def print_rows(names: list[str], rows: Iterable[tuple[Any, ...]], format_: str) -> None:
    """Print the rows; for people the first thousand, in the width of the terminal if there is one."""
    if format_ == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(each) for each in row] for row in rows)
    elif format_ == "json":
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(names, row, strict=True)), default=_plain, ensure_ascii=False) + "\n")
    else:
        some = iter(rows)
        shown = [[_shown(each) for each in row] for row in islice(some, TABLE_ROWS)]
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in _vertical(names, shown) if format_ == "vertical" else _lines(names, shown, width, format_):
            typer.echo(line)
        if next(some, None) is not None:
            sys.stderr.write(f"only the first {TABLE_ROWS} rows; all of them with --format csv or --out FILE\n")


def _lines(names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, format_: str) -> Iterator[str]:
    """Yield the lines of a table, cells cut so that they fit into the width; vertical ones if that is not legible."""
    cells = [[*names], *([_on_one_line(each) for each in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        widest = _widest(widths, width - 2 * (len(widths) - 1))
        if widest < LEGIBLE_CHARACTERS and max(widths, default=0) > widest and format_ == FITTING:
            yield from _vertical(names, rows)
            return
        widths = [min(each, max(widest, 1)) for each in widths]
    for line in cells:
        text = "  ".join(_padded(cell, each) for cell, each in zip(line, widths, strict=True)).rstrip()
        yield text if width is None else _cut(text, width)


def _widest(widths: Sequence[int], room: int) -> int:
    """Return the largest width to which columns must be cut so that all of them have room: narrow ones stay whole."""
    left, count = room, len(widths)
    for each in sorted(widths):
        if each * count > left:
            return max(0, left // count)
        left, count = left - each, count - 1
    return max(widths, default=0)


def _vertical(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each value, below a line for each row."""
    widest = max(map(_width, names), default=0)
    for number, row in enumerate(rows, start=1):
        yield f"-- row {number}"
        for name, value in zip(names, row, strict=True):
            first, *more = value.split("\n")
            yield f"{_padded(name, widest)}  {first}".rstrip()
            yield from (f"{'':{widest}}  {each}".rstrip() for each in more)


def _padded(text: str, width: int) -> str:
    cut = _cut(text, width)
    return cut + " " * (width - _width(cut))


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return text if _width(text) <= width else set_cell_size(text, width - 1) + "…"


def _width(text: str) -> int:
    """Return how many characters wide the terminal shows the text: some letters are two."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def _shown(value: Any) -> str:
    return "" if value is None else str(_text(value))


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def rows_of(relation: Any) -> Iterable[tuple[Any, ...]]:
    """Yield the rows of a relation of DuckDB, as they come."""
    while rows := relation.fetchmany(_BATCH_ROWS):
        yield from rows


def _text(value: Any) -> Any:
    """Turn structures, times and bytes into text, for people and CSV; null stays None."""
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    if isinstance(value, datetime | date | bytes):
        return _plain(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
