"""`pytest --late` makes things late."""

import random
import time
from threading import Event

import pytest
from support.late import KINDS
from support.waiting import PATIENCE_S

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.transport_tcp.reactor import Reactor


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is late, by the longest time."""
    monkeypatch.setattr(random, "random", lambda: 0.0)
    monkeypatch.setattr(random, "uniform", max)


def test_late_watches_are_called_later() -> None:
    heard = Event()
    with KINDS["watches"]():
        session = MemoryTree().session()
        session.create("/a")
        session.watch("/a", heard.set)
        began_s = time.monotonic()
        session.set("/a", b"x")
        assert heard.wait(PATIENCE_S)
        assert time.monotonic() - began_s > 0.4
        session.close()


@pytest.mark.parametrize("kind", ["timers", "offloaded"])
def test_late_work_of_a_reactor_is_done_later(kind: str) -> None:
    done: list[float] = []
    reactor = Reactor(pytest.fail)
    with KINDS[kind]():
        began_s = time.monotonic()
        if kind == "timers":
            reactor.call_later(1, lambda: done.append(time.monotonic()))
        else:
            reactor.offload(lambda: None, lambda _: done.append(time.monotonic()))
        while not done:
            reactor.turn(100)
    reactor.stop()
    assert done[0] - began_s > 0.1
