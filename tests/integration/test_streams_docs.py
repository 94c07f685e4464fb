"""docs/streams.md, docs/uses.md and examples/streams: their Python runs as written, on real requests."""

import importlib.util
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from support.command import barnabas_here
from support.real_data import Request, read_requests
from uses import USES

from barnabas import Broker, Consumer, Message, Producer

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = [pytest.mark.spark, pytest.mark.data, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def asked(data_dir: Path) -> list[Request]:
    return list(read_requests(data_dir))[:2000]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as running:
        yield running


def _send(broker: Broker, topic: str, messages: list[Message]) -> None:
    with Producer(broker) as producer:
        producer.send_many(topic, messages)
        producer.flush()


def _values(broker: Broker, topic: str) -> list[Any]:
    with Consumer(broker) as consumer:
        consumer.assign(topic, position="earliest")
        return [json.loads(message.value or b"") for message in consumer.messages(stop_at_end=True)]


def _example(checkout: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, checkout / "examples" / "streams" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestDocs:
    pytestmark = SPARK

    def test_the_page_about_the_library(
        self, spark: "SparkSession", broker: Broker, asked: list[Request], checkout: Path, tmp_path: Path
    ) -> None:
        messages = [
            Message(
                value=json.dumps({"address": each.address, "path": each.path, "status": each.status}).encode(),
                timestamp_ms=int(each.time.replace(tzinfo=UTC).timestamp() * 1000),
            )
            for each in asked
        ]
        _send(broker, "requests", messages)
        text = (checkout / "docs" / "streams.md").read_text(encoding="utf-8")
        names: dict[str, Any] = {"spark": spark, "bootstrap": broker.bootstrap, "folder": tmp_path}
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            exec(compile(block, "docs/streams.md", "exec"), names)  # our own page
        assert names["visitors"].count() == len({each.address for each in asked})
        assert names["refused"].count() == sum(
            max(0, count - 100) for count in Counter((each.hour, each.address) for each in asked).values()
        )
        assert names["named"].where("name = 'home'").count() == sum(each.path == "/" for each in asked)
        assert names["top"].columns == ["window", "rank", "path", "count"]
        assert names["visits"].columns == ["session_window", "address", "started", "ended", "count"]
        assert names["soon"].columns == ["address", "page", "viewed", "path", "failed"]
        assert names["together"].columns == ["item", "other", "together", "count", "other_count", "score"]
        assert names["unusual"].columns == ["series", "timestamp", "count", "expected", "score"]
        statuses = Counter((each.hour, each.status) for each in asked)
        from deltalake import DeltaTable

        table = DeltaTable(tmp_path / "statuses").to_pyarrow_table().to_pylist()
        found = {(row["window"]["start"].replace(tzinfo=None), row["status"]): row["count"] for row in table}
        assert found == statuses
        sent = _values(broker, "statuses")
        assert {each["count"] for each in sent} <= set(statuses.values())
        assert len(sent) > len(statuses) / 2
        assert "all hours" in (tmp_path / "statuses.html").read_text(encoding="utf-8")

    def test_every_function_is_on_the_page(self, checkout: Path) -> None:
        from barnabas.pipeline import streams

        text = (checkout / "docs" / "streams.md").read_text(encoding="utf-8")
        assert [name for name in streams.__all__ if f"`{name}`" not in text] == []

    def test_views_per_hour(
        self, spark: "SparkSession", broker: Broker, data_dir: Path, checkout: Path, tmp_path: Path
    ) -> None:
        import gzip

        from deltalake import DeltaTable

        with gzip.open(data_dir / "apache_access_10k.log.gz") as lines:
            _send(
                broker,
                "access-log",
                [Message(value=line.rstrip()) for line in islice(lines, 1500)],
            )
        _example(checkout, "views_per_hour").main(spark, broker.bootstrap, tmp_path)
        rows = DeltaTable(tmp_path / "views").to_pyarrow_table().to_pylist()
        assert sum(row["count"] for row in rows) == 1500
        ranks = Counter(each["rank"] for each in _values(broker, "top-pages"))
        assert ranks[1] == ranks[2] == ranks[3] > len(rows) / 2

    def test_orders_with_names(self, spark: "SparkSession", broker: Broker, checkout: Path, tmp_path: Path) -> None:
        main = _example(checkout, "orders_with_names").main

        def send(topic: str, **fields: object) -> None:
            _send(broker, topic, [Message(value=json.dumps(fields).encode())])

        send("names", item="a", name="old")
        send("orders", item="a", quantity=2)
        main(spark, broker.bootstrap, tmp_path)
        send("names", item="a", name="new")
        send("orders", item="a", quantity=3)
        send("orders", item="b", quantity=1)
        main(spark, broker.bootstrap, tmp_path)
        found = {(row["item"], row["quantity"], row.get("name")) for row in _values(broker, "named-orders")}
        assert found == {("a", 2, "old"), ("a", 3, "new"), ("b", 1, None)}


def test_the_page_about_uses(checkout: Path) -> None:
    text = (checkout / "docs" / "uses.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## `(\w+)`", text, re.MULTILINE)
    assert headings == list(USES)
    commands = [
        shlex.split(line.partition("#")[0])
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
        if line.startswith("barnabas ")
    ]
    assert len(commands) >= 3
    for words in commands:
        if words[2] == "list":
            assert all(name.encode() in barnabas_here(*words[1:]).stdout for name in USES)
        else:
            assert words[3] in {*USES, "all"}
            barnabas_here(*words[1:3], "--help")
