"""Readers that stand still: those that do not react are replaced, and what brokers withhold stays an anomaly."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos import watchdog as module
from chaos.checker import check
from chaos.clients import TOPIC
from chaos.fake_readers import ALL, GIVEN_BEFORE
from chaos.history import History, Poll, Replacement
from chaos.processes import ReaderProcess
from chaos.watchdog import MOST, Spans, Watchdog, read_by_both, read_by_librdkafka, read_by_ours, read_spans
from support.process import BrokerProcess
from support.waiting import wait_for

from barnabas import Admin, Producer

pytestmark = pytest.mark.process

STILL_S, REACT_S = 0.2, 0.3
FAKES = "chaos.fake_readers"


def _found_all(_: Spans) -> str:
    return ""


@contextmanager
def _fake(
    kind: str, folder: Path, witness: Callable[[Spans], str] = _found_all
) -> Iterator[tuple[ReaderProcess, Watchdog, History]]:
    """A reader that was given few messages, of a topic of which another client was given all."""
    history = History()
    history.final = {0: [(offset, f"value-{offset}") for offset in range(ALL)]}
    history.polls += [Poll("our-reader", 0, 0, offset, f"value-{offset}", 0.0) for offset in range(ALL)]
    watchdog = Watchdog(history, time.monotonic, witness, still_s=STILL_S, react_s=REACT_S)
    reader = ReaderProcess("reader", history, str(folder), time.monotonic, role=f"{FAKES}:{kind}")
    reader.start()
    try:
        wait_for(lambda: reader.given == GIVEN_BEFORE)
        watchdog.look(reader)
        time.sleep(STILL_S)
        yield reader, watchdog, history
    finally:
        reader.abandon()


def _skipped(history: History, reader: ReaderProcess) -> int:
    history.drained = {reader.name}
    return check(history).counts.get("group-skip", 0)


@pytest.mark.slow
def test_reader_that_does_not_react_is_replaced_by_one_from_the_start(tmp_path: Path) -> None:
    asked: list[Spans] = []

    def witness(spans: Spans) -> str:
        asked.append(spans)
        return ""

    with _fake("FakeReader", tmp_path, witness) as (reader, watchdog, history):
        watchdog.look(reader)
        wait_for(lambda: reader.given == GIVEN_BEFORE + ALL)
        assert asked == [{0: (GIVEN_BEFORE, ALL)}]
        assert [each.client for each in history.replaced] == ["reader"]
        assert history.replaced[0].stacks
        assert {poll.session for poll in history.polls if poll.client == "reader"} == {0, 1}
        assert _skipped(history, reader) == 0
        watchdog.look(reader)
        time.sleep(STILL_S)
        watchdog.look(reader)  # it has all: nothing stands still
        reader.stop(60)
        assert len(history.replaced) == 1


def test_reader_that_reacts_is_not_replaced_and_what_was_withheld_is_an_anomaly(tmp_path: Path) -> None:
    with _fake("WithheldReader", tmp_path) as (reader, watchdog, history):
        for _ in range(3):
            watchdog.look(reader)
            time.sleep(STILL_S)
        assert not history.replaced
        assert _skipped(history, reader) == ALL - GIVEN_BEFORE


def test_reader_is_not_replaced_while_no_witness_reads_to_the_end(tmp_path: Path) -> None:
    with _fake("FakeReader", tmp_path, lambda _: "our consumer did not read to the end") as (reader, watchdog, history):
        watchdog.look(reader)
        assert not history.replaced
        assert "our consumer did not" in history.not_replaced[0]
        assert _skipped(history, reader) == ALL - GIVEN_BEFORE


def test_reader_that_was_replaced_often_is_not_replaced_again(tmp_path: Path) -> None:
    with _fake("FakeReader", tmp_path) as (reader, watchdog, history):
        history.replaced += [Replacement("reader", 0.0, "", "")] * MOST
        watchdog.look(reader)
        assert len(history.replaced) == MOST
        assert f"replaced {MOST} times" in history.not_replaced[0]


@pytest.mark.slow
def test_reader_that_does_not_react_when_it_closes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.processes.REACT_S", REACT_S)
    with _fake("FakeReader", tmp_path) as (reader, _, history):
        reader.stop(0.1)
        assert [each.why for each in history.replaced] == ["it did not react when it closed"]


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "is_replaced"), [("stuck", True), ("reacts", False)])
def test_checker_that_stands_still_is_replaced_only_if_it_does_not_react(
    topic: str, is_replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History()
    monkeypatch.setattr(module, "read_by_ours", lambda *_: "")
    monkeypatch.setattr("chaos.processes.REACT_S", REACT_S)

    def read() -> object:
        role, given = f"{FAKES}:FakeSpan", (str(tmp_path), topic, {0: (0, 2)}, time.monotonic)
        return read_spans(history, *given, patience_s=2, role=role)

    if is_replaced:
        assert read() == {0: [(0, "value-0"), (1, "value-1")]}
        assert [each.client for each in history.replaced] == [f"checker of {topic}"]
    else:
        with pytest.raises(TimeoutError, match="it reacts"):
            read()
        assert not history.replaced


# --- with a broker and librdkafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("watchdog") / "data")
    with Admin(process.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=6)
    yield process
    process.stop()


def _send(broker: BrokerProcess, client: str, first: int, last: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(first, last):
            producer.send(TOPIC, f"{client}.{number}".encode(), partition=0)


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "watched"])
def test_stopped_process_of_librdkafka_is_replaced(broker: BrokerProcess, group: str | None) -> None:
    history = History()
    watchdog = Watchdog(
        history,
        time.monotonic,
        lambda spans: read_by_both(broker.bootstrap, TOPIC, spans),
        still_s=STILL_S,
        react_s=REACT_S,
    )
    _send(broker, "one", 0, 5)
    reader = ReaderProcess("reader", history, broker.bootstrap, time.monotonic, group=group)
    reader.start()
    try:
        wait_for(lambda: reader.given >= 5)
        assert reader.child is not None
        assert reader.child.reacts()
        assert reader.child.answer == "reader#consumer-1 answered with 0"
        os.kill(reader.child.pid, signal.SIGSTOP)
        before = reader.given
        _send(broker, "two", 0, 5)
        end = max(poll.offset for poll in history.polls) + 6
        history.final = {0: [(end - 1, "last")]}
        watchdog.look(reader)
        time.sleep(STILL_S)
        watchdog.look(reader)
        assert not history.not_replaced
        assert [each.client for each in history.replaced] == ["reader"]
        wait_for(lambda: any(poll.offset == end - 1 for poll in list(history.polls)))
        assert reader.given > before
        reader.stop(60)
    finally:
        reader.abandon()


@pytest.mark.slow
def test_witnesses_do_not_read_from_a_broker_that_withholds(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WITNESS_S", 1.0)
    _send(broker, "three", 0, 1)
    with Admin(broker.bootstrap) as admin:
        (end,) = admin.list_offsets({(TOPIC, 0): "latest"}).values()
    assert read_by_librdkafka(broker.bootstrap, TOPIC, {0: (0, end + 1)})
    assert "partitions [0]" in read_by_ours(broker.bootstrap, TOPIC, {0: (0, end + 1)})
    monkeypatch.setattr(module, "WITNESS_S", 60.0)
    assert read_by_both(broker.bootstrap, TOPIC, {0: (end - 1, end), 1: (0, 0)}) == ""
