"""Output of query results for people and programs: as a table in the terminal, CSV, JSON lines, or a file."""

import csv
import json
import sys
from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any

from ...app.cli.options import print_table
from ...ports.errors import ConfigError

FORMATS = ("table", "csv", "json", "parquet")
TABLE_ROWS = 1000
_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_BATCH_ROWS = 10_000


def chosen_format(named: str | None, out: Path | None) -> str:
    """Return the named format, or the one of the file's suffix. Raises `ConfigError`."""
    if named is not None and named not in FORMATS:
        raise ConfigError(f"--format is one of {', '.join(FORMATS)}, not {named!r}")
    found = named or ("table" if out is None else _SUFFIXES.get(out.suffix.lower(), ""))
    if out is not None and found in ("", "table"):
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
    """Print the rows; of a table in the terminal the first thousand."""
    if format_ == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(each) for each in row] for row in rows)
    elif format_ == "json":
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(names, row, strict=True)), default=_plain, ensure_ascii=False) + "\n")
    else:
        shown = []
        for number, row in enumerate(rows):
            if number == TABLE_ROWS:
                sys.stderr.write(f"only the first {TABLE_ROWS} rows; all of them with --format csv or --out FILE\n")
                break
            shown.append(tuple("" if each is None else _text(each) for each in row))
        print_table(names, shown)


def rows_of(relation: Any) -> Iterable[tuple[Any, ...]]:
    """The rows of a relation of DuckDB, as they come."""
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
