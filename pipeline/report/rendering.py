"""The templates of the pages."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...app.pages import render_page
from . import charts


def render_template(name: str, **values: Any) -> str:
    """Return a page as text. Everything that comes from the data is escaped."""
    return render_page(Path(__file__).with_name(name), {"compact": charts.compact, "moment": _moment}, **values)


def _moment(time_ms: int | None) -> str:
    if time_ms is None:
        return "unknown"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
