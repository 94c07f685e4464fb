"""Tasks of Spark keep their clients: what happens to the broker between two tasks fails none of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from support.ports import free_port

from barnabas import Admin, Broker
from barnabas.pipeline.source.datasource import BatchReader
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.topics import connect
from barnabas.pipeline.topics.client_cache import ClientCache

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")


@contextmanager
def _broker(folder: Path, listen: str = "kafka://127.0.0.1:0") -> Iterator[Broker]:
    with Broker(folder, listeners=[listen]) as running:
        yield running


def _write(bootstrap: str, values: list[bytes]) -> object:
    with connect.open_producer(bootstrap, {}) as rows:
        rows.send("t", pa.record_batch({"value": pa.array(values, pa.binary())}))
        return rows._producer


def _read(bootstrap: str) -> list[bytes]:
    options = read_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "t"})
    reader = BatchReader(options, connect.connect_cluster)
    batches = [batch for slice_ in reader.partitions() for batch in reader.read(slice_)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cache: ClientCache[object] = ClientCache()  # type: ignore[type-var]
    monkeypatch.setattr(connect, "_PRODUCERS", cache)
    yield
    cache.close()


@pytest.mark.usefixtures("producers")
def test_a_broker_that_restarts_between_tasks(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    with _broker(tmp_path, f"kafka://{place}"):
        with Admin(place) as admin:
            admin.create_topic("t", partitions=1)
        first = _write(place, [b"1", b"2"])
        assert _read(place) == [b"1", b"2"]
    with _broker(tmp_path, f"kafka://{place}"):
        assert _read(place) == [b"1", b"2"]
        assert _write(place, [b"3"]) is first
        assert _read(place) == [b"1", b"2", b"3"]


@pytest.mark.usefixtures("producers")
def test_a_topic_that_is_made_again_between_tasks(tmp_path: Path) -> None:
    with _broker(tmp_path) as broker, Admin(broker) as admin:
        place = broker.bootstrap
        admin.create_topic("t", partitions=1)
        _write(place, [b"1", b"2"])
        assert _read(place) == [b"1", b"2"]
        admin.delete_topics(["t"])
        admin.create_topic("t", partitions=1)
        _write(place, [b"3"])
        assert _read(place) == [b"3"]
