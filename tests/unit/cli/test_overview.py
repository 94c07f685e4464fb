"""The command line loads the module of one command, and none for `--help`."""

import pytest
from support.documents import commands
from typer.testing import CliRunner

from barnabas.app.cli.main import SUMMARIES, build_overview, first_word

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
