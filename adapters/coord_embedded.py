"""The coordination tree in an SQLite file, for one broker: all nodes in memory, persistent ones also in the file.

One process holds the file at a time. `look_at` examines it without using it, and `rewrite_file` rewrites it from its
readable nodes.
"""

import math
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import RLock
from traceback import format_exception
from typing import TYPE_CHECKING, NamedTuple

from ..core.tree.tree import Change, Put, Remove, Tree, check_path
from ..ports.coordination import Cancel, CoordinationError, Node, NodeChange, SessionState
from ..ports.errors import BarnabasError, ClosedError
from .watch_delivery import WatchDelivery, write_to_stderr

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


NodeRow = tuple[str, bytes, int]
"""Path, data, version."""

_COMPANION_SUFFIXES = ("-wal", "-shm")
_BACKUP_SUFFIX = ".aside"
_MADE = ".repaired"
_PROBLEMS_MAX = 20


class Looked(NamedTuple):
    """The damage of a file, and its readable nodes."""

    problems: list[str]
    rows: list[NodeRow]


def look_at(path: Path) -> Looked:
    """Look at a copy of the file, so that a broker is not disturbed and no file is created. Raises `OSError`."""
    import shutil  # a start of a broker needs neither
    import tempfile

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
        import shutil

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


APPLICATION_ID = 0x42524E42
"""Marks the file as ours (SQLite's `application_id`)."""
SCHEMA_VERSION = 1
CURE = "move it away, and let 'barnabas topics recover' create it again"


