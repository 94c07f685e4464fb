"""Other threads take turns in place of the reactor's thread while it sleeps."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.waiting import PATIENCE_S

from barnabas.adapters.transport_tcp.reactor import Reactor


def run_in_thread(reactor: Reactor) -> threading.Thread:
    thread = threading.Thread(target=reactor.run)
    thread.start()
    return thread


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(lends_turns=True)
    thread = run_in_thread(reactor)
    yield reactor
    reactor.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def run_here(reactor: Reactor, work: Callable[[], None]) -> None:
    """Run it here as soon as the reactor sleeps."""
    deadline = time.monotonic() + PATIENCE_S
    while not reactor.run_here(work):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_work_and_what_follows_runs_on_the_calling_thread(reactor: Reactor) -> None:
    seen: list[tuple[str, int, bool]] = []

    def note(what: str) -> None:
        seen.append((what, threading.get_ident(), reactor.is_lent_here))

    def work() -> None:
        note("work")
        reactor.call_soon(lambda: note("soon"))
        reactor.call_soon(lambda: reactor.call_soon(lambda: note("sooner or later")))

    run_here(reactor, work)
    here = threading.get_ident()
    assert seen == [("work", here, True), ("soon", here, True), ("sooner or later", here, True)]
    assert not reactor.is_lent_here


def test_timer_set_on_another_thread_fires_on_the_owner(reactor: Reactor) -> None:
    fired = threading.Event()
    threads: list[int] = []

    def fire() -> None:
        threads.append(threading.get_ident())
        fired.set()

    def work() -> None:
        reactor.call_later(20, fire)

    run_here(reactor, work)
    assert fired.wait(PATIENCE_S)
    assert threads != [threading.get_ident()]


def test_work_that_never_ends_passes_on_to_the_owner(reactor: Reactor) -> None:
    ended = threading.Event()
    left = 100

    def again() -> None:
        nonlocal left
        left -= 1
        (ended.set if left == 0 else lambda: reactor.call_soon(again))()

    run_here(reactor, again)
    assert ended.wait(PATIENCE_S)


def test_owner_that_works_lends_nothing(reactor: Reactor) -> None:
    working, may_end = threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        may_end.wait(PATIENCE_S)

    reactor.call_soon(work)
    assert working.wait(PATIENCE_S)
    assert not reactor.run_here(lambda: pytest.fail("two threads at once"))
    may_end.set()


def test_nested_call_is_refused(reactor: Reactor) -> None:
    answers: list[bool] = []
    run_here(reactor, lambda: answers.append(reactor.run_here(lambda: None)))
    assert answers == [False]


def test_reactor_that_does_not_lend_or_run_refuses() -> None:
    for reactor in (Reactor(), Reactor(lends_turns=True)):
        assert not reactor.run_here(lambda: None)
        reactor.stop()
        assert not reactor.run_here(lambda: None)


def test_error_of_the_work_is_reported_and_the_reactor_lives() -> None:
    reports: list[str] = []
    reactor = Reactor(reports.append, lends_turns=True)
    thread = run_in_thread(reactor)

    def fail() -> None:
        raise ValueError("a mistake")

    run_here(reactor, fail)
    assert "a mistake" in reports[0]
    run_here(reactor, lambda: None)
    reactor.stop()
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("end", [Reactor.stop, Reactor.abandon])
def test_end_from_within_lent_work_ends_the_owner(end: Callable[[Reactor], None]) -> None:
    reactor = Reactor(lends_turns=True)
    thread = run_in_thread(reactor)
    run_here(reactor, lambda: end(reactor))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert not reactor.run_here(lambda: None)


def test_no_two_threads_take_turns_at_once(reactor: Reactor) -> None:
    inside = most = done = 0

    def work() -> None:
        nonlocal inside, most, done
        inside += 1
        most = max(most, inside)
        time.sleep(0.0002)  # gives the interpreter to another thread
        inside -= 1
        done += 1

    def tick() -> None:
        work()
        if done < 400:
            reactor.call_later(0.3, tick)

    def begin_to_tick() -> None:
        reactor.call_later(0.3, tick)

    reactor.call_soon(begin_to_tick)

    def ask() -> None:
        for number in range(100):
            if number % 5:
                run_here(reactor, work)
            else:
                reactor.call_soon(work)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while done < 400:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert most == 1
