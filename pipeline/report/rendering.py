"""The templates of the pages."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import charts


def render_template(name: str, **values: Any) -> str:
    """A page as text. Everything that comes from the data is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["compact"] = charts.compact
    environment.filters["moment"] = _moment
    return environment.get_template(name).render(**values)


def _moment(time_ms: int | None) -> str:
    if time_ms is None:
        return "unknown"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
