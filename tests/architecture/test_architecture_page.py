"""docs/architecture.md is true: each function of a data flow exists, each package is named."""

import ast
import re
from pathlib import Path

import pytest
from support.architecture_ways import STEP, ways_of

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
WAYS = [
    "A produce request",
    "A fetch request",
    "A group join",
    "A transaction's end",
    "A follower's fetch",
    "An election",
    "A classic produce",
    "A compaction",
    "A Spark read",
    "A load",
    "A schema registered",
]


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")


def _functions(path: Path) -> set[str]:
    """Return the names of functions, methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, FUNCTIONS):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTIONS))
    return found


def test_functions_named_on_a_way_exist(checkout: Path, page: str) -> None:
    steps = STEP.findall(page)
    assert len(steps) > 35
    gone = [f"{file}:{name}" for file, name in steps if not (checkout / file).is_file()]
    gone += [
        f"{file}:{name}"
        for file, name in steps
        if (checkout / file).is_file() and name not in _functions(checkout / file)
    ]
    assert gone == [], "the page names what has moved: " + ", ".join(gone)


def test_path_of_each_request_type_names_at_least_five_steps(page: str) -> None:
    ways = ways_of(page)
    assert list(ways) == WAYS
    for name, way in ways.items():
        steps = re.findall(r"^\d+\. `([^:`]+):", way, re.MULTILINE)
        assert len(steps) >= 5, name
        assert len(set(steps)) >= 4, name


def test_every_room_is_on_the_page(checkout: Path, page: str) -> None:
    """Each package has a line of the drawing: its own folder, indented below that of its parent."""
    drawing = page.partition("## Packages\n")[2].partition("\n## ")[0]
    drawn: set[str] = set()
    above: list[str] = []
    for line in drawing.splitlines():
        for match in re.finditer(r"(?:^|\s)([a-z0-9_]+)/(?=\s|$)", line):
            if match.start(1) == len(line) - len(line.lstrip()):
                depth = match.start(1) // 2
                above[depth:] = [match[1]]
                drawn.add("/".join(above))
            elif not line[: match.start()].rstrip(" ").endswith("/"):
                break
            else:
                drawn.add("/".join([*above[:-1], match[1]]))
    packages = (
        "ports",
        "core",
        "adapters",
        "plugins",
        "app",
        "schemas",
        "audit",
        "pipeline",
        "console",
        "testing",
        "simulation",
    )
    there = {
        str(path.parent.relative_to(checkout))
        for package in packages
        for path in (checkout / package).rglob("__init__.py")
    }
    assert drawn == there, f"missing: {sorted(there - drawn)}; gone: {sorted(drawn - there)}"
