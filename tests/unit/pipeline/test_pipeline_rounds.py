"""Loading again and again: what goes wrong in a round, and the orderly end."""

import json
import os
import signal
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from barnabas.app.cli.times import age_text
from barnabas.pipeline.load import NOTHING, LoadProgress, LoadResult, TopicsFailed
from barnabas.pipeline.load_command import Round, _round_facts, load_rounds, print_result, rounds, say_progress
from barnabas.pipeline.progress_output import PlainLines, TerminalLine, progress_output
from barnabas.pipeline.tables.load_plan import TopicRecreated
from barnabas.ports.errors import BarnabasError, ConfigError

DONE = LoadResult(rows=3, files=1, commit=1, ranges=(), newest_ms={"t": 1})


class Java:
    """The Java process of a session; it may die."""

    def __init__(self) -> None:
        self.dead = False

    def sc(self) -> "Java":
        return self

    def isStopped(self) -> bool:  # Java's name
        return self.dead


def _session() -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=Java()))


def test_failed_load_round_is_reported_and_next_round_runs() -> None:
    stop, observed, sessions = Event(), list[Round](), list[Any]()

    def open_session() -> Any:
        sessions.append(_session())
        return nullcontext(sessions[-1])

    def run(spark: Any) -> LoadResult:
        if len(observed) == 1:
            spark.sparkContext._jsc.dead = True
            raise BarnabasError("the broker is away")
        if len(observed) == 2:
            stop.set()
        return DONE

    rounds(run, 0.0, stop, observed.append, sessions=open_session)
    assert [(str(each.error), each.result) for each in observed] == [
        ("None", DONE),
        ("the broker is away", None),
        ("None", DONE),
    ]
    assert len(sessions) == 2, "the one whose Java was dead is replaced"


def test_permanent_error_ends_the_rounds() -> None:
    def run(_spark: Any) -> LoadResult:
        raise ConfigError("no such setting")

    with pytest.raises(ConfigError, match="no such setting"):
        rounds(run, 0.0, Event(), lambda _: None, sessions=lambda: nullcontext(_session()))


def test_a_signal_ends_it_after_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(_spark: Any) -> LoadResult:
        os.kill(os.getpid(), signal.SIGTERM)
        return DONE

    try:
        load_rounds(run, 3600.0, ["t"], as_json=False, sessions=lambda: nullcontext(_session()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    (line,) = capsys.readouterr().out.splitlines()
    assert "3 new rows in 1 file; newest row " in line


@pytest.mark.parametrize("as_json", [False, True])
def test_partial_topic_failure_message_names_command_flags(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"t": TopicRecreated("t: set recreated='replace'")}
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(_spark: Any) -> LoadResult:
        os.kill(os.getpid(), signal.SIGTERM)
        raise TopicsFailed(failed, DONE)

    try:
        load_rounds(run, 3600.0, ["t"], as_json=as_json, sessions=lambda: nullcontext(_session()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print_result(DONE, failed, tmp_path, None, as_json=as_json)
    said = capsys.readouterr()
    assert "give --recreated replace" in said.out
    assert "not loaded: t: give --recreated replace" in said.err
    assert "recreated=" not in said.out + said.err


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]])
def test_json_of_a_round_names_every_failed_topic_when_all_fail(
    topics: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {topic: TopicRecreated(f"{topic}: was deleted") for topic in topics}
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(_spark: Any) -> LoadResult:
        os.kill(os.getpid(), signal.SIGTERM)
        raise TopicsFailed(failed, NOTHING, all_failed=True) if len(topics) > 1 else failed["t"]

    try:
        load_rounds(run, 3600.0, topics, as_json=True, sessions=lambda: nullcontext(_session()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    printed = json.loads(capsys.readouterr().out)
    assert printed["failed"] == {topic: f"{topic}: was deleted" for topic in topics}
    assert printed["rows"] == 0


def test_json_of_a_round_without_a_broker_has_the_error_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert _round_facts(Round(began=datetime.now(UTC), error=BarnabasError("away")), ["t"]).keys() == {"began", "error"}


def test_progress_of_a_load_is_said_in_steps_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_output(quiet=False) as output:
        say = say_progress(output, tmp_path)
        say(LoadProgress(step="plan"))
        say(LoadProgress(step="start", rows=11_368, topics={"orders": 11_367, "views": 1}))
        say(LoadProgress(step="read", rows=11_368))
        say(LoadProgress(step="read", rows=11_368, rows_read=10_000))
        say(LoadProgress(step="commit", rows=11_368, rows_read=11_368))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "looking for new messages ...",
        "orders: 11,367 new messages",
        "views: 1 new message",
        "starting Spark ...",
        "reading 0 of 11,368",
        "reading 11,368 of 11,368",
        f"committing to {tmp_path} ...",
    ], "of numbers that follow quickly the first and the last"
    with progress_output(quiet=True) as output:
        say_progress(output, tmp_path)(LoadProgress(step="plan"))
    assert capsys.readouterr().err == ""


def test_plain_progress_says_numbers_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.0, 6.0, 7.0])
    output = PlainLines(clock=lambda: next(now))
    for done in (1, 2, 3, 4):
        output.count("reading", done * 1000, 9000)
    assert capsys.readouterr().err.splitlines() == ["reading 1,000 of 9,000", "reading 3,000 of 9,000"]


def test_progress_on_a_terminal_is_one_line_and_lasting_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_output(quiet=False) as output:
        assert isinstance(output, TerminalLine)
        output.print_line("orders: 3 new messages")
        output.step("starting Spark")
        output.count("reading", 2, 3)
        assert [(task.description, task.completed, task.total) for task in output.bar.tasks] == [
            ("reading 2 of 3", 2, 3)
        ]
        output.step("committing")
        assert [(task.description, task.completed, task.total) for task in output.bar.tasks] == [
            ("committing ...", 0, None)
        ]
    said = capsys.readouterr()
    assert said.out == ""
    assert "orders: 3 new messages" in said.err


def test_deleted_offsets_before_first_load_are_said_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = evolve(NOTHING, deleted=["t-0: offsets 0 to 9 were deleted before this first load; nothing is left"])
    print_result(done, {}, tmp_path, None, as_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out)["deleted"] == list(done.deleted)
    assert "t-0: offsets 0 to 9 were deleted" in said.err


def test_ages_are_said_in_one_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    print_result(evolve(DONE, newest_ms={"t": now_ms - 250_000}), {}, tmp_path, None, as_json=False)
    assert capsys.readouterr().out.rstrip().endswith("; newest row 4 min old")
    assert [age_text(ms) for ms in (-5, 119_999, 120_000, 7_199_999, 7_200_000, 172_800_000)] == [
        "0 s", "119 s", "2 min", "119 min", "2 h", "2 d",
    ]  # fmt: skip
