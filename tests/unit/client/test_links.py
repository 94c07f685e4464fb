"""Connections to brokers: opened when needed, delayed after failures, closed once."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.client.network.links import LinkDependencies, Links, NodeLink
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Request
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import Address, TransportError

HOME: Address = ("home", 1)
ASK = Metadata(topics=[])
LOST = TransportError("lost")


class Wire:
    """One connection; the test answers."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []
        self.closed = 0

    def submit(self, request: Request[Any], caller: Caller, reply: Callable[[Any], None]) -> None:
        assert (request, caller.client_id) == (ASK, "me")
        self.asked.append(reply)

    def close(self) -> None:
        self.closed += 1
        asked, self.asked = self.asked, []
        for reply in asked:
            reply(TransportError("closed"))


class Net:
    """Attempts to connect, which the test brings to an end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.attempts: list[tuple[Address, Callable[[BrokerLink | TransportError], None]]] = []
        self.outside = LinkDependencies(
            scheduler=self.scheduler,
            clock=self.clock,
            entropy=SeededEntropy(1),
            connect=lambda address, opened: self.attempts.append((address, opened)),
            caller=Caller(client_id="me"),
            reconnect_backoff_ms=100,
            reconnect_backoff_max_ms=300,
        )

    def open(self) -> Wire:
        wire = Wire()
        self.attempts.pop(0)[1](wire)
        return wire

    def refuse(self) -> None:
        self.attempts.pop(0)[1](TransportError("refused"))


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def link(net: Net) -> NodeLink:
    return NodeLink(HOME, net.outside)


def ask(link: NodeLink) -> list[Any]:
    box: list[Any] = []
    link.submit(ASK, box.append)
    return box


def test_requests_wait_for_one_connection(net: Net, link: NodeLink) -> None:
    assert not net.attempts
    first, second = ask(link), ask(link)
    assert [address for address, _ in net.attempts] == [HOME]
    wire = net.open()
    third = ask(link)
    for number, reply in enumerate(wire.asked):
        reply(number)
    assert (first, second, third) == ([0], [1], [2])


def test_a_refusal_fails_what_waits_and_puts_off_the_next_attempt(net: Net, link: NodeLink) -> None:
    waits: list[float] = []
    for _ in range(4):
        box, before = ask(link), net.clock.monotonic_ms()
        net.scheduler.run_until(lambda: bool(net.attempts))
        waits.append(net.clock.monotonic_ms() - before)
        assert not box
        net.refuse()
        assert [str(error) for error in box] == ["refused"]
    assert waits[0] == 0
    for wait, base in zip(waits[1:], (100, 200, 300), strict=True):
        assert 0.8 * base <= wait <= 1.2 * base


def test_an_answer_ends_the_putting_off(net: Net, link: NodeLink) -> None:
    for _ in range(3):
        ask(link)
        net.scheduler.run_until(lambda: bool(net.attempts))
        net.refuse()
    ask(link)
    net.scheduler.run_until(lambda: bool(net.attempts))
    wire = net.open()
    wire.asked.pop()("fine")
    ask(link)
    wire.asked.pop()(LOST)
    assert wire.closed == 1
    ask(link)
    net.scheduler.advance(79)
    assert not net.attempts
    net.scheduler.advance(42)
    assert len(net.attempts) == 1


def test_a_broker_that_hangs_up_at_once_is_asked_ever_more_rarely(net: Net, link: NodeLink) -> None:
    for base in (0, 100, 200):
        before = net.clock.monotonic_ms()
        box = ask(link)
        net.scheduler.run_until(lambda: bool(net.attempts))
        assert 0.8 * base <= net.clock.monotonic_ms() - before <= 1.2 * base
        net.open().asked.pop()(LOST)
        assert box == [LOST]


def test_a_loss_fails_everything_under_way_once(net: Net, link: NodeLink) -> None:
    first, second = ask(link), ask(link)
    wire = net.open()
    wire.asked.pop(0)(LOST)
    assert first == [LOST]
    assert [str(error) for error in second] == ["closed"]
    assert wire.closed == 1


def test_closing_fails_what_waits_and_takes_no_late_connection(net: Net, link: NodeLink) -> None:
    waiting = ask(link)
    link.close()
    assert [str(error) for error in waiting] == ["the connection to home:1 was given up"]
    assert net.open().closed == 1
    assert isinstance(ask(link)[0], TransportError)
    assert not net.attempts


def test_close_cancels_delayed_connect_attempt(net: Net, link: NodeLink) -> None:
    ask(link)
    net.refuse()
    waiting = ask(link)
    link.close()
    assert len(waiting) == 1
    net.scheduler.advance(10_000)
    assert not net.attempts


def test_a_node_that_moved_gets_a_new_connection(net: Net) -> None:
    homes: dict[int, Address] = {1: HOME}
    links, box = Links(net.outside, homes.get), list[Any]()
    links.submit(1, ASK, box.append)
    old = net.open()
    homes[1] = ("elsewhere", 1)
    links.submit(1, ASK, box.append)
    assert old.closed == 1
    assert isinstance(box.pop(), TransportError)
    assert net.attempts[0][0] == ("elsewhere", 1)
    net.open().asked.pop()("there")
    assert box == ["there"]
    del homes[1]
    links.submit(1, ASK, box.append)
    assert isinstance(box[-1], BarnabasError)
    assert "left the cluster" in str(box[-1])


def test_links_report_answering_and_unreachable_nodes(net: Net) -> None:
    heard: list[tuple[int, bool]] = []
    links, box = Links(net.outside, {1: HOME}.get, lambda node, answers: heard.append((node, answers))), list[Any]()
    links.submit(1, ASK, box.append)
    net.refuse()
    assert heard == [(1, False)]
    links.submit(1, ASK, box.append)
    net.scheduler.run_until(lambda: bool(net.attempts))
    wire = net.open()
    wire.asked.pop()("fine")
    assert heard[1:] == [(1, True)]
    links.submit(1, ASK, box.append)
    wire.asked.pop()(LOST)
    assert heard[2:] == [(1, False)]
    assert len(box) == 3


def test_requests_in_flight_to_a_removed_broker_fail_at_once(net: Net) -> None:
    """It may be paused: its answer would come after the request timeout, if at all."""
    homes: dict[int, Address] = {1: HOME, 2: ("other", 1)}
    links, box = Links(net.outside, homes.get), list[Any]()
    for node in homes:
        links.submit(node, ASK, box.append)
    left, stays = net.open(), net.open()
    del homes[1]
    links.tidy()
    assert (left.closed, stays.closed) == (1, 0)
    assert [str(error) for error in box] == ["closed"]
    stays.asked.pop()("fine")
    assert box[1:] == ["fine"]
