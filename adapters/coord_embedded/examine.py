"""Examine the file of a tree without using it, and rewrite it from its readable nodes."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from ...core.tree.tree import Put, Tree
from ...ports.errors import BarnabasError
from .store import APPLICATION_ID, SCHEMA_VERSION, NodeStore

NodeRow = tuple[str, bytes, int]
"""Path, data, version."""

_COMPANION_SUFFIXES = ("-wal", "-shm")
_BACKUP_SUFFIX = ".aside"
_MADE = ".mended"
_PROBLEMS_MAX = 20


class Looked(NamedTuple):
    """The damage of a file, and its readable nodes."""

    problems: list[str]
    rows: list[NodeRow]


def look_at(path: Path) -> Looked:
    """Look at a copy of the file, so that a broker is not disturbed and no file is created. Raises `OSError`."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as scratch:
        copy = Path(scratch) / path.name
        for suffix in ("", *_COMPANION_SUFFIXES[:1]):  # the shared memory is made from the log
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as connection:
                return _examined(connection)
        except sqlite3.Error as error:
            return Looked([str(error)], [])


def _examined(connection: sqlite3.Connection) -> Looked:
    problems: list[str] = []
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = [text for (text,) in connection.execute(f"PRAGMA integrity_check({_PROBLEMS_MAX})")]
        problems += [text for text in found if text != "ok"]
        if application_id != APPLICATION_ID:
            problems.append("it is an SQLite file of another program")
        elif version != SCHEMA_VERSION:
            problems.append(f"its format is {version}, and {SCHEMA_VERSION} is known here")
    except sqlite3.Error as error:
        problems.append(str(error))
    rows = _rows(connection)
    nodes = _as_tree(rows.values())
    for path in sorted(set(rows) - {path for path, _, _ in nodes}):
        problems.append(f"the node {path!r} is none")
    return Looked(problems, nodes)


def _rows(connection: sqlite3.Connection) -> dict[str, NodeRow]:
    """Return the readable nodes: forwards up to the damage, and backwards down to it."""
    found: dict[str, NodeRow] = {}
    for order in ("rowid", "rowid DESC", "path", "path DESC"):
        with suppress(sqlite3.Error):
            for row in _each(connection, order):
                found.setdefault(str(row[0]), row)
            break  # all of them
    return found


def _each(connection: sqlite3.Connection, order: str) -> Iterator[NodeRow]:
    yield from connection.execute(f"SELECT path, data, version FROM node ORDER BY {order}")


def _as_tree(rows: Iterable[NodeRow]) -> list[NodeRow]:
    """Return the rows that are nodes of a tree."""
    tree, readable = Tree(), list[NodeRow]()
    for row in sorted(rows, key=lambda row: str(row[0])):
        try:
            path, data, version = row
            tree.apply([*tree.plan_create(path, data)[:-1], Put(path=path, data=data, version=version)])
        except (BarnabasError, ValueError, TypeError, AttributeError):
            continue
        readable.append(row)
    return readable


def rewrite_file(path: Path, rows: list[NodeRow]) -> Path:
    """Rewrite the file with these nodes, and return the new name of the old one.

    No process may have it open. Raises `CoordinationError`, `OSError`.
    """
    made = Path(f"{path}{_MADE}")
    for suffix in ("", *_COMPANION_SUFFIXES):
        Path(f"{made}{suffix}").unlink(missing_ok=True)
    store = NodeStore(str(made))
    try:
        store.save([Put(path=name, data=data, version=version) for name, data, version in rows])
    finally:
        store.close()
    backup, number = Path(f"{path}{_BACKUP_SUFFIX}"), 1
    while backup.exists():
        number += 1
        backup = Path(f"{path}{_BACKUP_SUFFIX}-{number}")
    try:
        shutil.copyfile(path, backup)  # first: where there is no room for it all stays as it was
    except OSError:
        for each in (backup, made):
            each.unlink(missing_ok=True)
        raise
    for suffix in _COMPANION_SUFFIXES:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{backup}{suffix}")
    made.replace(path)
    return backup
