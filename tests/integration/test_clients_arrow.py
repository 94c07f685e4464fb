"""Topics read and written as Arrow tables, with a broker in this process, and damage by a scripted cluster."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from support.plain_cluster import PlainCluster, PlainConnector
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Consumer, Message, Producer, SimpleConsumer
from barnabas.app.clients.arrow.record_columns import HEADERS_TYPE
from barnabas.app.clients.shared.delivery import ManyHandle
from barnabas.core.client.errors import EncodeError
from barnabas.core.client.producer.handlers import CallbackHandler, ProducerItem
from barnabas.core.message.batch_header import write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.core.message.numbered_header import NumberedHeader
from barnabas.ports.errors import ApiError, BarnabasError, ConfigError
from barnabas.ports.types import TopicPartition

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
    with Broker(storage="memory", config=config) as broker:
        yield broker


def offsets(handle: ManyHandle) -> list[int]:
    return [-1 if isinstance(found, BarnabasError) else found.offset for found in handle.deliveries()]


def test_consumer_reads_topic_as_arrow_table(broker: Broker) -> None:
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
        consumer.poll_many(4, PATIENCE_S)
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


def test_fetch_arrow_with_read_committed_omits_aborted_messages(broker: Broker) -> None:
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


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_tables_that_are_sent_are_read_again(broker: Broker, codec: str) -> None:
    topic = f"sent-{codec}"
    rows = 3000
    table = pa.table(
        {
            "value": [None if n % 100 == 0 else f"v{n}" for n in range(rows)],
            "key": pa.array([b"k%d" % (n % 50) for n in range(rows)]),
            "timestamp": pa.array(range(rows), pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(rows)], HEADERS_TYPE),
            "of no interest": [0] * rows,
        }
    )
    with Producer(broker, compression_type=codec, batch_size=10_000) as producer:
        producer.send(topic, b"before", b"k1")
        assert producer.send_arrow(table, topic).result(PATIENCE_S) == rows
        producer.send(topic, b"after", b"k1")
    with Consumer(broker) as consumer:
        consumer.assign(topic, position="earliest")
        found = list(consumer.messages(stop_at_end=True))
    assert len(found) == rows + 2
    own = [b"v%d" % n for n in range(1, rows, 50)]
    assert [m.value for m in found if m.key == b"k1"] == [b"before", *own, b"after"]
    by_time = {m.timestamp_ms or 0: m for m in found if m.headers}
    assert all(m.headers == (("n", b"%d" % time),) and m.key == b"k%d" % (time % 50) for time, m in by_time.items())
    assert (len(by_time), by_time[100].value) == (rows, None)
    with Producer(broker) as producer:
        partition = producer.send(topic, b"as its key says", b"k7").result().partition
    assert {m.partition for m in found if m.key == b"k7"} == {partition}


def test_object_with_the_arrow_interface_is_sent(broker: Broker) -> None:
    import pandas
    import polars

    columns = {"key": ["a", "b"], "value": ["1", "2"], "partition": [0, 1]}
    tables = [polars.DataFrame(columns), pandas.DataFrame(columns), pa.record_batch(columns)]
    with Producer(broker) as producer:
        handles = [producer.send_arrow(table, "frames") for table in tables]
        assert [offsets(handle) for handle in handles] == [[0, 0], [1, 1], [2, 2]]
        with pytest.raises(ApiError, match="frames has 2 partitions, no 2"):
            producer.send_arrow(tables[0], "frames", partition=2)
        with pytest.raises(EncodeError, match="column 'value' must be binary or text, not int64"):
            producer.send_arrow(pa.table({"value": [1]}), "frames")
        with pytest.raises(EncodeError, match="a column 'value' is needed"):
            producer.send_arrow(pa.table({"key": [b""]}), "frames")
        with pytest.raises(ApiError, match=r"max\.request\.size"):
            producer.send_arrow(pa.table({"value": [b"x" * 2_000_000]}), "frames")
        assert producer.send_arrow(pa.table({"value": pa.array([], pa.string())}), "frames").result() == 0


def test_a_batch_that_a_broker_finds_too_large_is_sent_in_halves(broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("narrow", partitions=1, configs={"max.message.bytes": "2000"})
    table = pa.table({"value": [b"v%03d" % n for n in range(1000)]})
    with Producer(broker, batch_size=16_000) as producer:
        assert offsets(producer.send_arrow(table, "narrow")) == list(range(1000))
    with SimpleConsumer(broker) as consumer:
        read = pa.concat_tables(list(consumer.read_arrow("narrow", 0, 0)))
    assert read["value"].to_pylist() == table["value"].to_pylist()


def test_tables_in_transactions(broker: Broker) -> None:
    table = pa.table({"value": [b"a", b"b"], "partition": [0, 1]})
    with Producer(broker, transactional_id="tables") as producer:
        with producer.transaction():
            producer.send_arrow(table, "decided-tables")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send_arrow(table, "decided-tables")
            producer.flush()
            raise ZeroDivisionError
        with pytest.raises(BarnabasError):
            producer.send_arrow(table, "decided-tables")
    with Consumer(broker, isolation_level="read_committed") as consumer:
        consumer.assign("decided-tables", position="earliest")
        assert sorted(m.value or b"" for m in consumer.messages(stop_at_end=True)) == [b"a", b"b"]


def test_hooks_see_the_messages_of_a_table(broker: Broker) -> None:
    seen: list[object] = []

    class Notes(CallbackHandler):
        def before_enqueue(self, item: ProducerItem) -> ProducerItem:
            seen.append(item.value)
            return item

    class Headers(CallbackHandler):
        def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader | None:
            return NumberedHeader("no", b"h", 7)

    table = pa.table({"value": [b"a", b"b"]})
    with Producer(broker, callback_handler=Notes()) as producer:
        assert producer.send_arrow(table, "hooked").result(PATIENCE_S) == 2
    assert seen == [b"a", b"b"]
    with Producer(broker, callback_handler=Headers()) as producer:
        assert producer.send_arrow(table, "hooked", partition=1).result(PATIENCE_S) == 2
    with Consumer(broker) as consumer:
        consumer.assign(("hooked", 1), position="earliest")
        found = [m for m in consumer.messages(stop_at_end=True) if m.headers]
    assert [(m.value, m.headers[0][0], (m.headers[0][1] or b"")[-1]) for m in found] == [
        (b"a", "no", 7),
        (b"b", "no", 8),
    ]


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


def test_clients_of_the_classic_generation_say_that_they_know_no_arrow() -> None:
    with (
        Producer(broker_list="0:127.0.0.1:1") as producer,
        pytest.raises(ConfigError, match="a producer of the classic generation knows no Arrow"),
    ):
        producer.send_arrow(pa.table({"value": [b"v"]}), "t")
    with (
        SimpleConsumer("classic://127.0.0.1:1") as consumer,
        pytest.raises(ConfigError, match="a consumer of the classic generation knows no Arrow"),
    ):
        consumer.read_arrow("t", 0, 0)
