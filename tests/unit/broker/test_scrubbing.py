"""Closed segments are compared with their checksums in the background, slowly, and damage is reported."""

from typing import Any

import pytest

from barnabas.ports.report import Level, Line
from barnabas.testing.manual_broker import ManualBroker

SEGMENT_BYTES = 1_000
VALUES = [b"value %03d" % number + bytes(100) for number in range(60)]
FIRST_MS = 60_000


def broker_with(**settings: Any) -> ManualBroker:
    broker = ManualBroker(log_segment_bytes=SEGMENT_BYTES, **settings)
    broker.create("t")
    for value in VALUES:
        broker.produce("t", value)
    return broker


def rot(broker: ManualBroker, number: int) -> str:
    folder = broker.disk.folders["t-0"]
    name = sorted(name for name in folder if name.endswith(".log"))[number]
    folder[name].data[500] ^= 1
    return name


def figures(broker: ManualBroker) -> Any:
    scrubbing = broker.node._scrubbing
    assert scrubbing is not None
    return scrubbing.scrubber.figures


def closed_bytes(broker: ManualBroker) -> int:
    log = broker.node.state.replicas.partitions["t", 0].log
    return sum(segment.size for segment in log.segments[:-1])


def test_every_closed_segment_is_read_once_in_an_interval() -> None:
    broker = broker_with(log_scrub_interval_ms=10 * FIRST_MS)
    count = len(broker.node.state.replicas.partitions["t", 0].log.segments) - 1
    broker.wait(FIRST_MS + 5_000)
    assert (figures(broker).segments, figures(broker).bytes) == (count, closed_bytes(broker))
    broker.wait(5 * FIRST_MS)
    assert figures(broker).segments == count
    broker.wait(6 * FIRST_MS)
    assert figures(broker).segments == 2 * count
    assert figures(broker).damaged == 0
    assert not broker.reports


def test_scrubber_keeps_to_configured_bytes_per_second() -> None:
    rate = 100
    broker = broker_with(log_scrub_io_max_bytes_per_second=rate)
    broker.wait(FIRST_MS)
    for second in range(1, 20):
        broker.wait(1_000)
        assert figures(broker).bytes <= (second + 1) * rate + SEGMENT_BYTES
    assert figures(broker).bytes > 5 * rate
    broker.wait(10_000 * closed_bytes(broker) / rate)
    assert figures(broker).bytes == closed_bytes(broker)


def test_nothing_is_read_at_a_rate_of_zero() -> None:
    broker = broker_with(log_scrub_io_max_bytes_per_second=0)
    rot(broker, 1)
    broker.wait(10 * FIRST_MS)
    assert figures(broker).bytes == 0


def test_damage_without_another_replica_is_an_error_once_and_the_rest_is_served() -> None:
    broker = broker_with()
    rotten = rot(broker, 1)
    broker.wait(FIRST_MS + 5_000)
    errors = [line for line in broker.lines if isinstance(line, Line) and line.level >= Level.ERROR]
    (line,) = errors
    assert rotten in line
    assert "cannot be repaired" in line
    assert "no other replica" in line
    assert figures(broker).damaged == 1
    assert broker.metrics.value("kafka_log_logscrubber_damaged_segments") == 1
    broker.wait(60 * FIRST_MS)
    assert [each for each in broker.lines if isinstance(each, Line) and each.level >= Level.ERROR] == errors
    assert broker.values("t", 30) == VALUES[30:]


def test_a_reader_that_comes_upon_damage_has_the_segment_checked_at_once() -> None:
    broker = broker_with(log_scrub_io_max_bytes_per_second=0)
    folder = broker.disk.folders["t-0"]
    name = sorted(name for name in folder if name.endswith(".log"))[1]
    folder[name].data[:] = bytes(len(folder[name].data))
    base = int(name[:20])
    broker.restart()
    broker.fetch("t", base)
    broker.wait(1_000)
    assert figures(broker).damaged == 1


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_broker_that_stops_ends_the_check(in_the_middle: bool) -> None:
    broker = broker_with(log_scrub_io_max_bytes_per_second=500)
    broker.wait(FIRST_MS + (1_000 if in_the_middle else -1_000))
    broker.stop()
    read = figures(broker).bytes
    broker.wait(10 * FIRST_MS)
    assert figures(broker).bytes == read


def test_repeated_fetches_of_damaged_segment_log_one_error() -> None:
    broker = broker_with(log_scrub_io_max_bytes_per_second=0)
    folder = broker.disk.folders["t-0"]
    name = sorted(name for name in folder if name.endswith(".log"))[1]
    folder[name].data[:] = bytes(len(folder[name].data))
    broker.restart()
    for _ in range(30):
        broker.fetch("t", int(name[:20]))
        broker.wait(11_000)
    errors = [line for line in broker.lines if isinstance(line, Line) and "cannot be repaired" in line]
    assert len(errors) == 1


def test_scrubber_continues_when_a_suspected_log_is_deleted_before_its_check() -> None:
    broker = broker_with(log_scrub_interval_ms=10 * FIRST_MS)
    broker.create("gone")
    broker.produce("gone", b"x")
    log = broker.node.state.replicas.partitions["gone", 0].log
    scrubbing = broker.node._scrubbing
    assert scrubbing is not None
    scrubbing.scrubber.check_soon(log, 0)
    broker.node.state.logs.delete(log.topic_partition)
    broker.wait(FIRST_MS + 5_000)
    assert figures(broker).segments == len(broker.node.state.replicas.partitions["t", 0].log.segments) - 1
