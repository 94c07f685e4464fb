"""Pages that stand alone: HTML of a template and of values that are escaped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def render_page(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Render a page from a template, which may include others of its folder, with all values escaped."""
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
