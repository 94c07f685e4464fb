"""Show docstrings of the package in the API reference of the site (an extension of griffe, named in mkdocs.yml).

A docstring here explains parameters in a block of lines `name:  text`. The extension turns that block into a section
that mkdocstrings shows as a list, and names of public classes in backquotes into links.
"""

import re
from pathlib import Path
from typing import Any

import griffe

LINE = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*):\s+(\S.*)")
NAME = re.compile(r"(?<!\[)`([A-Z]\w+)`(?!\])")
DOCUMENTED = re.compile(r"^::: (barnabas[\w.]*\.(\w+))", re.MULTILINE)
PAGES = Path(__file__).resolve().parents[1] / "docs" / "api"


class ApiDocstrings(griffe.Extension):
    """Rewrite each docstring after its object is complete."""

    def __init__(self) -> None:
        super().__init__()
        pages = (page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))
        self._places = {name: place for page in pages for place, name in DOCUMENTED.findall(page)}

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        self._rewrite(func, [each.name for each in func.parameters], "Args")

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        self._rewrite(attr, [], "")

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        made = cls.members.get("__init__")
        names = [each.name for each in made.parameters] if isinstance(made, griffe.Function) else []
        self._rewrite(cls, names, "Args")

    def _rewrite(self, thing: griffe.Object, names: list[str], section: str) -> None:
        if thing.docstring is not None:
            text = with_section(thing.docstring.value, names, section).replace("][", "]\\[")  # no link of Markdown
            thing.docstring.value = NAME.sub(lambda found: self._linked(found, thing), text)

    def _linked(self, found: re.Match[str], thing: griffe.Object) -> str:
        place = self._places.get(found[1])
        return found[0] if place is None or thing.name == found[1] else f"[{found[0]}][{place}]"


def with_section(text: str, names: list[str], section: str) -> str:
    """Return a docstring with its block of parameters as a section of Google's form; without one, as it is."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        named = [each.strip("* ") for each in match[1].split(",")] if match else []
        if match and named and all(each in names for each in named):
            if not inside:
                out += ([] if not out or not out[-1].strip() else [""]) + [f"{section}:"]
            inside = True
            out += [f"    {each}: {match[2]}" for each in named[:-1]] + [f"    {named[-1]}: {match[2]}"]
        elif inside and line.startswith(" ") and line.strip():
            out.append(f"        {line.strip()}")
        else:
            if inside and line.strip():
                out.append("")
            inside = False
            out.append(line)
    return "\n".join(out)
