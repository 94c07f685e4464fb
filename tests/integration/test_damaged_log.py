"""One bit of a broker's segment file flips: each reader reports the place or skips it; none waits for ever."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command import barnabas_here
from support.long_tests import first_is_quick
from support.waiting import wait_for

from barnabas import Broker, Consumer, Message, MirrorMaker, Producer, SimpleConsumer
from barnabas.core.message.batch_header import HEADER, LENGTH_OVERHEAD, is_crc_valid, parse_header
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.pipeline.load import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, BATCH = 300, 10
DAMAGED = range(150, 160)
"""The offsets of the batch that is hit, as they were."""
FIELDS = {"base offset low": (7, 1), "base offset high": (5, 4), "length": (11, 3), "magic": (16, 0), "crc": (18, 6),
          "lastOffsetDelta": (26, 3), "count": (60, 2), "payload": (80, 5)}  # fmt: skip
WAIT_S = 240


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a broker's folder, its segment file) with 300 messages in batches of 10."""
    folder = tmp_path_factory.mktemp("sound")
    with Broker(folder) as broker, Producer(broker) as producer:
        for first in range(0, COUNT, BATCH):
            messages = [Message(b"%d" % n, timestamp_ms=1_700_000_000_000 + n) for n in range(first, first + BATCH)]
            producer.send_many("t", messages, partition=0).result(WAIT_S)
    (segment,) = folder.glob("t-0/*.log")
    return folder, segment


@pytest.fixture(params=first_is_quick(FIELDS, 3))
def damaged(request: pytest.FixtureRequest, sound: tuple[Path, Path], tmp_path: Path) -> Iterator[Broker]:
    yield from _damaged(request.param, sound, tmp_path)


def _damaged(field: str, sound: tuple[Path, Path], tmp_path: Path) -> Iterator[Broker]:
    """Yield a broker that starts on a copy in which the field has one changed bit."""
    import shutil

    folder, segment = sound
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    file = copy / segment.relative_to(folder)
    data = bytearray(file.read_bytes())
    position = next(at for at, base in _batches(data) if base == DAMAGED.start)
    byte, bit = FIELDS[field]
    data[position + byte] ^= 1 << bit
    file.write_bytes(data)
    with Broker(copy, group_initial_rebalance_delay_ms=0) as broker:
        yield broker


def _batches(data: bytearray) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(data):
        base, length = HEADER.unpack_from(data, position)[:2]
        assert is_crc_valid(data, parse_header(data, position), position)
        yield position, base
        position += LENGTH_OVERHEAD + length


def _values(messages: Any) -> dict[int, bytes | None]:
    return {message.offset: message.value for message in messages}


def _right(offsets: Any) -> dict[int, bytes | None]:
    return {n: b"%d" % n for n in offsets}


def _check_left_out(found: dict[int, bytes | None], ranges: list[tuple[int, int]]) -> None:
    """The missing offsets are reported, and not many more than those of the batch."""
    observed = {n for start, end in ranges for n in range(start, end)}
    assert set(DAMAGED) <= observed
    assert found == _right(n for n in range(COUNT) if n not in observed)


def test_consumer_stops_at_damaged_batch_or_skips_it_on_request(damaged: Broker) -> None:
    found: dict[int, bytes | None] = {}
    with Consumer(damaged.bootstrap) as consumer:
        consumer.assign("t", position="earliest")
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 150") as error:
            for message in consumer.messages(stop_at_end=True, timeout=WAIT_S):
                found[message.offset] = message.value
    assert (error.value.partition, error.value.offset) == (0, 150)
    assert found == _right(range(150))
    with Consumer(damaged.bootstrap, skip_damaged=True) as consumer:
        consumer.assign("t", position="earliest")
        found = _values(consumer.messages(stop_at_end=True, timeout=WAIT_S))
        _check_left_out(found, [(d.start, d.end) for d in consumer.damaged])


