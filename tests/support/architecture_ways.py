"""The ways of requests on the page docs/architecture.md."""

import re

STEP = re.compile(r"`([a-z_0-9/]+\.py):([\w.]+)`")
"""A function that a step names: its file and its qualified name."""


def ways_of(page: str) -> dict[str, str]:
    """Return the text of each path by its heading, in the order of the page."""
    ways = page.partition("## Data flows\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", ways, re.DOTALL | re.MULTILINE))
