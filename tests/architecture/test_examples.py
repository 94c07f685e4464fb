"""Examples and pages for users import only what stays: the public face."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

PUBLIC = (
    "barnabas",
    "barnabas.plugins",
    "barnabas.schemas",
    "barnabas.simulation",
    "barnabas.testing",
    "barnabas.testing.crashes",
    "barnabas.testing.logs",
    "barnabas.audit.auditor",
    "barnabas.audit.envelope",
    # For Spark.
    "barnabas.pipeline.queries",
    "barnabas.pipeline.report.charts",
    "barnabas.pipeline.report.panels",
    "barnabas.pipeline.session",
    "barnabas.pipeline.streams",
    # For those who compose a broker, or write an adapter (docs/composing.md, docs/adapters.md).
    "barnabas.adapters.watch_delivery",
    "barnabas.app.compose.serve",
    "barnabas.app.config",
    "barnabas.core.tree.tree",
    "barnabas.ports.coordination",
)
"""Modules that examples may take names from, besides the suites of `barnabas.testing.contracts`."""


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that is taken from Barnabas."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.split(".")[0] == "barnabas")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "barnabas":
            yield from ((node.module or "", each.name) for each in node.names)


def _sources(checkout: Path) -> Iterator[tuple[str, str]]:
    """(file, Python) of the examples, and of the blocks on pages."""
    for path in (checkout / "examples").rglob("*.py"):
        yield path.name, path.read_text(encoding="utf-8")
    for page in (checkout / "README.md", *(checkout / "docs").glob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            yield page.name, block


def test_examples_import_only_the_public_face(checkout: Path) -> None:
    sources = list(_sources(checkout))
    found = {(name, *taken) for name, source in sources for taken in _imports(source)}
    assert len(sources) >= 40
    assert len(found) >= 80
    modules = {each: f"{each[1]}.{each[2]}" if f"{each[1]}.{each[2]}" in PUBLIC else each[1] for each in found}
    public = (each for each, at in modules.items() if at in PUBLIC or at.startswith("barnabas.testing.contracts."))
    assert sorted(found - set(public)) == []
    assert [each for each in sorted(found) if each[2] and not hasattr(import_module(each[1]), each[2])] == []


def test_a_face_names_everything_in_it(checkout: Path) -> None:
    """The list for type checkers and the list of lazily loaded names are equal."""
    for package in ("", "plugins", "testing", "simulation"):
        text = (checkout / package / "__init__.py").read_text(encoding="utf-8")
        module = import_module(f"barnabas.{package}".rstrip("."))
        exported = set(module.__all__)
        homes = set(re.findall(r'^    "(\w+)": "', text, re.MULTILINE))
        checked = {name for _, name in _relative(text)}
        assert exported - {"__version__", "hookimpl"} == homes
        assert exported - {"__version__"} == checked
        assert [name for name in exported if not hasattr(module, name)] == []


def _relative(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from ((node.module or "", each.name) for each in node.names)
