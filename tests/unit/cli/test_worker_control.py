"""The channel between the parent of workers and a worker."""

import socket
from collections.abc import Iterator
from threading import Event

import pytest

from barnabas.app.compose import worker_control
from barnabas.app.compose.worker_control import (
    BROKERS,
    HEALTHY,
    METRICS,
    READY,
    ControlledWorker,
    WorkerControl,
    WorkerSilent,
)


@pytest.fixture
def parent() -> Iterator[ControlledWorker]:
    controlled = ControlledWorker()
    yield controlled
    controlled.connect(None)


@pytest.fixture
def worker(parent: ControlledWorker) -> WorkerControl:
    ours, theirs = socket.socketpair()
    parent.connect(ours)
    return WorkerControl(theirs)


def test_worker_that_starts_is_healthy_and_not_ready(parent: ControlledWorker, worker: WorkerControl) -> None:
    assert (parent.ask(HEALTHY), parent.ask(METRICS), parent.ask(BROKERS)) == (b"", b"", b"")
    assert parent.ask(READY) == b"the broker is starting"
    assert (parent.known_brokers(), parent.under_replicated()) == (None, None)


def test_answers_of_any_size_come_back(parent: ControlledWorker, worker: WorkerControl) -> None:
    worker.show(lambda: b"m" * 3_000_000, lambda: "stuck", lambda: None)
    worker.show_cluster(lambda: (2, [1, 2]), lambda: 3)
    assert parent.ask(METRICS) == b"m" * 3_000_000
    assert (parent.ask(HEALTHY), parent.ask(READY)) == (b"stuck", b"")
    assert (parent.known_brokers(), parent.under_replicated()) == ((2, {1, 2}), 3)


def test_late_answer_is_not_taken_for_the_next_one(
    parent: ControlledWorker, worker: WorkerControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = Event()
    monkeypatch.setattr(worker_control, "ANSWER_S", 0.05)

    def slow() -> bytes:
        assert released.wait(60)
        return b"late"

    worker.show(slow, lambda: None, lambda: "why not")
    with pytest.raises(WorkerSilent, match="it has not answered within") as silent:
        parent.ask(METRICS)
    assert silent.value.runs
    monkeypatch.setattr(worker_control, "ANSWER_S", 60.0)
    released.set()
    assert parent.ask(READY) == b"why not"


def test_ended_worker_is_silent_until_the_next_one_is_connected(parent: ControlledWorker) -> None:
    with pytest.raises(WorkerSilent, match="it does not run"):
        parent.ask(READY)
    ours, theirs = socket.socketpair()
    parent.connect(ours)
    theirs.close()
    with pytest.raises(WorkerSilent, match="it has ended") as silent:
        parent.ask(READY)
    assert not silent.value.runs
    again, theirs = socket.socketpair()
    parent.connect(again)
    WorkerControl(theirs)
    assert parent.ask(HEALTHY) == b""
