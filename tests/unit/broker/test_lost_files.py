"""Missing records are reported at the next start, with their offsets; no offset is given to another message."""

from typing import Any

import pytest

from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ITSELF, ManualBroker

VALUES = [b"value %02d" % number for number in range(12)]
SEGMENT_BYTES = 250
"""For three batches."""
CHECKPOINT_MS = 60_000


def broker_with(topic: str = "t", **settings: Any) -> ManualBroker:
    broker = ManualBroker(log_segment_bytes=SEGMENT_BYTES, **settings)
    broker.create(topic)
    for value in VALUES:
        broker.produce(topic, value)
    assert bases(broker, topic) == [0, 3, 6, 9]
    return broker


def bases(broker: ManualBroker, topic: str = "t") -> list[int]:
    return sorted(int(name[:20]) for name in broker.disk.folders[f"{topic}-0"] if name.endswith(".log"))


def content(broker: ManualBroker, base: int, topic: str = "t") -> bytearray:
    return broker.disk.folders[f"{topic}-0"][f"{base:020d}.log"].data


def remove(broker: ManualBroker, base: int, topic: str = "t") -> None:
    folder = broker.disk.folders[f"{topic}-0"]
    for name in [name for name in folder if name.startswith(f"{base:020d}.") and not name.endswith(".snapshot")]:
        del folder[name]


def end(broker: ManualBroker, in_order: bool) -> None:
    """Stop, or leave the files of the data folder as they are some time before one."""
    broker.scheduler.advance(0 if in_order else CHECKPOINT_MS)
    before = dict(broker.disk.root)
    broker.stop()
    if not in_order:
        broker.disk.root.clear()
        broker.disk.root.update(before)
    broker.lines.clear()


def begin(broker: ManualBroker) -> list[str]:
    """Start; returns what is said to be lost."""
    broker.node = broker._started()
    return [line for line in broker.reports if "lost" in line or "missing" in line]


@pytest.mark.parametrize("in_order", [True, False])
def test_nothing_is_said_where_nothing_is_missing(in_order: bool) -> None:
    broker = broker_with()
    for _ in range(2):
        end(broker, in_order)
        assert begin(broker) == []
        assert broker.values("t") == VALUES


@pytest.mark.parametrize("in_order", [True, False])
def test_a_missing_segment_in_the_middle(in_order: bool) -> None:
    broker = broker_with()
    end(broker, in_order)
    remove(broker, 3)
    (line,) = begin(broker)
    assert line == "t-0: offsets 3 to 5 are lost: its segment is missing"
    assert broker.values("t") == [*VALUES[:3], *VALUES[6:]]


def test_a_missing_segment_at_the_beginning_after_an_orderly_stop() -> None:
    broker = broker_with()
    end(broker, True)
    remove(broker, 0)
    assert begin(broker) == ["t-0: offsets 0 to 2 are lost: its segment is missing"]
    assert broker.fetch("t", 0).partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_shortened_segment_in_the_middle(in_order: bool, left: int) -> None:
    broker = broker_with()
    end(broker, in_order)
    del content(broker, 3)[left * len(content(broker, 3)) // 3 :]
    (line,) = begin(broker)
    assert line.startswith(f"t-0: offsets {3 + left} to 5 are lost: {3:020d}.log has ")
    assert broker.values("t") == [*VALUES[: 3 + left], *VALUES[6:]]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_shortened_newest_segment_after_an_orderly_stop(left: int) -> None:
    broker = broker_with()
    end(broker, True)
    del content(broker, 9)[left * len(content(broker, 9)) // 3 :]
    (line,) = begin(broker)
    assert line.startswith(f"t-0: offsets {9 + left} to 11 are lost: the recovery point is 12, but")
    assert broker.fetch("t", 9 + left).partitions[0].error is ErrorCode.CORRUPT_MESSAGE, "no reader waits there"
    assert broker.produce("t", b"new").base_offset == 12
    assert broker.values("t", 12) == [b"new"]
    end(broker, True)
    assert begin(broker) == []
    assert broker.values("t") == [*VALUES[: 9 + left], b"new"]


def test_records_lost_after_consumers_read_them_are_reported() -> None:
    broker = broker_with()
    end(broker, False)
    del content(broker, 9)[:]
    (line,) = begin(broker)
    assert line.startswith("t-0: offsets 9 to 11 are lost: consumers may have read them")


@pytest.mark.parametrize("in_order", [True, False])
def test_a_missing_folder(in_order: bool) -> None:
    broker = broker_with()
    end(broker, in_order)
    del broker.disk.folders["t-0"]
    lines = begin(broker)
    known = 12 if in_order else 9  # what was flushed at the last roll
    assert f"t-0: offsets 0 to {known - 1} are lost" in lines[-1]
    assert [line for line in lines if "t-0 is missing" in line] == lines[:-1]
    assert len(lines) == 1 + in_order
    assert broker.produce("t", b"new").base_offset == known
    end(broker, in_order)
    assert begin(broker) == []


def test_a_shortened_topic_of_offsets() -> None:
    broker = broker_with(offsets_topic_num_partitions=1, offsets_topic_segment_bytes=SEGMENT_BYTES)
    broker.create("__consumer_offsets", 1)
    for value in VALUES:
        records = memoryview(encode_batch([Message(value, b"key")], now_ms=1))
        entry = ProducePartition("__consumer_offsets", 0, records)
        assert broker.ask(Produce(partitions=[entry], acks=1), ITSELF).partitions[0].error is ErrorCode.NONE
    end(broker, True)
    newest = bases(broker, "__consumer_offsets")[-1]
    before = len(content(broker, newest, "__consumer_offsets"))
    del content(broker, newest, "__consumer_offsets")[before - 1 :]
    (line,) = begin(broker)
    assert line.startswith("__consumer_offsets-0: offsets ")


def test_records_removed_by_retention_are_not_reported_as_loss() -> None:
    broker = broker_with(log_retention_bytes=SEGMENT_BYTES, log_retention_check_interval_ms=1000)
    broker.scheduler.advance(2_000)
    assert bases(broker)[0] > 0
    end(broker, False)
    assert begin(broker) == []
