"""The tables of a warehouse: rows, versions, freshness; and the audits: whether all tiers have all messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from ... import ConfigError
from ...ports.values import frozen
from ..application import PageCall, PageRoute
from ..paging import PageOfRows

_WINDOWS_MAX = 2_000
_REPORTS_MAX = 200
_TITLE_BYTES = 2_000
_TITLE = b" Barnabas report</title>"
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox"
"""Pages of reports have their styles within them, and need nothing else."""
_PART_BYTES = 64 * 1024
_BODY = b"<body>"
_BACK = b"""<nav aria-label="Console" style="max-width:1120px;margin:0 auto;padding:16px 20px 0">\
<a href="/tables">\xe2\x86\x90 Tables in the console</a></nav>"""


@frozen(kw_only=True)
class ReportPage:
    """A page that `barnabas report` has written."""

    name: str
    path: Path
    made_ms: int


def find_reports(warehouse: Path) -> dict[str, ReportPage]:
    """Return the pages of reports in the folder and next to it, by the names of their tables."""
    try:
        files = sorted(warehouse.glob("*.html"))[:_REPORTS_MAX]
    except OSError:
        return {}
    own = warehouse.resolve()
    found = {}
    for file in (*files, own.with_name(own.name + ".html")):
        try:
            with file.open("rb") as opened:
                beginning = opened.read(_TITLE_BYTES)
            made_ms = file.stat().st_mtime_ns // 1_000_000
        except OSError:
            continue
        if _TITLE in beginning:
            found[file.stem] = ReportPage(name=file.stem, path=file, made_ms=made_ms)
    return found


def _reports(call: PageCall) -> dict[str, ReportPage]:
    return find_reports(Path(call.settings.warehouse)) if call.settings.warehouse else {}


def tables(call: PageCall) -> Response:
    """Show the tables of the warehouse, from a snapshot."""
    call.connection  # noqa: B018  a user who has not signed in does so first
    watched = call.console.tables
    if watched is None:
        return call.page("tables.html.j2", rows=None, taken_ms=0, trouble=None, reports={})
    taken_ms, rows = watched.current()
    return call.page("tables.html.j2", rows=rows, taken_ms=taken_ms, trouble=watched.trouble, reports=_reports(call))


def table(call: PageCall) -> Response:
    """Show one table with its newest commits."""
    call.connection  # noqa: B018
    watched = call.console.tables
    _, rows = watched.current() if watched is not None else (0, ())
    found = next((each for each in rows if each.name == call.query("id")), None)
    if found is None or found.description is None:
        raise HTTPException(404, "There is no such table in the warehouse.")
    report_page = _reports(call).get(found.name)
    return call.page("table.html.j2", row=found, table=found.description, commits=found.commits, report=report_page)


def report(call: PageCall) -> Response:
    """Show the page of a report as it was written, with a link back to the console; no script in it runs."""
    call.connection  # noqa: B018
    found = _reports(call).get(call.query("id"))
    if found is None:
        raise HTTPException(404, "There is no such report in the warehouse.")
    headers = {"content-security-policy": _REPORT_POLICY}
    return StreamingResponse(_parts(found.path), media_type="text/html; charset=utf-8", headers=headers)


def _parts(path: Path) -> Iterator[bytes]:
    """Yield the page of a report in parts, with a link back to the console at the beginning of its body."""
    with path.open("rb") as file:
        part = file.read(_PART_BYTES).replace(_BODY, _BODY + _BACK, 1)
        while part:
            yield part
            part = file.read(_PART_BYTES)


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
        compared=any(tier.completeness is not None for each in found.windows for tier in each.tiers),
        page=PageOfRows(windows, call.number("page", 1, least=1)),
        topics=sorted({each.topic for each in found.windows}),
        wanted=wanted,
        only=only,
        kinds=KINDS,
        messages=lambda tier, kind: sum(each.messages for each in getattr(tier, kind)),
    )


PAGES = (
    PageRoute("/tables", tables),
    PageRoute("/table", table),
    PageRoute("/report", report),
    PageRoute("/audits", audits),
)
