"""The layout stays in order: what the import contracts cannot see."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

PACKAGES = (
    "ports",
    "core",
    "adapters",
    "plugins",
    "app",
    "schemas",
    "audit",
    "pipeline",
    "console",
    "simulation",
    "testing",
)

# What the core may take from outside: pure functions and types, nothing that reads a clock, a file or a socket.
CORE_MAY_IMPORT = {
    *(
        "__future__",
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
        "hmac",
    ),
    *(
        "importlib",  # to load one module of the package crc32c
        "ipaddress",
        "itertools",
        "json",
        "math",
        "mypy_extensions",  # for the compiler only
        "operator",
        "re",
        "struct",
        "types",
        "typing",
        "typing_extensions",  # for type checkers only
        "unicodedata",
        "urllib",
        "zlib",
        "attrs",
        "crc32c",
        "isal",
    ),
}
PORTS_MAY_IMPORT = {
    *("abc", "attrs", "collections", "enum", "functools", "hmac", "linecache", "operator", "typing"),
    "mypy_extensions",  # for the compiler only
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("barnabas", include_external_packages=True, cache_dir=None)


def _outside(graph: grimp.ImportGraph, package: str) -> set[str]:
    modules = {m for m in graph.modules if m == f"barnabas.{package}" or m.startswith(f"barnabas.{package}.")}
    imported = {i for m in modules for i in graph.find_modules_directly_imported_by(m)}
    return {i.split(".")[0] for i in imported if not i.startswith("barnabas")}


def test_core_takes_only_pure_things_from_outside(graph: grimp.ImportGraph) -> None:
    assert _outside(graph, "core") <= CORE_MAY_IMPORT


RECORD_LOCKS = "share_partition_max_record_locks"
"""Kafka's setting for the records in flight, which are locked for a member of a share group."""


def test_core_knows_no_locks(checkout: Path) -> None:
    """Neither its own nor given ones: who shares a machine between threads guards its steps from outside."""
    names = {
        f"{path.relative_to(checkout)}: {name}"
        for path in (checkout / "core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "arg", "") or "")
        if re.search(r"(^|_)(r?lock|mutex|condition|semaphore)s?$|^(R?Lock|AbstractContextManager|nullcontext)$", name)
    }
    names = {name for name in names if not name.endswith(f": {RECORD_LOCKS}")}
    assert names == set()


def test_the_core_connects_in_one_place(checkout: Path) -> None:
    """`core/client/network/connection.py` calls `connect`; links and the pool of the classic producer stand on it."""
    connects, keepers = set(), set()
    for path in (checkout / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("connect", "_connect") and node.args:
                    connects.add(str(path.relative_to(checkout)))
                if name == "BrokerConnection":
                    keepers.add(str(path.relative_to(checkout)))
    assert connects == {"core/client/network/connection.py"}
    assert keepers == {"core/client/network/links.py", "core/classic/producer/pool.py"}


def test_ports_take_only_types_from_outside(graph: grimp.ImportGraph) -> None:
    assert _outside(graph, "ports") <= PORTS_MAY_IMPORT


def _sources(checkout: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from (checkout / package).rglob("*.py")


def test_no_two_classes_have_one_name(checkout: Path) -> None:
    """A class name means one thing in the whole product. Private classes are used in their own file only."""
    found: dict[str, list[str]] = {}
    for path in _sources(checkout):
        classes = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)
        ]
        for name in {node.name for node in classes if not node.name.startswith("_")}:  # type checkers may see another
            found.setdefault(name, []).append(str(path.relative_to(checkout)))
    assert len(found) > 500
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_alias_has_the_name_of_a_class(checkout: Path) -> None:
    """Names of classes of brokers and clients are unique; options of commands are named after their values."""
    packages = [checkout / package for package in ("ports", "core", "adapters", "app")]
    paths = [path for package in packages for path in package.rglob("*.py") if "cli" not in path.parts]
    classes = {
        node.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    aliases = {f"{path.relative_to(checkout)}: {node.id}" for path in paths for node in _assigned_names(path)}
    assert {each for each in aliases if each.split(": ")[1] in classes} == set()


def test_names_of_ports_types_are_defined_once(checkout: Path) -> None:
    words = {node.id for path in [checkout / "ports" / "types.py"] for node in _assigned_names(path)}
    assert words >= {"Offset", "Position"}
    others = [path for path in _sources(checkout) if path != checkout / "ports" / "types.py"]
    again = [f"{path.relative_to(checkout)}: {node.id}" for path in others for node in _assigned_names(path)]
    assert [line for line in again if line.split(": ")[1] in words] == []


def _assigned_names(path: Path) -> Iterator[ast.Name]:
    """Yield the names that a module assigns, other than classes and functions."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign):
            yield from (target for target in statement.targets if isinstance(target, ast.Name))


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


WITHOUT_PORT = {"kerberos", "oauthbearer", "repeated_failure", "session_heartbeat", "watch_delivery"}
"""These fulfil no port: they serve one mechanism of the core or several adapters, and have tests of their own."""


def test_every_adapter_runs_a_contract_suite(checkout: Path) -> None:
    """An adapter counts as proven when a test of tests/adapters imports both it and a contract suite."""
    proven: set[str] = set()
    for path in (checkout / "tests" / "adapters").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "barnabas.testing.contracts" in text:
            proven |= {p.stem for p in (checkout / "adapters").iterdir() if f"barnabas.adapters.{p.stem}" in text}
    adapters = {p.stem for p in (checkout / "adapters").iterdir() if not p.stem.startswith("__")}
    assert adapters - WITHOUT_PORT <= proven, f"without a contract run: {sorted(adapters - WITHOUT_PORT - proven)}"


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
    sections = set(re.findall(r"^### ([A-E]\d+)\.", facts, re.MULTILINE))
    named = [
        (str(path.relative_to(checkout)), section)
        for path in _sources(checkout)
        for sentence in re.findall(r"\bfacts ((?:[A-E]\d+(?:, |,? and )?)+)", path.read_text(encoding="utf-8"))
        for section in re.findall(r"[A-E]\d+", sentence)
    ]
    assert named
    assert [(path, section) for path, section in named if section not in sections] == []
