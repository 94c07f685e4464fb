"""`barnabas top` at a terminal: what it shows, what keys do, and how it leaves."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.command import barnabas_here
from support.long_tests import first_is_quick
from support.process import COMMAND
from support.pseudo_terminal import AtTerminal
from support.waiting import PATIENCE_S

from barnabas import Admin
from barnabas.testing import TestBroker

pytestmark = pytest.mark.process


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


def top(broker: TestBroker) -> AtTerminal:
    return AtTerminal(["top", "--bootstrap", broker.bootstrap, "--interval", "0.6"])


def row(screen: list[str], name: str) -> list[str]:
    """Return the cells of the row that begins with this name."""
    return next((line.split() for line in screen if line.split()[:1] == [name]), [])


@pytest.mark.slow
def test_topics_with_rates_brokers_and_groups_with_lag(broker: TestBroker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.create_topic("views", partitions=1)
    broker.produce("orders", [b"x" * 1000] * 10, partition=0)
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 1, ("orders", 1): 0})
        behind = sum(each.lag or 0 for each in admin.group_lag("billing").values())
    assert behind == 9
    with top(broker) as terminal:
        screen = terminal.wait_for("orders", lambda screen: row(screen, "views")[2:3] == ["0"])
        assert row(screen, "orders")[1] == "2"
        assert row(screen, "orders")[4] == "10", "where its partitions end, in all"
        assert "__consumer_offsets" not in "\n".join(screen)
        broker.produce("orders", [b"x" * 1000] * 90)
        screen = terminal.wait_for(lambda screen: float(row(screen, "orders")[2]) > 0)
        assert row(screen, "views")[2:4] == ["0", "0B"]
        assert row(screen, "orders")[3].endswith("KiB"), "90 kB came within about a second"
        assert row(screen, "orders")[4] == "100"
        terminal.press("b")
        screen = terminal.wait_for("ADDRESS")
        assert any(broker.bootstrap in line and "up, controller" in line for line in screen)
        terminal.press("g")
        screen = terminal.wait_for("MEMBERS", lambda screen: row(screen, "billing")[4:5] == ["99"])
        assert [*row(screen, "billing")[1:5], row(screen, "billing")[-1]] == ["Empty", "classic", "0", "99", "orders"]
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.restored
        assert terminal.written.endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the screen of before"


def test_open_item_has_other_views_and_keys_are_explained(broker: TestBroker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", [b"x"] * 10, partition=1)
    with Admin(broker.bootstrap, client_id="desk") as admin, top(broker) as terminal:
        admin.alter_group_offsets("billing", {("orders", 1): 4})
        terminal.wait_for("orders")
        terminal.press("?")
        terminal.wait_for("what they do".upper(), "any key: back")
        terminal.press("?")
        terminal.wait_for("MESSAGES/S")
        terminal.press("enter")
        terminal.wait_for("topic orders: messages")
        terminal.press("\t")
        terminal.wait_for("ISR", lambda screen: row(screen, "1")[1:5] == ["1", "0", "0B", "10"])
        terminal.press("s")
        terminal.wait_for("by size")
        terminal.press("esc", "n", "g")
        terminal.wait_for("billing", lambda screen: row(screen, "billing")[4:5] == ["6"])
        terminal.press("enter")
        terminal.wait_for(
            "group billing: partitions", lambda screen: row(screen, "orders")[1:5] == ["1", "4", "10", "6"]
        )
        terminal.press("b", "enter")
        terminal.wait_for("connections", lambda screen: row(screen, "desk")[1:2] == ["barnabas"])
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.mark.slow
def test_a_filter_and_a_topic_that_is_opened_searched_and_paused(broker: TestBroker) -> None:
    for name in ("orders", "orders-old", "views"):
        broker.create_topic(name, partitions=1)
    broker.produce("views", [b"the first \x1b[2Jone"])
    with top(broker) as terminal:
        terminal.wait_for("orders", "views")
        terminal.press("/", "ORD")
        terminal.wait_for("/ORD", "orders-old", lambda screen: not row(screen, "views"))
        terminal.press("enter", "esc")
        terminal.wait_for("views")
        terminal.press("j", "down", "enter")
        screen = terminal.wait_for("topic views", "the first")
        assert any(r"the first \x1b[2Jone" in line for line in screen), "what a terminal would obey is shown as text"
        with broker.producer() as producer:
            producer.send("views", b"one more", key=b"a-key").result(PATIENCE_S)
        screen = terminal.wait_for("one more")
        order = [line for line in screen if "one more" in line or "the first" in line]
        assert "one more" in order[0], "the newest is the first"
        assert "a-key" in order[0]
        terminal.press("/", "first")
        terminal.wait_for("1 of the newest 2", lambda screen: not any("one more" in line for line in screen))
        terminal.press("backspace", "backspace", "backspace", "backspace", "backspace", "key=A-K", "enter")
        terminal.wait_for("one more", lambda screen: not any("the first" in line for line in screen))
        terminal.press("esc", "p")
        terminal.wait_for("PAUSED", "the first")
        broker.produce("views", [b"while it rests"])
        terminal.press("j")
        assert not any("while it rests" in line for line in terminal.wait_for("PAUSED"))
        terminal.press("p")
        terminal.wait_for("while it rests", lambda screen: not any("PAUSED" in line for line in screen))
        terminal.press("esc")
        terminal.wait_for("MESSAGES/S")
        terminal.press("ctrl-c")
        assert terminal.ended() == 0
        assert terminal.restored


@pytest.mark.slow
def test_a_cluster_that_goes_and_comes_back(broker: TestBroker) -> None:
    broker.create_topic("orders", partitions=1)
    with top(broker) as terminal:
        terminal.wait_for("orders")
        broker.stop()
        terminal.wait_for("does not answer", "orders")
        broker.start()
        broker.create_topic("later", partitions=1)
        terminal.wait_for("later", lambda screen: "does not answer" not in "\n".join(screen))
        broker.stop()
        terminal.press("q")
        assert terminal.ended() == 0


def test_the_window_has_another_size(broker: TestBroker) -> None:
    for number in range(30):
        broker.create_topic(f"topic-{number:02}", partitions=1)
    with top(broker) as terminal:
        terminal.wait_for("topic-24", lambda screen: len(screen) == 30)
        terminal.resize(60, 12)
        screen = terminal.wait_for(lambda screen: len(screen) == 12)
        assert max(map(len, screen)) <= 60
        terminal.press("\x1b[F")
        terminal.wait_for("topic-29", lambda screen: not row(screen, "topic-00"))


@pytest.mark.slow
def test_a_flood_is_passed_over(broker: TestBroker) -> None:
    broker.create_topic("busy", partitions=1)
    with top(broker) as terminal:
        terminal.wait_for("busy")
        terminal.press("enter")
        broker.produce("busy", [b"it is read now"])
        terminal.wait_for("topic busy", "it is read now")
        with broker.producer() as producer:
            producer.send_many("busy", [b"number %d" % number for number in range(20_000)]).result(PATIENCE_S)
        screen = terminal.wait_for("number 19999")
        passed = re.search(r"(\d+) more skipped", "\n".join(screen))
        assert passed is not None
        assert int(passed[1]) > 15_000, "so it was not read"
        assert "the newest 1000 messages" in "\n".join(screen), "and older ones are dropped"


@pytest.mark.parametrize("number", first_is_quick([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_restores_the_terminal(broker: TestBroker, number: signal.Signals) -> None:
    with top(broker) as terminal:
        terminal.wait_for("b brokers")
        assert not terminal.restored
        terminal.process.send_signal(number)
        assert terminal.ended() == 0
        assert terminal.restored


def test_a_fault_restores_the_terminal() -> None:
    code = "from barnabas.app.cli.top.command import Terminal\nwith Terminal() as it: it.show(['up']); 1 / 0"
    with AtTerminal(["-c", code], program=sys.executable) as terminal:
        assert terminal.ended() == 1
        assert terminal.restored
        _, left, after = terminal.written.partition("\x1b[?1049l")
        assert left
        assert "ZeroDivisionError" in after, "the page has its address"


def test_without_a_terminal_it_is_one_look(broker: TestBroker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", [b"one", b"two"])
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 0})
    out = barnabas_here("top", "--bootstrap", broker.bootstrap).stdout.decode()
    assert "\x1b" not in out
    assert re.search(rf"{broker.bootstrap} .*up, controller", out)
    assert re.search(r"^orders +2 +- +- +2 ", out, re.MULTILINE)
    assert re.search(r"^billing +Empty +classic +0 +\d +- +\S+ +orders$", out, re.MULTILINE)


@pytest.mark.slow
def test_top_without_broker_exits_at_once_with_error() -> None:
    with AtTerminal(["top", "--bootstrap", "127.0.0.1:1"]) as terminal:
        assert terminal.ended() == 1
        assert "no broker there" in terminal.written
        assert terminal.restored
    done = subprocess.run([COMMAND, "top", "-b", "127.0.0.1:1"], capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, b"")
