"""The tables of a warehouse: rows, versions, freshness; and the audits: whether all tiers have all messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import BarnabasError, ConfigError
from ...app.extras import require
from ...ports.values import frozen
from ..application import PageCall, PageRoute
from ..paging import PageOfRows

_TABLES_MAX = 200
_COMMITS = 50
_WINDOWS_MAX = 2_000


@frozen(kw_only=True)
class TableRow:
    """A table of the warehouse; `description` is None where it cannot be read, then `problem` says why."""

    name: str
    description: Any
    problem: str


def describe_tables(warehouse: Path) -> Sequence[TableRow]:
    """Describe the tables in the folder, or the table that the folder is. Raises `ConfigError`."""
    require("tables", ("pyarrow",), "tables")
    if not warehouse.is_dir():
        raise ConfigError(f"--warehouse {warehouse}: no such folder")
    own = _row(warehouse)
    if own.description is not None:
        return [own]
    folders = sorted(each for each in warehouse.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
    return [_row(each) for each in folders[:_TABLES_MAX]]


def _row(folder: Path) -> TableRow:
    from ...pipeline.tables.formats import open_store
    from ...pipeline.tables.upkeep.describe import describe_table

    try:
        return TableRow(name=folder.name, description=describe_table(open_store(folder)), problem="")
    except (BarnabasError, OSError) as error:
        return TableRow(name=folder.name, description=None, problem=str(error))


def tables(call: PageCall) -> Response:
    """Show the tables of the warehouse, from a snapshot."""
    call.connection  # noqa: B018  a user who has not signed in does so first
    watched = call.console.tables
    if watched is None:
        return call.page("tables.html.j2", rows=None, taken_ms=0, trouble=None)
    taken_ms, rows = watched.current()
    return call.page("tables.html.j2", rows=rows, taken_ms=taken_ms, trouble=watched.trouble)


def table(call: PageCall) -> Response:
    """Show one table with its newest commits."""
    call.connection  # noqa: B018
    watched = call.console.tables
    _, rows = watched.current() if watched is not None else (0, ())
    found = next((each for each in rows if each.name == call.query("id")), None)
    if found is None or found.description is None:
        raise HTTPException(404, "There is no such table in the warehouse.")
    from ...pipeline.tables.formats import open_store

    commits = list(islice(open_store(Path(found.description.folder)).history(), _COMMITS))
    return call.page("table.html.j2", row=found, table=found.description, commits=commits)


def audits(call: PageCall) -> Response:
    """Show what the tiers have counted in the windows of the last day."""
    try:
        taken_ms, found = call.connection.audits.current()
    except ConfigError as error:
        return call.page("audits.html.j2", found=None, refused=str(error), taken_ms=0, trouble=None)
    from ...audit.view import KINDS, headline

    wanted, only = call.query("topic"), call.query("only")
    windows = [
        each
        for each in reversed(found.windows[-_WINDOWS_MAX:])
        if (not wanted or each.topic == wanted) and (not only or each.state == only)
    ]
    return call.page(
        "audits.html.j2",
        found=found,
        refused="",
        taken_ms=taken_ms,
        trouble=call.connection.audits.trouble,
        headline=headline(found),
        page=PageOfRows(windows, call.number("page", 1, least=1)),
        topics=sorted({each.topic for each in found.windows}),
        wanted=wanted,
        only=only,
        kinds=KINDS,
        messages=lambda tier, kind: sum(each.messages for each in getattr(tier, kind)),
    )


def table_snapshot(warehouse: str) -> tuple[int, Sequence[TableRow]]:
    """Return the time and the tables. Raises `BarnabasError`."""
    return time.time_ns() // 1_000_000, describe_tables(Path(warehouse))


PAGES = (
    PageRoute("/tables", tables),
    PageRoute("/table", table),
    PageRoute("/audits", audits),
)
