"""Loads into folders by time, by a field, by the key; of topics one of which is broken; again and again."""

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from deltalake import DeltaTable

from barnabas import Admin, Broker, Message, Producer
from barnabas.pipeline.load import LoadResult, TopicsFailed, load
from barnabas.pipeline.load_command import load_rounds
from barnabas.pipeline.table import read_table
from barnabas.pipeline.tables import delta
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.state import TableError
from barnabas.ports.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

HOUR_MS = 3_600_000
START_MS = 19_700 * 24 * HOUR_MS


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as running:
        yield running


def _send(broker: Broker, topic: str, messages: list[Message], partitions: int = 1) -> None:
    with Admin(broker) as admin, Producer(broker) as producer:
        if topic not in admin.list_topics():
            admin.create_topic(topic, partitions=partitions)
        producer.send_many(topic, messages)
        producer.flush()


@pytest.mark.slow
def test_rows_lie_where_the_layout_says(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    def event(number: int) -> Message:
        country = ("de", "a/b %", None)[number % 3]
        value = json.dumps({"user": {"country": country}, "n": number}).encode()
        headers = (("region", b"south"),) if number % 2 else ()
        key = b"key-%d" % (number % 5)
        return Message(value, key=key, timestamp_ms=START_MS + number * HOUR_MS, headers=headers)

    _send(broker, "laid", [event(number) for number in range(30)])
    layout = "hour,field:user.country,header:region,key-hash:4"
    first = load(broker.bootstrap, ["laid"], tmp_path, spark=spark, partition_by=layout)
    assert first.rows == 30
    _send(broker, "laid", [event(1)])  # late: its hour has been loaded
    assert load(broker.bootstrap, ["laid"], tmp_path, spark=spark).rows == 1
    with pytest.raises(ConfigError, match=r"the table is partitioned by hour,field:user.country,.*, not by day"):
        load(broker.bootstrap, ["laid"], tmp_path, spark=spark, partition_by="day")
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["topic", "day", "hour", "user_country", "region", "key_hash"]
    found = table.to_pyarrow_table().to_pylist()
    assert len(found) == 31
    for row in found:
        number = json.loads(row["value"])["n"]
        moment = (START_MS + number * HOUR_MS) // HOUR_MS
        assert (row["timestamp"].date(), row["timestamp"].hour) == (row["day"], row["hour"])
        assert int(row["timestamp"].timestamp()) // 3600 == moment
        assert row["user_country"] == ("de", "a/b %", None)[number % 3]
        assert row["region"] == ("south" if number % 2 else None)
        assert row["key_hash"] == crc32(row["key"]) % 4
    assert sum(1 for row in found if json.loads(row["value"])["n"] == 1) == 2
    rows = read_table(spark, tmp_path).where("user_country = 'a/b %'")
    assert rows.count() == 11


@pytest.mark.slow
def test_old_days_make_a_file_each(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    messages = [Message(b"%d" % n, timestamp_ms=START_MS + n % 20 * 72 * HOUR_MS) for n in range(8_000)]
    _send(broker, "old", messages, partitions=2)
    by_day = load(broker.bootstrap, ["old"], tmp_path / "day", spark=spark)
    assert (by_day.rows, by_day.files) == (8_000, 20)
    by_month = load(broker.bootstrap, ["old"], tmp_path / "month", spark=spark, partition_by="month", format="parquet")
    assert (by_month.rows, by_month.files) == (8_000, 3)
    assert Counter(file.rows for file in open_store(tmp_path / "day").files()) == Counter({400: 20})


@pytest.mark.slow
def test_a_broken_topic_does_not_stop_the_others(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    for topic in ("fine", "shortened", "good"):
        _send(broker, topic, [Message(b"x")] * 10)
    topics = ["fine", "shortened", "good"]
    assert load(broker.bootstrap, topics, tmp_path, spark=spark).rows == 30
    for topic in topics:
        _send(broker, topic, [Message(b"x")] * 10)
    with Admin(broker) as admin:
        admin.delete_records({("shortened", 0): 15})
    with pytest.raises(TopicsFailed, match="shortened-0: offsets 10 to 15 were deleted") as caught:
        load(broker.bootstrap, [*topics, "missing"], tmp_path, spark=spark)
    assert sorted(caught.value.failed) == ["missing", "shortened"]
    assert caught.value.result.rows == 20
    last = open_store(tmp_path).last()
    assert last is not None
    assert {topic: state.next_offsets["0"] for topic, state in last.topics.items()} == {
        "fine": 20,
        "good": 20,
        "shortened": 10,
    }


@pytest.mark.slow
def test_one_round_after_the_other(
    spark: "SparkSession", broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _send(broker, "rounds", [Message(b"x")] * 5)
    counted = iter(range(3))

    def run(session: "SparkSession") -> LoadResult:
        number = next(counted)
        if number:
            _send(broker, "rounds", [Message(b"x")] * number)
        done = load(broker.bootstrap, ["rounds"], tmp_path, spark=session)
        if number == 2:
            raise KeyboardInterrupt
        return done

    with pytest.raises(KeyboardInterrupt):
        load_rounds(run, 0.01, ["rounds"], as_json=True, sessions=lambda: nullcontext(spark))
    decoder, text, observed = json.JSONDecoder(), capsys.readouterr().out.strip(), []
    while text:
        found, end = decoder.raw_decode(text)
        observed.append(found)
        text = text[end:].strip()
    assert [each["rows"] for each in observed] == [5, 1]
    assert 0 <= observed[1]["newest_age_s"]["rounds"] < 60
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 8


@pytest.mark.slow
def test_load_on_full_disk_raises_table_error_and_leaves_nothing(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _send(broker, "full", [Message(b"x")] * 10)
    assert load(broker.bootstrap, ["full"], tmp_path, spark=spark).rows == 10
    _send(broker, "full", [Message(b"x")] * 10)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(delta, "sync", full)
        with pytest.raises(TableError, match="No space left on device; nothing of this load is in the table"):
            load(broker.bootstrap, ["full"], tmp_path, spark=spark)
    assert DeltaTable(tmp_path).version() == 0
    assert not list((tmp_path / "_barnabas" / "staging").iterdir())
    assert load(broker.bootstrap, ["full"], tmp_path, spark=spark).rows == 10
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 20
