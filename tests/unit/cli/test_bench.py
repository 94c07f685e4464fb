"""`barnabas bench`: what is measured, and how rounds are compared."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread
from typing import Any
from xml.etree import ElementTree

import pytest

from barnabas.app.cli.bench.clients import Acknowledged, Passed, Workload, in_threads, shares
from barnabas.app.cli.bench.command import (
    Measurement,
    Side,
    axis,
    figures,
    interleave,
    latency,
    page,
    parse_volume,
    percentile,
    produce,
    ratios,
)
from barnabas.app.cli.bench.servers import PEERS, MeasuredServer, NotInstalledError
from barnabas.ports.errors import ConfigError

WORKLOAD = Workload(messages=1_000, size=200)
NO_SERVER = MeasuredServer("nowhere:0")


class StallingClient:
    """Acknowledges at once, but for one message, at which it stalls."""

    start = 0

    def __init__(self, stalls_at: int = -1, stall_s: float = 0.0) -> None:
        self._stalls_at, self._stall_s, self._number = stalls_at, stall_s, 0

    def send(self, messages: int, passed: Passed) -> None:
        for _ in range(10):
            passed(messages // 10)

    def receive(self, messages: int, passed: Passed) -> None:
        self.send(messages, passed)

    def start_timed(self) -> None:
        pass

    def send_one(self, body: bytes, acknowledged: Acknowledged) -> None:
        if self._number == self._stalls_at:
            time.sleep(self._stall_s)
        self._number += 1
        acknowledged()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        pass

    def follow(self, arrived: Callable[[bytes], bool]) -> Thread:
        raise NotImplementedError

    def transactions(self, number: int, messages: int) -> None:
        pass

    def close(self) -> None:
        pass


def test_latency_counts_from_the_intended_time() -> None:
    side = Side("stalling", StallingClient(stalls_at=5, stall_s=0.2), NO_SERVER)
    run = latency(side, WORKLOAD, rate=1_000, seconds=0.1, end_to_end=False)
    assert run.lost == 0
    assert len(run.latencies_ms) == 100
    # Every message of the stall was late by what was left of it, not the one alone that met it.
    assert percentile(run.latencies_ms, 0.5) > 100
    assert max(run.latencies_ms) >= 200
    assert 100 < percentile(run.late_ms, 0.5) <= percentile(run.latencies_ms, 0.5)  # which says who was late
    (row,) = figures({("latency", "stalling"): [run]}, WORKLOAD)
    assert row["late_p50_ms"]["median"] > 100


def test_curve_has_the_rates_over_the_megabytes() -> None:
    run = produce(Side("a", StallingClient(), NO_SERVER), WORKLOAD)
    assert [megabytes for megabytes, _ in run.curve] == pytest.approx([0.02 * number for number in range(1, 11)])
    assert all(rate > 0 for _, rate in run.curve)
    assert run.cpu_seconds is None


def test_sides_take_turns_in_another_order_each_round() -> None:
    asked = []
    sides = [Side(name, StallingClient(), NO_SERVER) for name in "ab"]

    def work(side: Side) -> Measurement:
        asked.append(side.name)
        return Measurement(1.0, 1)

    runs = interleave(sides, {"w": work}, 3, lambda _: None)
    assert asked == ["a", "b", "b", "a", "a", "b"]
    assert {key: len(each) for key, each in runs.items()} == {("w", "a"): 3, ("w", "b"): 3}


def test_ratios_are_medians_of_the_ratios_of_rounds() -> None:
    runs = {
        ("produce", "ours"): [Measurement(1.0, 100), Measurement(1.0, 400), Measurement(1.0, 300)],
        ("produce", "theirs"): [Measurement(1.0, 100, 2.0), Measurement(1.0, 100, 2.0), Measurement(1.0, 100, 2.0)],
    }
    (ratio,) = ratios(runs, "ours")
    assert ratio == {"work": "produce", "beside": "theirs", "figure": "rate", "median": 3.0, "min": 1.0, "max": 4.0}
    rows = figures(runs, WORKLOAD)
    assert str(rows[0]["messages_per_s"]["median"]) == "300"
    assert rows[0]["messages_per_s"] == {"median": 300, "min": 100, "max": 400}
    assert rows[1]["cpu_us_per_message"] == 20_000


@pytest.mark.parametrize(
    ("sent", "connections", "expected"),
    [
        ([10, 20, 30], 1, [([0, 1, 2], 60)]),
        ([10, 20, 30], 2, [([0, 2], 40), ([1], 20)]),
        ([10], 3, [([0], 3), ([0], 3), ([0], 3)]),
    ],
)
def test_connections_share_the_partitions(sent: list[int], connections: int, expected: list[Any]) -> None:
    assert shares(sent, connections) == expected


def test_error_of_a_thread_is_raised() -> None:
    def fails() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        in_threads([fails, lambda: None])


def test_volume_is_a_number_with_a_unit() -> None:
    assert parse_volume("10MB") == 10_000_000
    assert parse_volume("10gb") == 10_000_000_000
    for text in ("10", "MB", "1.5GB", "10 TB"):
        with pytest.raises(ConfigError, match="--volume"):
            parse_volume(text)


@pytest.mark.parametrize("name", PEERS)
def test_server_that_is_not_installed_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "rabbitmq":
        pytest.skip("the Debian package has one place, which may be there")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    said, start, _ = PEERS[name]
    with ExitStack() as stack, pytest.raises(NotInstalledError, match=rf"^{said.split()[0]}.* is not measured: .+"):
        stack.enter_context(start())


def test_curve_is_smoothed_and_its_axis_has_round_numbers() -> None:
    bursts = [(0.1 * (number + 1), 1e6 if number % 2 else 1e3) for number in range(20)]
    runs = {("produce", "Barnabas"): [Measurement(1.0, 100, None, bursts)]}
    (row,) = figures(runs, WORKLOAD)
    assert all(1_990 < rate < 2_020 for _, rate in row["curve"][9::2])
    assert axis([1.0, 430_000.0], [300_000.0, 100_000.0]) == (False, [100_000.0 * number for number in range(6)])
    assert axis([900.0, 430_000.0], [300_000.0, 1_000.0]) == (True, [100.0, 1e3, 1e4, 1e5, 1e6])


def test_page_has_the_figures_and_is_well_formed() -> None:
    sides = [Side(name, StallingClient(), NO_SERVER) for name in ("Barnabas", "A <peer> & more")]
    works = {"produce": lambda side: produce(side, WORKLOAD)}
    runs = interleave(sides, works, 2, lambda _: None)
    result = {
        **dict.fromkeys(("partitions", "connections", "rounds"), 1),
        "messages": 1_000,
        "size": 200,
        "acks": "all",
        "compression": "none",
        "machine": "Linux",
        "results": figures(runs, WORKLOAD),
        "ratios": ratios(runs, "Barnabas"),
        "skipped": ["NATS is not measured: <no> program"],
    }
    text = page(result)
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert len(svg.findall("polyline")) == 2
    assert "the paper, batches of 50" in text
    assert "A &lt;peer&gt; &amp; more" in text
    assert "&lt;no&gt;" in text
    assert "http" not in text
