"""The house stays in order: what the import contracts cannot see."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOMS = ("ports", "core", "adapters", "plugins", "app", "pipeline", "testing")

# What the core may take from outside: pure functions and types, nothing that reads a clock, a file or a socket.
CORE_MAY_IMPORT = {
    *(
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "enum",
        "functools",
        "hashlib",
        "heapq",
    ),
    *("itertools", "json", "math", "operator", "re", "struct", "types", "typing", "zlib", "attrs", "crc32c", "isal"),
}
PORTS_MAY_IMPORT = {"abc", "attrs", "collections", "enum", "operator", "typing"}

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("barnabas", include_external_packages=True, cache_dir=None)


def _outside(graph: grimp.ImportGraph, room: str) -> set[str]:
    modules = {m for m in graph.modules if m == f"barnabas.{room}" or m.startswith(f"barnabas.{room}.")}
    imported = {i for m in modules for i in graph.find_modules_directly_imported_by(m)}
    return {i.split(".")[0] for i in imported if not i.startswith("barnabas")}


def test_core_takes_only_pure_things_from_outside(graph: grimp.ImportGraph) -> None:
    assert _outside(graph, "core") <= CORE_MAY_IMPORT


def test_ports_take_only_types_from_outside(graph: grimp.ImportGraph) -> None:
    assert _outside(graph, "ports") <= PORTS_MAY_IMPORT


def _sources(checkout: Path) -> Iterator[Path]:
    for room in ROOMS:
        yield from (checkout / room).rglob("*.py")


def test_files_and_functions_are_short(checkout: Path) -> None:
    too_long = []
    for path in _sources(checkout):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(checkout)
        if text.count("\n") > FILE_LINES_MAX:
            too_long.append(f"{where}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long.append(f"{where}: {node.name} has {lines} lines")
    assert not too_long, "\n".join(too_long)


def test_every_room_is_packaged(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    there = {"barnabas"} | {
        ".".join(("barnabas", *path.parent.relative_to(checkout).parts)) for path in _sources(checkout)
    }
    assert listed == there, f"missing: {sorted(there - listed)}; gone: {sorted(listed - there)}"


def test_every_folder_with_code_is_a_package(checkout: Path) -> None:
    bare = {str(p.parent.relative_to(checkout)) for p in _sources(checkout) if not (p.parent / "__init__.py").exists()}
    assert not bare, f"without __init__.py: {sorted(bare)}"


def test_every_adapter_runs_a_contract_suite(checkout: Path) -> None:
    """An adapter counts as proven when a test of tests/adapters imports both it and a contract suite."""
    proven: set[str] = set()
    for path in (checkout / "tests" / "adapters").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "contracts" in text:
            proven |= {p.name for p in (checkout / "adapters").iterdir() if f"barnabas.adapters.{p.name}" in text}
    adapters = {p.name for p in (checkout / "adapters").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert adapters <= proven, f"without a contract run: {sorted(adapters - proven)}"


def test_no_paths_of_a_machine_in_the_project(checkout: Path) -> None:
    found = subprocess.run(
        ["git", "grep", "-nF", "-e", f"{checkout.parent}/", "--", "."],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.stdout, found.stdout


def test_each_reference_to_the_facts_leads_to_a_section_of_them(checkout: Path) -> None:
    facts = (checkout / "docs" / "facts.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## ([A-E]\d+)\.", facts, re.MULTILINE))
    named = [
        (str(path.relative_to(checkout)), section)
        for path in _sources(checkout)
        for sentence in re.findall(r"\bfacts ((?:[A-E]\d+(?:, |,? and )?)+)", path.read_text(encoding="utf-8"))
        for section in re.findall(r"[A-E]\d+", sentence)
    ]
    assert named
    assert [(path, section) for path, section in named if section not in sections] == []
