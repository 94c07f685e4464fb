"""The command line loads the module of one command, and none for `--help`."""

from pathlib import Path

import pytest
from support.documents import commands
from typer.testing import CliRunner

from barnabas.app.cli.main import PLAIN_OPTIONS, SUMMARIES, build_overview, first_word, plain_options

WIDTH = 80


def test_help_lists_every_command_with_its_whole_summary() -> None:
    names = [name for name in commands() if " " not in name]
    shown = CliRunner().invoke(build_overview(), ["--help"], env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)})
    assert shown.exit_code == 0
    listed = dict(
        line.strip().split(maxsplit=1) for line in shown.output.partition("Commands:\n")[2].splitlines() if line
    )
    assert sorted(listed) == sorted(names)
    assert listed == {name: SUMMARIES[name] for name in listed}


def test_unknown_command_names_similar_ones() -> None:
    result = CliRunner().invoke(build_overview(), ["topcs"])
    assert result.exit_code == 2
    assert "Did you mean 'topics'" in result.output


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["topics", "list"], "topics"),
        (["--profile", "dev", "topics"], "topics"),
        (["--profile=dev", "topics"], "topics"),
        (["--profile"], None),
        (["--help"], None),
        ([], None),
    ],
)
def test_first_word_is_the_command(words: list[str], first: str | None) -> None:
    assert first_word(words) == first


def test_plain_options_are_those_of_serve() -> None:
    parameters = {each.name: each for each in commands()["serve"].params}
    for option, (name, kind, repeated) in PLAIN_OPTIONS.items():
        assert option in parameters[name].opts
        assert parameters[name].multiple == repeated
        assert (type(parameters[name].type).__name__ == "TyperPath") == (kind is Path), option


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["serve"], {}),
        (["serve", "--data", "d", "--config=c"], {"data": Path("d"), "config": Path("c")}),
        (["serve", "--set", "a=b=c", "--set=d=e"], {"settings": ["a=b=c", "d=e"]}),
        (["serve", "--data"], None),
        (["serve", "--data", "--listen"], None),
        (["serve", "-h"], None),
        (["serve", "--workers", "2"], None),
        (["serve", "--secure"], None),
        (["serve", "more"], None),
        (["--profile", "dev", "serve"], None),
        (["topics"], None),
        ([], None),
    ],
)
def test_words_with_plain_options_only_need_no_typer(words: list[str], options: dict[str, object] | None) -> None:
    assert plain_options(words) == options
