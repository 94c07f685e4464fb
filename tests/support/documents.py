"""The documents as tests see them: pages, their blocks of code, and commands as the real parser takes them."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
from attrs import frozen

from barnabas.app.cli.main import build_command

CHECKOUT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE)
SHELL = frozenset({"sh", "shell", "console"})
NotTaken: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong usage: click's UsageError, whichever click typer has."""


@frozen
class Block:
    """A fenced block: `language` is what stands behind the fence."""

    page: str
    language: str
    code: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages that must agree with the code: not the facts and the list of changes."""
    found = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").glob("*.md")]
    found += [*(CHECKOUT / "docs" / "cookbook").glob("*.md"), *(CHECKOUT / "docs" / "design").glob("*.md")]
    found += (CHECKOUT / "examples").glob("*/README.md")
    return sorted(page for page in found if page.name != "facts.md")


def all_pages() -> list[Path]:
    return sorted({*pages(), CHECKOUT / "CHANGELOG.md", *(CHECKOUT / "docs").rglob("*.md")})


def name_of(page: Path) -> str:
    return page.relative_to(CHECKOUT).as_posix()


def read(name: str) -> str:
    return (CHECKOUT / name).read_text(encoding="utf-8")


def blocks(name: str, *languages: str) -> list[Block]:
    """Return the blocks of a page in their order, of some languages or all."""
    text = read(name)
    found = [
        Block(name, match["info"].strip(), match["code"], text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def prose(text: str) -> str:
    """Return a page without its blocks."""
    return FENCE.sub("", text)


def lines_of(block: Block) -> list[str]:
    """Return the commands of a shell block: continued lines as one, without comments, prompts and output."""
    code = block.code.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:] for line in code.splitlines() if line.startswith("$ ")]
    return [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def barnabas_words(line: str) -> Iterator[list[str]]:
    """Yield the words of each call of `barnabas` in a line, without its name."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if set(word) <= set("|&;<>"):
            if words and Path(words[0]).name == "barnabas":
                yield words[1:]
            words = []
        else:
            words.append(word)


@cache
def command() -> Any:
    """`barnabas` with all its commands."""
    return build_command()


def parse(words: list[str]) -> None:
    """Have the real parser look at a call, without running it. Raises `NotTaken`."""
    _parse(command(), "barnabas", words, None)


def _parse(part: Any, name: str, words: list[str], parent: Any) -> None:
    try:
        context = part.make_context(name, list(words), parent=parent)
    except typer.Exit:  # --help, --version
        return
    rest = [*context._protected_args, *context.args]
    if hasattr(part, "resolve_command") and rest:
        found, following, further = part.resolve_command(context, rest)
        _parse(following, found, further, context)


@cache
def commands() -> dict[str, Any]:
    """Return every command and group by its words: `topics create`."""
    return dict(_below(command(), ()))


def _below(part: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, each in getattr(part, "commands", {}).items():
        if not each.hidden:
            yield " ".join((*path, name)), each
            yield from _below(each, (*path, name))


@cache
def flags() -> frozenset[str]:
    """Return every long option of any command."""
    found = {"--help", "--version", "--install-completion", "--show-completion"}
    for each in [command(), *commands().values()]:
        found |= {name for option in each.params for name in (*option.opts, *option.secondary_opts)}
    return frozenset(name for name in found if name.startswith("--"))
