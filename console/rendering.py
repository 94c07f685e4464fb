"""The templates of the console, and the filters that write numbers, sizes and times."""

from __future__ import annotations

import json
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import jinja2
from markupsafe import Markup, escape

UNKNOWN = "\N{EN DASH}"
NAVIGATION = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/schemas", "Schemas"),
    ("/tables", "Tables"),
    ("/audits", "Audits"),
    ("/tiers", "Tiers"),
    ("/acls", "Access"),
    ("/changes", "Changes"),
)
"""The addresses and titles of the menu."""
_SECTIONS = {
    "/brokers": "/",
    "/create-topic": "/topics",
    "/group": "/groups",
    "/transaction": "/transactions",
    "/subject": "/schemas",
    "/table": "/tables",
    "/report": "/tables",
    "/users": "/acls",
    "/quotas": "/acls",
}
"""The beginnings of paths that belong to an address of the menu, other than those that begin with it."""


def number(value: float | None) -> str:
    """Format a number with thin groups of three digits."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float) and abs(value) < 100 and value != int(value):
        return f"{value:,.1f}"
    return f"{value:,.0f}"


def size(value: int | None) -> str:
    """Format bytes: 1.2 MB."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(amount) < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} PB"


def duration(ms: float | None) -> str:
    """Format a duration in its largest units: 3 d 4 h, 5 min 2 s, 80 ms."""
    if ms is None:
        return UNKNOWN
    if ms < 0:
        return "0 s"
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = int(ms // 1000)
    for unit, length, lesser, least in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            rest = seconds % length // least
            return f"{seconds // length} {unit} {rest} {lesser}" if rest else f"{seconds // length} {unit}"
    return f"{seconds} s"


def keeping(ms: str | None) -> str:
    """Format a retention time of a setting."""
    return UNKNOWN if ms is None else "ever" if ms == "-1" else duration(int(ms))


def keeping_bytes(given: str | None) -> str:
    """Format a retention size of a setting."""
    return UNKNOWN if given is None else "any number of bytes" if given == "-1" else f"{size(int(given))} a partition"


@lru_cache(64)
def zone_of(name: str) -> tzinfo | None:
    """Return the time zone of this name; None for an unknown one."""
    try:
        return ZoneInfo(name) if name and len(name) < 64 else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@jinja2.pass_context
def moment(context: jinja2.runtime.Context, ms: int | None) -> Markup:
    """Format a time in the reader's zone, with UTC in small letters after it."""
    if ms is None or ms < 0:
        return Markup(UNKNOWN)
    try:
        utc = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return escape(str(ms))
    text = f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03d}"
    zone = zone_of(unquote(str(context.get("zone", ""))))
    if zone is None or utc.astimezone(zone).utcoffset() == utc.utcoffset():
        return Markup('<time datetime="{}Z">{} <small>UTC</small></time>').format(text.replace(" ", "T"), text)
    local = utc.astimezone(zone)
    own = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"
    other = f"{utc:%H:%M:%S}" if utc.date() == local.date() else f"{utc:%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}Z">{} <small>{} UTC</small></time>').format(
        text.replace(" ", "T"), own, other
    )  # fmt: skip


def segment(value: object) -> str:
    """Quote a value for a part of a path or of a query."""
    return quote(str(value), safe="")


def as_json(value: Any) -> str:
    """Return JSON for an attribute, which the template escapes."""
    return json.dumps(value, separators=(",", ":"))


def section_of(path: str) -> str:
    """Return the address of the menu to which a path belongs."""
    first = f"/{path.lstrip('/').partition('/')[0]}"
    return _SECTIONS.get(first, first)


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,
)


def make_environment() -> None:
    """Give the templates their filters and names."""
    ENVIRONMENT.filters |= {
        "number": number,
        "size": size,
        "duration": duration,
        "moment": moment,
        "keeping": keeping,
        "keeping_bytes": keeping_bytes,
        "segment": segment,
        "as_json": as_json,
    }
    ENVIRONMENT.globals |= {"navigation": NAVIGATION, "section_of": section_of}
