"""The Python of docs/spark.md runs as written."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_the_page_does_as_it_says(
    spark: "SparkSession", checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (checkout / "docs" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    with Broker(storage="memory", coordination="memory") as broker:
        with Admin(broker) as admin:
            for topic in ("events", "shouted", "copies"):
                admin.create_topic(topic, partitions=2)
        with Producer(broker) as producer:
            producer.send_many("events", [b"one", b"two", b"three"])
        observed: list[Any] = []
        queries: list[Any] = []
        names: dict[str, Any] = {"print": observed.append, "spark": spark}  # as in a pyspark shell
        for block in blocks:
            code = block.replace("127.0.0.1:9092", broker.bootstrap)
            code = code.replace('"checkpoint', f'"{tmp_path}/checkpoint')  # Java is somewhere else
            if " watch(" in code:  # a stream that continues while it is watched
                code = code.replace("print(", "look(watching), print(")
                names["look"] = lambda watching: queries.append(_begin_watched(spark, broker, tmp_path, watching))
            exec(compile(code, "docs/spark.md", "exec"), names)  # our own page
        queries.pop().stop()
        assert names["per_key"].collect()[0]["count"] == 3
        with Consumer(broker) as consumer:
            consumer.assign(["shouted", "copies"], position="earliest")
            found = sorted(str(message.value) for message in consumer.messages(stop_at_end=True))
    assert found == sorted(map(str, [b"ONE", b"TWO", b"THREE", b"one", b"two", b"three"]))
    assert observed == [{"watched": 0}]
    assert '{"events": {' in (tmp_path / "checkpoint-for-kafka" / "offsets" / "0").read_text(encoding="utf-8")


def _begin_watched(spark: "SparkSession", broker: Broker, folder: Path, watching: Any) -> Any:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "events", "startingOffsets": "earliest"}
    lines = spark.readStream.format("barnabas").options(**options).load()
    writer = lines.writeStream.format("noop").queryName("watched").option("checkpointLocation", str(folder / "watched"))
    query = writer.start()
    query.processAllAvailable()
    wait_for(lambda: "watched" in watching.streams)
    return query
