"""`barnabas load` where it needs no Spark: topics that fail, and topics of which nothing is left."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.command import barnabas_here

from barnabas import Admin, Broker, Producer

for library, extra in (("pyspark", "spark"), ("deltalake", "tables")):
    if find_spec(library) is None:
        pytest.skip(f"loads need the extra {extra}", allow_module_level=True)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(storage="memory", config={"num.partitions": 1, "log.retention.ms": -1}) as broker:
        with Producer(broker) as producer:
            producer.send_many("old", [b"x"] * 5)
            producer.flush()
        with Admin(broker) as admin:
            admin.delete_records({("old", 0): 5})
        yield str(broker.bootstrap)


@pytest.mark.parametrize("topics", ["nope", "nope,nada"])
def test_json_names_every_failed_topic_when_all_fail(address: str, topics: str, tmp_path: Path) -> None:
    words = ("load", "--topics", topics, "--into", tmp_path / "table", "--bootstrap", address)
    done = barnabas_here(*words, "--json", expect=1)
    printed = json.loads(done.stdout)
    assert sorted(printed["failed"]) == sorted(topics.split(","))
    assert "there is no topic 'nope'" in printed["failed"]["nope"]
    assert printed["rows"] == 0
    assert b"not loaded: nope: " in done.stderr
    for_people = barnabas_here(*words, expect=1)
    assert all(f"there is no topic '{topic}'".encode() in for_people.stderr for topic in topics.split(","))
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_topic_that_retention_emptied_before_its_first_load_is_reported_once(address: str, tmp_path: Path) -> None:
    words = ("load", "--topics", "old", "--into", tmp_path / "table", "--bootstrap", address)
    first = barnabas_here(*words)
    assert first.stdout.startswith(b"0 new rows in 0 files")
    assert first.stderr.decode().splitlines() == [
        "looking for new messages ...",
        "old-0: offsets 0 to 5 were deleted before this first load; nothing is left (retention goes by the messages' "
        "timestamps; retention.ms=-1 keeps old ones)",
    ]
    again = barnabas_here(*words, "--json", "--quiet")
    assert json.loads(again.stdout)["deleted"] == []
    assert again.stderr == b""
