"""Rows of a query as text: in a table that fits, or one value below the other."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from barnabas.pipeline.queries.output import chosen_format, print_rows
from barnabas.ports.errors import ConfigError

NAMES = ["Page", "n", "user"]
ROWS = [("/", 1, {"name": "ann", "languages": ["en", "de"]}), ("/a/long/name/of/a/page", 20_000, None)]


def printed(
    capsys: pytest.CaptureFixture[str], format_: str, *, width: int | None = None, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    if width is not None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    print_rows(NAMES, iter(ROWS), format_)
    return capsys.readouterr().out.splitlines()


def test_table_has_names_as_in_sql_and_whole_cells_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, "fitting", monkeypatch=monkeypatch) == [
        "Page                    n      user",
        '/                       1      {"name": "ann", "languages": ["en", "de"]}',
        "/a/long/name/of/a/page  20000",
    ]


def test_cells_are_cut_to_the_width_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, "fitting", width=45, monkeypatch=monkeypatch) == [
        "Page                n      user",
        '/                   1      {"name": "ann", "…',
        "/a/long/name/of/a…  20000",
    ]
    narrow = printed(capsys, "table", width=20, monkeypatch=monkeypatch)
    assert max(map(len, narrow)) <= 20
    assert narrow[1] == '/      1      {"na…'


def test_rows_are_vertical_where_a_table_would_be_too_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, "fitting", width=24, monkeypatch=monkeypatch)
    assert lines[:4] == ["-- row 1", "Page  /", "n     1", 'user  {"name": "ann", "languages": ["en", "de"]}']
    assert lines[-1] == "user"
    monkeypatch.undo()
    assert printed(capsys, "vertical", monkeypatch=monkeypatch) == lines


def test_wide_letters_and_line_ends_do_not_break_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    print_rows(["a", "b", "c"], iter([("日本", "two\nlines", moment), ("x", "\x1b[31m", b"\xff")]), "table")
    assert capsys.readouterr().out.splitlines() == [
        "a     b           c",
        "日本  two\\nlines  2026-01-31T12:00:00+00:00",
        "x     \\x1b[31m    \\xff",
    ]
    print_rows(["text"], iter([("two\nlines",)]), "vertical")
    assert capsys.readouterr().out.splitlines() == ["-- row 1", "text  two", "      lines"]


def test_only_the_first_thousand_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["n"], ((n,) for n in range(1001)), "table")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1001
    assert said.err == "only the first 1000 rows; all of them with --format csv or --out FILE\n"
    print_rows(["n"], ((n,) for n in range(1000)), "table")
    assert capsys.readouterr().err == ""


def test_format_of_a_file_is_none_of_those_for_people() -> None:
    assert chosen_format(None, None) == "fitting"
    with pytest.raises(ConfigError, match=r"say with --format what x\.txt is to be"):
        chosen_format("vertical", Path("x.txt"))
    with pytest.raises(ConfigError, match="--format is one of table, vertical, csv, json, parquet"):
        chosen_format("wide", None)
