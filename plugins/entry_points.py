"""The entry points of installed packages, read without `importlib.metadata`, which takes 25 ms and 4 MB to load.

Distributions in folders of `sys.path` are found here: wheels, editable installations and those of `setup.py install`.
Where `sys.path` has something else, such as a zip file or an `.egg`, or another finder of distributions is installed,
`importlib.metadata` is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from ..ports.values import frozen

_FILE = "entry_points.txt"
_FOLDERS, _EGGS = (".dist-info", ".egg-info"), (".egg", ".egg-link")


@frozen
class EntryPoint:
    """A name in a group, and the object that an installed package registered with it."""

    name: str
    value: str

    def load(self) -> Any:
        """Import the object. Raises what the import raises."""
        module, _, path = self.value.partition("[")[0].partition(":")
        loaded = import_module(module.strip())
        for attribute in filter(None, path.strip().split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; of two distributions with one name the first on `sys.path` counts."""
    found: dict[str, list[EntryPoint]] = {}
    try:
        if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
            raise _OtherFormatError
        for distribution, text in _files():
            found.setdefault(distribution, list(_of_group(text, group)))
    except _OtherFormatError:
        from importlib.metadata import entry_points as of_any_format

        return tuple(EntryPoint(each.name, each.value) for each in of_any_format(group=group))
    return tuple(each for points in found.values() for each in points)


class _OtherFormatError(Exception):
    """Something that only `importlib.metadata` can read."""


def _files() -> Iterator[tuple[str, str]]:
    """Yield the normalized name of each distribution that is installed, and its file."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208  thousands of paths take 10 ms
        except NotADirectoryError:
            raise _OtherFormatError from None
        except OSError:
            continue
        for name in names:
            if name.endswith(_FOLDERS):
                yield _normalized(name.rpartition(".")[0]), _read(f"{folder or '.'}/{name}/{_FILE}")
            elif name.endswith(_EGGS):
                raise _OtherFormatError


def _normalized(distribution: str) -> str:
    return distribution.partition("-")[0].lower().replace(".", "_")


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123
            return opened.read()
    except OSError:
        return ""


def _of_group(text: str, group: str) -> Iterator[EntryPoint]:
    if group not in text:
        return
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == group and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip())
