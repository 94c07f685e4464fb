"""The reactor fulfils the contract of a scheduler, and has a life of its own."""

import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from support.waiting import PATIENCE_S

from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.ports.errors import ClosedError
from barnabas.ports.scheduler import Outcome
from barnabas.testing.contracts.scheduler import SchedulerContract


class ReactorHarness:
    threads = True

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.reactor = self.scheduler = Reactor(self.reports.append)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            self.reactor.turn(100)

    def stop(self) -> None:
        self.reactor.stop()


@pytest.fixture
def harness() -> Iterator[ReactorHarness]:
    harness = ReactorHarness()
    yield harness
    harness.stop()


class TestReactor(SchedulerContract):
    pass


def test_calls_from_other_threads_wake_it(harness: ReactorHarness) -> None:
    seen: list[int] = []
    threads = [
        threading.Thread(target=harness.reactor.call_soon, args=(lambda base=base: seen.append(base),))
        for base in range(8)
    ]
    for thread in threads:
        thread.start()
    harness.run_until(lambda: len(seen) == 8)
    for thread in threads:
        thread.join()


def test_reactor_runs_until_another_thread_stops_it() -> None:
    reactor = Reactor()
    started = threading.Event()
    reactor.call_soon(started.set)
    thread = threading.Thread(target=reactor.run)
    thread.start()
    assert started.wait(PATIENCE_S)
    answers: list[int] = []
    answered = threading.Event()
    reactor.call_soon(lambda: answers.append(threading.get_ident()))
    reactor.call_soon(answered.set)
    assert answered.wait(PATIENCE_S)
    reactor.stop()
    reactor.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert answers == [thread.ident]
    with pytest.raises(ClosedError):
        reactor.call_soon(lambda: None)
    with pytest.raises(ClosedError):
        reactor.call_later(1, lambda: None)
    with pytest.raises(ClosedError):
        reactor.offload(lambda: None, lambda _outcome: None)
    reactor.run()


def test_work_under_way_is_finished_before_it_stops() -> None:
    reactor = Reactor(workers=1)
    go = threading.Event()
    done: list[Outcome[bool]] = []
    for _ in range(3):
        reactor.offload(lambda: go.wait(PATIENCE_S), done.append)
    reactor.call_soon(reactor.stop)
    reactor.at_stop(go.set)
    reactor.run()
    assert [outcome.get() for outcome in done] == [True, True, True]


def test_nothing_that_waits_is_done_once_it_was_abandoned() -> None:
    reports: list[str] = []
    reactor = Reactor(reports.append, workers=1)
    go = threading.Event()
    seen: list[str] = []
    reactor.at_stop(go.set)
    reactor.at_stop(lambda: reactor.call_soon(lambda: seen.append("asked at the stop")))
    reactor.call_soon(lambda: seen.append("before"))
    reactor.call_soon(lambda: reactor.offload(lambda: go.wait(PATIENCE_S), lambda _outcome: seen.append("worked")))
    reactor.call_soon(reactor.abandon)
    reactor.call_soon(lambda: seen.append("after"))
    reactor.call_later(1, lambda: seen.append("timer"))
    reactor.run()
    reactor.abandon()
    assert seen == ["before"]
    assert reports == []
    with pytest.raises(ClosedError):
        reactor.call_soon(lambda: None)


def test_work_requested_by_callbacks_during_stop_still_runs() -> None:
    reactor = Reactor()
    seen: list[str] = []
    reactor.at_stop(lambda: reactor.call_soon(lambda: seen.append("asked at the stop")))
    reactor.call_soon(lambda: seen.append("asked before"))
    reactor.stop()
    assert seen == ["asked before", "asked at the stop"]


def test_a_callback_that_repeats_itself_does_not_prevent_the_stop() -> None:
    reactor = Reactor()

    def again() -> None:
        reactor.call_soon(again)

    again()
    reactor.stop()


def test_every_call_from_a_thread_runs_or_is_refused() -> None:
    reactor = Reactor()
    ran: list[int] = []
    accepted: list[int] = []

    def caller() -> None:
        number = 0
        try:
            while True:
                reactor.call_soon(partial(ran.append, number))
                accepted.append(number)
                number += 1
        except ClosedError:
            pass

    reactor.call_later(30, reactor.stop)
    thread = threading.Thread(target=caller)
    thread.start()
    reactor.run()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert ran == accepted


def test_the_switch_interval_is_put_back() -> None:
    before = sys.getswitchinterval()
    inside: list[float] = []
    reactor = Reactor()
    reactor.call_soon(lambda: inside.append(sys.getswitchinterval()))
    reactor.call_soon(reactor.stop)
    reactor.run(switch_interval_ms=0.5)
    assert inside == [pytest.approx(0.0005)]
    assert sys.getswitchinterval() == before


def test_an_interrupt_in_a_callback_leaves_run_and_closes() -> None:
    reactor = Reactor()

    def interrupt() -> None:
        raise KeyboardInterrupt

    reactor.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        reactor.run()
    with pytest.raises(ClosedError):
        reactor.call_soon(lambda: None)


def test_sockets_are_watched_as_asked(harness: ReactorHarness) -> None:
    left, right = socket.socketpair()
    with left, right:
        seen: list[int] = []
        before = harness.reactor.watched
        harness.reactor.watch(left, selectors.EVENT_READ, seen.append)
        harness.reactor.turn(0)
        assert seen == []
        right.send(b"x")
        harness.run_until(lambda: bool(seen))
        assert seen[0] == selectors.EVENT_READ
        harness.reactor.watch(left, selectors.EVENT_WRITE, seen.append)
        seen.clear()
        harness.reactor.turn(0)
        assert seen == [selectors.EVENT_WRITE]
        harness.reactor.watch(left, 0, seen.append)
        harness.reactor.watch(left, 0, seen.append)
        assert harness.reactor.watched == before


def test_a_socket_callback_that_raises_is_reported(harness: ReactorHarness) -> None:
    left, right = socket.socketpair()
    with left, right:

        def bad(_events: int) -> None:
            left.recv(10)
            raise ValueError("in a socket callback")

        harness.reactor.watch(left, selectors.EVENT_READ, bad)
        right.send(b"x")
        harness.run_until(lambda: bool(harness.reports))
        harness.reactor.watch(left, 0, bad)
    assert len(harness.reports) == 1


def test_cancelled_timers_do_not_pile_up(harness: ReactorHarness) -> None:
    for _ in range(10_000):
        harness.reactor.call_later(600_000, lambda: None).cancel()
    assert harness.reactor.timers == 0
    assert len(harness.reactor._timers._heap) < 1000
