"""One bit of a classic broker's segment file flips: readers say where; the pipeline continues behind it on request."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for

from barnabas import Broker, ConsumerConnector, Producer, SimpleConsumer
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.pipeline.topics.connect import ClassicCluster
from barnabas.pipeline.topics.model import LATEST, ClusterPartition, Where
from barnabas.ports.errors import ApiError

VALUES = [b"value %02d" % n for n in range(30)]
SIZE = 10 + 8
HIT = 15
TP = ClusterPartition("t", 0, 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(
        tmp_path / "data",
        listeners=["classic://127.0.0.1:0"],
        log_flush_interval=1,
        log_flush_scheduler_interval_ms=20,
    ) as broker:
        with Producer(broker_list=f"0:{broker.bootstrap}", producer_type="sync") as producer:
            producer.send_many("t", VALUES)
        with SimpleConsumer(f"classic://{broker.bootstrap}") as consumer:  # produce has no acknowledgement there
            wait_for(lambda: consumer.offset_at("t", 0, LATEST) == len(VALUES) * SIZE)
        yield broker


def flip(tmp_path: Path, byte: int, bit: int) -> None:
    (segment,) = tmp_path.glob("data/t-0/*.kafka")
    with segment.open("r+b") as file:
        file.seek(HIT * SIZE + byte)
        (value,) = file.read(1)
        file.seek(HIT * SIZE + byte)
        file.write(bytes([value ^ 1 << bit]))


def test_readers_say_where(broker: Broker, tmp_path: Path) -> None:
    flip(tmp_path, 12, 3)
    match = rf"t-0 is damaged at offset {HIT * SIZE}: .*CRC"
    with SimpleConsumer(f"classic://{broker.bootstrap}") as consumer:
        found: list[bytes | None] = []
        with pytest.raises(CorruptRecord, match=match):
            found.extend(message.value for message in consumer.fetch("t", 0, 0))
        assert found == VALUES[:HIT]
    with ConsumerConnector(coordination=broker, groupid="g", autooffset_reset="smallest") as connector:
        stream = connector.create_message_streams({"t": 1})["t"][0]
        found = []
        with pytest.raises(CorruptRecord, match=match):
            found.extend(message.value for message in stream)
        assert found == VALUES[:HIT]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("byte", "bit"), [(12, 3), (3, 2), (3, 4), (2, 7), (1, 3), (0, 7), (4, 1), (4, 0), (5, 1), (6, 0), (9, 7)]
)
def test_pipeline_stops_at_damaged_message_or_skips_it_on_request(
    broker: Broker, tmp_path: Path, byte: int, bit: int
) -> None:
    flip(tmp_path, byte, bit)
    where, end = Where.of(f"classic://{broker.bootstrap}", {}), len(VALUES) * SIZE
    for chunk in ("4194304", "64"):
        strict = ClassicCluster(where, {"fetch.size": chunk})
        found: list[bytes | None] = []
        with pytest.raises(ApiError, match="t-0"):
            for piece in strict.read(TP, 0, end):
                found += piece.values
        assert found == VALUES[:HIT]
        strict.close()
        patient = ClassicCluster(where, {"fetch.size": chunk, "skip.damaged": "true"})
        pieces = list(patient.read(TP, 0, end))
        patient.close()
        assert [value for piece in pieces for value in piece.values] == [*VALUES[:HIT], *VALUES[HIT + 1 :]]
        observed = [(each.damage.start, each.damage.end) for each in pieces if each.damage is not None]
        assert observed[0][0] == HIT * SIZE
        assert observed[-1][1] == (HIT + 1) * SIZE
