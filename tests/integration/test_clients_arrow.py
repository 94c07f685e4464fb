"""Topics read and written as Arrow tables, with a broker in this process, and damage by a scripted cluster."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from support.plain_cluster import PlainCluster, PlainConnector

from barnabas import Broker, Consumer, Message, Producer, SimpleConsumer
from barnabas.core.message.batch_header import write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.damage import CorruptRecord
from barnabas.ports.words import TopicPartition

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", config={"num.partitions": 2}) as broker:
        yield broker


def test_a_table_of_what_is_there(broker: Broker) -> None:
    with Producer(broker, compression_type="zstd") as producer:
        for number in range(50):
            producer.send(
                "read",
                b"v%d" % number,
                b"k",
                partition=number % 2,
                timestamp_ms=number,
                headers=[("h", b"%d" % number)],
            )
        producer.send("read", None, partition=0)
    with Consumer(broker, max_partition_fetch_bytes=300) as consumer:
        consumer.assign("read", position="earliest")
        found: list[dict[str, Any]] = []
        while len(found) < 51:
            table = consumer.fetch_arrow(5, headers=True)
            assert table.column_names == [*COLUMNS, "headers"]
            found += table.to_pylist()
        assert (consumer.position(("read", 0)), consumer.position(("read", 1))) == (26, 25)
        assert consumer.fetch_arrow().num_rows == 0
    rows = {(row["partition"], row["offset"]): row for row in found}
    assert len(rows) == 51
    row = rows[1, 3]
    assert (row["key"], row["value"], row["topic"], row["timestamp"].timestamp()) == (b"k", b"v7", "read", 0.007)
    assert (row["headers"], row["timestampType"]) == ([{"key": "h", "value": b"7"}], 0)
    assert (rows[0, 25]["value"], rows[0, 25]["headers"]) == (None, None)


def test_a_group_commits_what_was_handed_out(broker: Broker) -> None:
    with Producer(broker) as producer:
        producer.send_many("grouped", [b"%d" % n for n in range(10)], partition=0)
    with Consumer(broker, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("grouped")
        consumer.poll_many(4, 10)
        rest = consumer.fetch_arrow(10)
        assert rest["value"].to_pylist() == [b"%d" % n for n in range(4, 10)], "what poll has left of the chunk"
        consumer.commit()
        committed = consumer.committed([("grouped", 0)])[TopicPartition("grouped", 0)]
        assert committed is not None
        assert committed.offset == 10


def test_the_simple_consumer_reads_ranges(broker: Broker) -> None:
    with Producer(broker, batch_size=400) as producer:
        producer.send_many("simple", [b"%d" % n for n in range(100)], partition=1)
    with SimpleConsumer(broker) as consumer:
        table, after = consumer.fetch_arrow("simple", 1, 95)
        assert (table["offset"].to_pylist(), after) == ([95, 96, 97, 98, 99], 100)
        pieces = list(consumer.read_arrow("simple", 1, 10, 90))
        assert pa.concat_tables(pieces)["offset"].to_pylist() == list(range(10, 90))
        assert set(pieces[0]["partition"].to_pylist()) == {1}


def test_aborted_messages_are_for_nobody_who_reads_committed_ones(broker: Broker) -> None:
    with Producer(broker, transactional_id="writer") as producer:
        with producer.transaction():
            producer.send("decided", b"kept", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("decided", b"taken back", partition=0)
            producer.flush()
            raise ZeroDivisionError
    with SimpleConsumer(broker, isolation_level="read_committed") as consumer:
        table, after = consumer.fetch_arrow("decided", 0, 0)
        assert (table["value"].to_pylist(), after) == ([b"kept"], 4)


@pytest.fixture
def damaged() -> PlainCluster:
    """Three batches of three messages; the records of the second are nonsense under a right CRC."""
    cluster = PlainCluster(t=1)
    for number in range(0, 9, 3):
        batch = encode_batch([Message(b"%d" % n) for n in range(number, number + 3)], now_ms=0)
        if number == 3:
            batch[61] = 0x03
            write_crc(batch, 0, len(batch))
        cluster.append(T0, batch)
    return cluster


def test_damage_is_raised_behind_what_is_before_it(damaged: PlainCluster) -> None:
    with Consumer(PlainConnector(damaged)) as consumer:
        consumer.assign(T0, position="earliest")
        assert consumer.fetch_arrow(5)["offset"].to_pylist() == [0, 1, 2]
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 3"):
            consumer.fetch_arrow(5)
        consumer.seek(T0, 6)
        assert consumer.fetch_arrow(5)["offset"].to_pylist() == [6, 7, 8]
    with SimpleConsumer(PlainConnector(damaged)) as simple, pytest.raises(CorruptRecord, match="at offset 3"):
        list(simple.read_arrow("t", 0, 0))


def test_damage_is_left_out_on_request(damaged: PlainCluster) -> None:
    with Consumer(PlainConnector(damaged), skip_damaged=True) as consumer:
        consumer.assign(T0, position="earliest")
        found = consumer.fetch_arrow(5, rows=6)["offset"].to_pylist()
        assert found == [0, 1, 2, 6, 7, 8]
        assert [(d.start, d.end) for d in consumer.damaged] == [(3, 6)]
    with SimpleConsumer(PlainConnector(damaged), skip_damaged=True) as simple:
        assert simple.fetch_arrow("t", 0, 0)[0]["offset"].to_pylist() == [0, 1, 2, 6, 7, 8]