class NodeStore:
    """Rows of (path, data, version). Every call raises `CoordinationError` when SQLite fails. Not thread-safe."""

    def __init__(self, path: str) -> None:
        """Open or make the file, and hold it until `close` or the end of the process.

        Write-ahead log with a sync per commit (`synchronous=FULL`): what `save` returned from survives a power cut.
        """
        self.path = path
        self._make_private()
        try:
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            self._prepare()
        except (sqlite3.Error, CoordinationError) as error:
            self._connection.close()
            raise self._failure(error) from error

    def _make_private(self) -> None:
        """Create the file, or change it, so that only its owner reads it: credentials of users and tokens are in it.

        SQLite gives its other files the same mode. An existing file is not opened: to close it would release the
        locks that SQLite has on it in this process.
        """
        if self.path == ":memory:":
            return
        with suppress(OSError):  # SQLite reports what is wrong with the path
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                for file in (Path(self.path), Path(f"{self.path}-wal"), Path(f"{self.path}-shm")):
                    if file.stat().st_mode & 0o077:
                        file.chmod(0o600)

    def load(self) -> list[tuple[str, bytes, int]]:
        """Return all stored nodes as (path, data, version)."""
        try:
            return self._connection.execute("SELECT path, data, version FROM node").fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def save(self, changes: Sequence[Change]) -> None:
        """Store the changes to persistent nodes, all or none, durably. Ephemeral nodes are not stored at all."""
        writes = [change for change in changes if not (isinstance(change, Put) and change.owner is not None)]
        if not writes:
            return
        try:
            self._connection.execute("BEGIN")
            for change in writes:
                if isinstance(change, Put):
                    row = (change.path, change.data, change.version)
                    self._connection.execute("INSERT OR REPLACE INTO node (path, data, version) VALUES (?, ?, ?)", row)
                else:
                    self._connection.execute("DELETE FROM node WHERE path = ?", (change.path,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(error)
            raise self._failure(error, Path(self.path).name) from error  # clients read it: no paths of this machine
        self._move_into_the_main_file()

    def _move_into_the_main_file(self) -> None:
        """Move commits, durable in any case, into the main file, so that a copy of that file alone has them."""
        with suppress(sqlite3.Error):  # a full disk: the next change, or the next opening, does it
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _roll_back(self, cause: sqlite3.Error) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                cause.add_note(f"and the roll-back failed: {error}")

    def close(self) -> None:
        """Give the file back; everything is in the main file then, and there is no separate log."""
        self._connection.close()

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application_id != APPLICATION_ID and tables:
            raise CoordinationError("it is an SQLite file of another program")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("BEGIN EXCLUSIVE")
        (schema_version,) = execute("PRAGMA user_version").fetchone()
        if schema_version > SCHEMA_VERSION:
            raise CoordinationError(f"its format {schema_version} is newer than the {SCHEMA_VERSION} known here")
        if schema_version == 0:
            execute("CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL)")
            execute(f"PRAGMA application_id = {APPLICATION_ID}")
            execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        execute("COMMIT")

    def _failure(self, error: Exception, name: str = "") -> CoordinationError:
        name = name or self.path
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return CoordinationError(f"{name} is in use by another broker; stop it or choose another folder")
        cure = f"; {CURE}" if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else ""
        return CoordinationError(f"the coordination file {name} cannot be used: {error}{cure}")


_THIS_PROCESS = 1


class EmbeddedCoordination:
    """Fulfils `ports.coordination.Coordination` with a file; the session lasts as long as the file is open.

    Reads come from memory. A write waits for the disk: mostly a millisecond, on a busy disk much longer. Ephemeral
    nodes live in memory only: those of a process that died are gone at the next opening. `deliver` runs callbacks one
    at a time, later; by default a thread does. `report` gets the callbacks that raised.
    """

    blocking = True

    def __init__(
        self,
        path: str,
        *,
        deliver: Callable[[Callable[[], None]], None] | None = None,
        report: Callable[[str], None] = write_to_stderr,
    ) -> None:
        """Open the file, made if missing. Raises `CoordinationError` when it is damaged or in use by another broker."""
        self._store = NodeStore(path)
        self._nodes = Tree()
        try:
            self._nodes.restore(self._store.load())
        except (ValueError, TypeError, CoordinationError) as error:
            self._store.close()
            raise CoordinationError(f"the coordination file {path} is damaged: {error}; {CURE}") from error
        self._lock = RLock()
        self._report = report
        self._callbacks: ThreadPoolExecutor | None = None
        self._delivery = WatchDelivery(self._lock, self._run if deliver is None else deliver, self._failed)
        self._closed = False

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_create(path, data, _THIS_PROCESS if ephemeral else None))

    def get(self, path: str) -> Node:
        with self._lock:
            self._check_open()
            return self._nodes.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._lock:
            self._check_open()
            return self._nodes.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        with self._lock:
            self._check_open()
            plan = self._nodes.plan_set(path, data, version)
            self._change(plan)
            return plan[-1].version

    def delete(self, path: str, *, version: int | None = None) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_delete(path, version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_commit(changes, guards or {}))

    def children(self, path: str) -> list[str]:
        with self._lock:
            self._check_open()
            return self._nodes.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch_below(path, changed))

    def heartbeat(self) -> float:
        self._check_open()
        return math.inf

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        """Ignore the listener: the session of an open file neither breaks nor expires."""
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._delivery.close()
            self._store.close()
        if self._callbacks is not None:
            self._callbacks.shutdown(wait=False)  # a callback may be waiting for the caller

    def _change(self, changes: Sequence[Put] | Sequence[Remove] | Sequence[Change]) -> None:
        plan: list[Change] = [*changes]
        self._store.save(plan)
        self._delivery.touch(self._nodes.apply(plan))

    def _run(self, callback: Callable[[], None]) -> None:
        """One at a time, in a thread of its own."""
        if self._callbacks is None:
            from concurrent.futures import ThreadPoolExecutor

            self._callbacks = ThreadPoolExecutor(1, "coordination-callbacks")
        self._callbacks.submit(callback)

    def _failed(self, error: Exception) -> None:
        self._report(f"a coordination callback failed: {''.join(format_exception(error))}")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")