def test_a_simple_consumer_and_a_member_of_a_group_do_so_too(damaged: Broker) -> None:
    with SimpleConsumer(damaged.bootstrap) as simple:
        pieces = simple.read("t", 0, 0, COUNT)
        found: dict[int, bytes | None] = {}
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 150"):
            for piece in pieces:
                found |= _values(piece)
        assert found == _right(range(150))
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 150"):
            simple.fetch("t", 0, 150)
    with Consumer(damaged.bootstrap, group_id="g", auto_offset_reset="earliest") as member:
        member.subscribe("t")
        found = {}
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 150"):
            for message in member.messages(stop_at_end=True, timeout=WAIT_S):
                found[message.offset] = message.value
        assert found == _right(range(150))


def test_the_command_ends_with_1_or_prints_the_rest(damaged: Broker) -> None:
    words = ("consume", "t", "--from", "beginning", "--stop-at-end", "--bootstrap", damaged.bootstrap)
    failed = barnabas_here(*words, expect=1)
    assert failed.stdout.split() == [b"%d" % n for n in range(150)]
    assert b"t-0 is damaged at offset 150" in failed.stderr
    assert b"--skip-damaged" in failed.stderr
    assert failed.stderr.count(b"\n") == 1
    rest = barnabas_here(*words, "--skip-damaged")
    assert set(map(int, rest.stdout.split())) <= {*range(150), *range(160, COUNT)}
    in_group = barnabas_here(*words, "--group", "cli", "--timeout", str(WAIT_S), expect=1)
    assert b"t-0 is damaged at offset 150" in in_group.stderr


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("field", ["payload", "base offset low", "length"])
def test_a_load_and_the_spark_source(
    spark: "SparkSession", field: str, sound: tuple[Path, Path], tmp_path: Path
) -> None:
    for broker in _damaged(field, sound, tmp_path):
        table = tmp_path / "table"
        words = ("load", "--topics", "t", "--into", table, "--bootstrap", broker.bootstrap)
        failed = barnabas_here(*words, expect=1)
        assert b"t-0 is damaged at offset 150" in failed.stderr
        assert b"--skip-damaged" in failed.stderr
        assert not list(table.glob("topic=*"))
        done = json.loads(barnabas_here(*words, "--skip-damaged", "--json").stdout)
        observed = [(d["start"], d["end"]) for d in done["damaged"]]
        frame = spark.read.format("barnabas").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "minPartitions": "3"}
        )
        with pytest.raises(Exception, match=r"t-0 is damaged at offset 1[0-9][0-9].*failOnDamage=false"):
            frame.load().count()
        rows = frame.option("failOnDamage", "false").load().select("offset", "value").collect()
        found = {row["offset"]: bytes(row["value"]) for row in rows}
        assert found.items() <= _right(range(COUNT)).items()
        assert not found.keys() & set(DAMAGED)
        assert done["rows"] == COUNT - sum(end - start for start, end in observed)
        _check_report(table, observed)
        again = load(broker.bootstrap, ["t"], table, spark=spark)
        assert (again.rows, list(again.damaged)) == (0, [])


def _check_report(table: Path, observed: list[tuple[int, int]]) -> None:
    out = barnabas_here("report", table, "--out", table.parent / "page.html")
    page = (table.parent / "page.html").read_text()
    for start, end in observed:
        assert f"t-0: offsets {start} to {end}" in page
        assert f"t-0: offsets {start} to {end}".encode() in out.stderr


@pytest.mark.parametrize("damaged", ["payload"], indirect=True)
def test_mirror_stops_at_damaged_batch_or_skips_it_on_request(damaged: Broker, tmp_path: Path) -> None:
    source = {"bootstrap.servers": damaged.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
    with Broker(storage="memory") as broker:
        target = {"bootstrap.servers": broker.bootstrap}
        mirror = MirrorMaker([source], target, whitelist="t")
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 150"), mirror:
            mirror.wait(WAIT_S)
        assert mirror.copied == 150
        with MirrorMaker([{**source, "skip.damaged": True}], target, whitelist="t") as again:
            wait_for(lambda: again.copied == 140, WAIT_S)
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign("t", position="earliest")
            values = [message.value for message in consumer.messages(stop_at_end=True, timeout=WAIT_S)]
        assert values == [b"%d" % n for n in (*range(150), *range(160, COUNT))]
