"""The API reference of the site (docs/api) has every public name, and their docstrings say what a user must know."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import pytest
from support.documents import CHECKOUT, read

from barnabas.ports.storage import LogDir

MODULES = (
    "barnabas",
    "barnabas.pipeline.queries",
    "barnabas.pipeline.streams",
    "barnabas.plugins",
    "barnabas.schemas",
    "barnabas.simulation",
    "barnabas.testing",
)
"""Modules whose `__all__` is public."""
DOCUMENTED = re.compile(r"^::: (barnabas[\w.]*)$", re.MULTILINE)
ELSEWHERE = {"barnabas.__version__", "barnabas.testing.Message"}
"""A text, and a class that is on another page by its first name."""

REFERS = re.compile(r"see `(Consumer|ShareConsumer|Producer|TestBroker)\.\w+`")
"""A method of asyncio, or of a cluster, may refer to the method that explains its parameters."""
PORTS = {"barnabas.testing.MemoryLogDir": LogDir}
"""Classes whose docstring refers to a port for their methods."""


def documented() -> set[str]:
    return {
        name
        for page in (CHECKOUT / "docs" / "api").glob("*.md")
        for name in DOCUMENTED.findall(page.read_text("utf-8"))
    }


def public() -> Iterator[tuple[str, ModuleType, str]]:
    for module in MODULES:
        home = import_module(module)
        yield from ((f"{module}.{name}", home, name) for name in home.__all__)


def test_every_public_name_is_in_the_reference() -> None:
    assert {place for place, _, _ in public()} - ELSEWHERE - documented() == set()


def test_every_fixture_and_every_port_is_in_the_reference() -> None:
    fixtures = {
        f"barnabas.testing.pytest_plugin.{each.name}"
        for each in ast.parse(read("testing/pytest_plugin.py")).body
        if isinstance(each, ast.FunctionDef) and any("fixture" in ast.unparse(by) for by in each.decorator_list)
    }
    assert fixtures
    assert fixtures - documented() == set()
    ports = {
        f"barnabas.ports.{page}.{name}"
        for page in ("clock", "coordination", "entropy", "metrics", "scheduler", "storage", "transport")
        for name in re.findall(r"^class (\w+)\(Protocol\)", read(f"ports/{page}.py"), re.MULTILINE)
    }
    assert ports - documented() == set()


def test_the_list_of_names_is_complete() -> None:
    listed = set(re.findall(r"`(\w+)`", read("docs/api/README.md").partition("## Parameters")[0]))
    assert {place.rpartition(".")[2] for place in documented()} - listed == set()


def functions_of(thing: Any, place: str) -> Iterator[tuple[str, FunctionType, str]]:
    """Yield the function, or each public method of a class, with the text that explains it."""
    if isinstance(thing, FunctionType):
        yield place, thing, inspect.getdoc(thing) or ""
    elif inspect.isclass(thing) and not issubclass(thing, BaseException):
        for name in dir(thing):
            member = inspect.getattr_static(thing, name)
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not isinstance(function, FunctionType) or name.startswith("_"):
                continue
            if function.__module__.startswith("barnabas"):
                ported = getattr(PORTS.get(place), name, None)
                texts = (inspect.getdoc(each) for each in (getattr(thing, name), function, ported) if each is not None)
                yield f"{place}.{name}", function, next(filter(None, texts), "")


@pytest.fixture(scope="module")
def explained_once() -> set[str]:
    """Parameters that the list of names explains for all methods."""
    table = read("docs/api/README.md").partition("## Parameters")[2]
    return {name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_every_public_function_and_method_is_explained() -> None:
    silent = [
        where
        for place, home, name in public()
        for where, _, text in functions_of(getattr(home, name), place)
        if not text
    ]
    assert silent == []


def test_docstrings_name_their_parameters(explained_once: set[str]) -> None:
    missing = []
    for place, home, name in public():
        for where, function, text in functions_of(getattr(home, name), place):
            if REFERS.search(text):
                continue
            for parameter in inspect.signature(function).parameters:
                named = re.search(rf"\b{re.escape(parameter.rstrip('s'))}", text) or parameter in explained_once
                if not named and parameter not in ("self", "cls", "args", "kwargs"):
                    missing.append(f"{where}({parameter})")
    assert missing == []
