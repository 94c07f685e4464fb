"""Pages that stand alone: HTML of a template and of values that are escaped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def render_page(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Return the page as text; the template may include others of its folder. Everything that comes from data is
    escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters
    return environment.get_template(template.name).render(**values)
