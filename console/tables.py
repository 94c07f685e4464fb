"""Describes the tables of a warehouse, in a process of its own: Arrow would stay in the memory of the console."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .. import BarnabasError, ConfigError
from ..app.extras import require
from ..ports.values import frozen

TABLES_MAX = 200
"""The tables of a warehouse that are described."""
COMMITS_MAX = 50
"""The newest commits of each table that are described."""
_PATIENCE_S = 600.0
_ERROR_CHARS = 1_000
_PROGRAM = f"from {__name__} import main; main()"


@frozen(kw_only=True)
class TableCommit:
    """A commit of a table, with the numbers of rows and files that it added and removed."""

    number: int
    created_ms: int
    operation: str
    rows: int
    replaced_rows: int
    files: int
    removed: int


@frozen(kw_only=True)
class TableRow:
    """A table of the warehouse; `description` is None where it cannot be read, then `problem` says why."""

    name: str
    description: Any
    problem: str
    commits: Sequence[TableCommit] = ()


def table_snapshot(warehouse: str) -> tuple[int, Sequence[TableRow]]:
    """Return the time, and the tables in the folder, or the table that the folder is. Raises `BarnabasError`."""
    require("tables", ("pyarrow",), "tables")
    if not Path(warehouse).is_dir():
        raise ConfigError(f"--warehouse {warehouse}: no such folder")
    command = [sys.executable, "-c", _PROGRAM, warehouse]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BarnabasError(f"the tables were not described: {error}") from error
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise BarnabasError(f"the tables were not described: {text[-_ERROR_CHARS:]}")
    return time.time_ns() // 1_000_000, pickle.loads(done.stdout)


def main() -> None:
    """Write the pickled descriptions of the tables in the folder that the command line names."""
    sys.stdout.buffer.write(pickle.dumps(_describe_tables(Path(sys.argv[1]))))


def _describe_tables(warehouse: Path) -> Sequence[TableRow]:
    own = _row(warehouse)
    if own.description is not None:
        return [own]
    folders = sorted(each for each in warehouse.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
    return [_row(each) for each in folders[:TABLES_MAX]]


def _row(folder: Path) -> TableRow:
    from ..pipeline.tables.formats import open_store
    from ..pipeline.tables.upkeep.describe import describe_table

    try:
        store = open_store(folder)
        description = describe_table(store)
        commits = [
            TableCommit(
                number=each.number,
                created_ms=each.created_ms,
                operation=str(each.operation),
                rows=each.rows,
                replaced_rows=each.replaced_rows,
                files=len(each.files),
                removed=len(each.removed),
            )
            for each in islice(store.history(), COMMITS_MAX)
        ]
    except (BarnabasError, OSError) as error:
        return TableRow(name=folder.name, description=None, problem=str(error))
    return TableRow(name=folder.name, description=description, problem="", commits=commits)
