"""Pollers, which find sockets that are ready: epoll, and the replacement on other systems."""

import socket
from collections.abc import Iterator

import pytest

from barnabas.adapters.transport_tcp.polling import READ, WRITE, Poller, make_poller


@pytest.fixture(params=["linux", "darwin"])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = make_poller(request.param)
    yield made
    made.close()


def observed(poller: Poller) -> list[int]:
    seen: list[int] = []
    for ready, events in poller.poll(0):
        ready(events)
        seen.append(events)
    return seen


def test_poll_returns_watched_events_only(poller: Poller) -> None:
    left, right = socket.socketpair()
    with left, right:
        seen: list[int] = []
        poller.watch(left.fileno(), READ, seen.append)
        assert len(poller) == 1
        assert observed(poller) == []
        right.send(b"x")
        assert observed(poller) == [READ]
        poller.watch(left.fileno(), READ | WRITE, seen.append)
        assert observed(poller) == [READ | WRITE]
        poller.watch(left.fileno(), WRITE, seen.append)
        assert observed(poller) == [WRITE]
        poller.watch(left.fileno(), 0, seen.append)
        poller.watch(left.fileno(), 0, seen.append)
        assert observed(poller) == []
        assert len(poller) == 0
        assert seen == [READ, READ | WRITE, WRITE]


def test_poll_reports_read_event_when_peer_closes(poller: Poller) -> None:
    left, right = socket.socketpair()
    with left:
        poller.watch(left.fileno(), READ, lambda events: None)
        right.close()
        assert observed(poller) == [READ]


def test_poll_binds_callback_at_time_of_event(poller: Poller) -> None:
    """While events are dispatched, a descriptor may be reused for another socket."""
    left, right = socket.socketpair()
    with right:
        poller.watch(left.fileno(), READ, lambda events: None)
        right.send(b"x")
        found = poller.poll(0)
        poller.watch(left.fileno(), 0, lambda events: None)
        left.close()
        assert [events for _, events in found] == [READ]
        assert poller.poll(0) == []
