"""docs/installation.md names every extra; no text installs Barnabas from a package index that does not have it."""

import re
import tomllib
from pathlib import Path


def test_documentation_never_installs_barnabas_from_package_index(checkout: Path) -> None:
    claim = re.compile(r"pip3? install (?:-\S+ )*['\"]?barnabas(?!\S* @)\b")
    texts = [*checkout.glob("*.md"), *checkout.glob("docs/**/*.md"), *checkout.glob("examples/**/*")]
    rooms = ("adapters", "app", "audit", "core", "pipeline", "plugins", "ports", "schemas", "testing", "benchmarks")
    texts += [path for room in rooms for path in (checkout / room).rglob("*.py")]
    found = [
        str(path.relative_to(checkout))
        for path in texts
        if path.suffix in (".md", ".py", ".toml") and claim.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_extras_of_the_page_are_those_that_there_are(checkout: Path) -> None:
    page = (checkout / "docs" / "installation.md").read_text(encoding="utf-8")
    extras = set(tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == extras - {"peers"}, "peers is for benchmarks alone"
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    assert f"barnabas-{version}-py3-none-any.whl" in page
