"""Commits of ours in Delta's log: each has the whole state of the table in its `commitInfo`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
from attrs import frozen

from .files import sync, sync_down_to, write_durably
from .state import Commit, TableChange, TableError

METADATA_KEY = "barnabas"
_LOG = "_delta_log"
_COPY = Path("_barnabas", "state.json")
_IN_ACTIONS = ("files", "removed")


@frozen(kw_only=True)
class _Version:
    """`ours` is what a commit of ours says of itself."""

    number: int
    created_ms: int
    operation: str
    ours: Mapping[str, Any] | None
    added: list[str]
    removed: list[str]


class DeltaLog:
    """The log of the table in a folder, read without its library: the newest commit, and which ones there were.

    Other tools may commit, too (compact, vacuum): the newest commit of ours counts. When they have gone on until Delta
    has cleaned it away (after 30 days), a copy next to the log does.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / _LOG
        self._copy = folder / _COPY

    def version(self) -> int | None:
        """Return the newest one; None: there is no table."""
        names = (path.name.split(".", 1)[0] for path in self._log.glob("*") if path.suffix in (".json", ".parquet"))
        return max((int(name) for name in names if len(name) == 20 and name.isdigit()), default=None)

    def last(self) -> Commit | None:
        """Return the newest commit of ours. Raises `TableError` when the table is another's, or damaged."""
        if self.version() is None:
            return None
        found = next((each for each in self._versions() if each.ours is not None), None)
        if found is not None:
            return _commit(found)
        if self._copy.exists():
            return _structured(json.loads(self._copy.read_text(encoding="utf-8")), self._copy)
        raise TableError(f"{self._folder} is a Delta table that no load made; load into another folder")

    def history(self) -> Iterator[Commit]:
        """Yield all versions that the log still has, newest first. Those of other tools have no state."""
        for each in self._versions():
            if each.ours is not None:
                yield _commit(each)
            else:
                yield Commit(
                    number=each.number,
                    created_ms=each.created_ms,
                    topics={},
                    operation=each.operation,
                    files=each.added,
                    removed=each.removed,
                )

    def made_of(self, staging: str, first: int) -> int | None:
        """Return the version, `first` or a later one, that was made of this staging folder, as far as the log still has
        it."""
        for each in self._versions():
            if each.number < first:
                break
            if each.ours is not None and each.ours.get("staging") == staging:
                return each.number
        return None

    def knows_all_from(self, first: int) -> bool:
        """Return False when versions from this one on were cleaned away."""
        newest = self.version()
        return newest is None or newest < first or self._path(first).exists()

    def keep_copy(self) -> None:
        """Keep a copy of the newest commit for the time when the log no longer has it."""
        last = self.last()
        text = json.dumps(None if last is None else attrs.asdict(last))
        if last is not None and not (self._copy.exists() and self._copy.read_text(encoding="utf-8") == text):
            write_durably(self._copy, text)

    def sync(self, number: int) -> None:
        """Make this version durable; delta-rs leaves that to the operating system."""
        sync(self._path(number))
        sync_down_to(self._log, self._folder)

    def drop_torn(self) -> None:
        """Move a newest version without content away: a power cut left it, and it was never acknowledged."""
        number = self.version()
        if number is None or not self._path(number).exists():
            return
        path = self._path(number)
        if not _is_whole(path):
            path.rename(self._folder / "_barnabas" / f"torn-{path.name}")

    def _versions(self) -> Iterator[_Version]:
        newest = self.version()
        number = -1 if newest is None else newest
        while number >= 0 and self._path(number).exists():
            yield self._read(number)
            number -= 1

    def _read(self, number: int) -> _Version:
        path = self._path(number)
        info: Mapping[str, Any] = {}
        added, removed = [], []
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                info = action.get("commitInfo", info)
                if "add" in action:
                    added.append(unquote(action["add"]["path"]))
                elif "remove" in action:
                    removed.append(unquote(action["remove"]["path"]))
            ours = json.loads(info[METADATA_KEY]) if METADATA_KEY in info else None
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise TableError(f"{path} is damaged: {error!r}") from error
        return _Version(
            number=number,
            created_ms=int(info.get("timestamp", 0)),
            operation=str(info.get("operation", "")).lower(),
            ours=ours,
            added=added,
            removed=removed,
        )

    def _path(self, number: int) -> Path:
        return self._log / f"{number:020d}.json"


def packed(change: TableChange, staging: str) -> str:
    """Return the description of the change for a version's metadata; the files are in its actions."""
    fields = {name: value for name, value in attrs.asdict(change).items() if name not in _IN_ACTIONS}
    return json.dumps({**fields, "staging": staging}, separators=(",", ":"))


def _commit(version: _Version) -> Commit:
    raw = {name: value for name, value in (version.ours or {}).items() if name != "staging"}
    where = f"version {version.number} of the Delta log"
    found = {"number": version.number, "created_ms": version.created_ms}
    return _structured({**raw, **found, "files": version.added, "removed": version.removed}, where)


def _structured(raw: Mapping[str, Any], where: object) -> Commit:
    import cattrs

    try:
        return cattrs.structure(raw, Commit)
    except (ValueError, TypeError, AttributeError, KeyError, cattrs.BaseValidationError) as error:
        raise TableError(f"{where} is damaged: {error!r}") from error


def _is_whole(path: Path) -> bool:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        return False
    return bool(lines)
