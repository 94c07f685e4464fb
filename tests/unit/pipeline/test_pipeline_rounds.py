"""Loading again and again: what goes wrong in a round, and the orderly end."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipeline.load import LoadResult, TopicsFailed
from barnabas.pipeline.load_command import Round, load_rounds, print_result, rounds
from barnabas.pipeline.tables.load_plan import TopicRecreated
from barnabas.ports.errors import BarnabasError, ConfigError

DONE = LoadResult(rows=3, files=1, commit=1, ranges=(), newest_ms={"t": 1})


class Java:
    """Of a session; it may die."""

    def __init__(self) -> None:
        self.dead = False

    def sc(self) -> "Java":
        return self

    def isStopped(self) -> bool:  # Java's name
        return self.dead


def _session() -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=Java()))


def test_failed_load_round_is_reported_and_next_round_runs() -> None:
    stop, told, sessions = Event(), list[Round](), list[Any]()

    def open_session() -> Any:
        sessions.append(_session())
        return nullcontext(sessions[-1])

    def run(spark: Any) -> LoadResult:
        if len(told) == 1:
            spark.sparkContext._jsc.dead = True
            raise BarnabasError("the broker is away")
        if len(told) == 2:
            stop.set()
        return DONE

    rounds(run, 0.0, stop, told.append, sessions=open_session)
    assert [(str(each.error), each.result) for each in told] == [
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
        load_rounds(run, 3600.0, as_json=False, sessions=lambda: nullcontext(_session()))
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
        load_rounds(run, 3600.0, as_json=as_json, sessions=lambda: nullcontext(_session()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print_result(DONE, failed, tmp_path, None, as_json=as_json)
    said = capsys.readouterr()
    assert "give --recreated replace" in said.out
    assert "not loaded: t: give --recreated replace" in said.err
    assert "recreated=" not in said.out + said.err
