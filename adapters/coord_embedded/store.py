"""The persistent nodes in an SQLite file that one process holds at a time."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...core.tree.tree import Change, Put
from ...ports.coordination import CoordinationError

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

        SQLite gives the files beside it the same mode. An existing file is not opened: to close it would release the
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
        """Give the file back; everything is in the main file then, and there is no log beside it."""
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
