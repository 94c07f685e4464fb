"""The templates of the pages."""

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
    return environment.get_template(name).render(**values)
