"""`barnabas log verify` and `barnabas log repair` on the folder of a real broker, running, stopped and damaged."""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from support.command import barnabas_here

from barnabas import Admin, Broker, Producer, SimpleConsumer

VALUES = [b"value %04d" % number for number in range(200)]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("repair") / "data"
    with Broker(data) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=2, configs={"segment.bytes": "2000"})
        with Producer(broker.bootstrap, batch_size=500) as producer:
            for value in VALUES:
                producer.send("t", value, partition=0)
                producer.flush()
    return data


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def verify(data: Path, *, expect: int) -> Any:
    return json.loads(barnabas_here("log", "verify", "--json", data, expect=expect).stdout)


def repair(data: Path, *words: str, expect: int) -> Any:
    return json.loads(barnabas_here("log", "repair", "--json", *words, data, expect=expect).stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def segments(data: Path) -> list[Path]:
    return sorted((data / "t-0").glob("*.log"))


def read(data: Path) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Broker(data) as broker, SimpleConsumer(broker.bootstrap) as consumer:
        offset = 0
        while messages := list(consumer.fetch("t", 0, offset)):
            found += [message.value for message in messages]
            offset = messages[-1].offset + 1
    return found


def test_a_sound_folder(data: Path) -> None:
    before = contents(data)
    found = verify(data, expect=0)
    assert (found["partitions"], found["messages"], found["problems"], found["in_use"]) == (2, len(VALUES), [], False)
    assert repair(data, expect=0)["mended"] == []
    assert contents(data) == before, "nothing is changed by looking"


def test_repair_reports_damage_in_dry_run_then_repairs_and_serves_rest(data: Path) -> None:
    damaged = segments(data)[2]
    first = int(damaged.stem)
    flip(damaged, 70)
    before = contents(data)
    (problem,) = verify(data, expect=1)["problems"]
    assert (problem["kind"], problem["file"], problem["position"]) == ("batch-damaged", f"t-0/{damaged.name}", 0)
    would = repair(data, expect=1)
    assert contents(data) == before
    assert not would["applied"]
    done = repair(data, "--execute", expect=0)
    assert done["mended"] == would["mended"]
    (lost,) = [each["lost"] for each in done["mended"] if "lost" in each]
    assert (lost["first_offset"], lost["last_offset"], lost["messages"]) == (first, first, 1)
    assert done["lost"] == {"messages": 1, "bytes": lost["bytes"], "of_unknown_extent": 0}
    assert verify(data, expect=0)["problems"] == []
    assert repair(data, "--apply", expect=0)["mended"] == []
    assert read(data) == VALUES[:first] + VALUES[first + 1 :]
    text = barnabas_here("log", "repair", data).stdout.decode()
    assert "no problem to repair" in text


def test_words_for_a_person(data: Path) -> None:
    flip(segments(data)[0], 70)
    (data / "t-0" / f"{0:020d}.index").unlink()
    out = barnabas_here("log", "verify", data, expect=1).stdout.decode()
    assert "offsets 0 to 0 cannot be read" in out
    assert out.splitlines()[-1].endswith("1 problem")
    done = barnabas_here("log", "repair", data, expect=1)
    assert b"lost: the offsets 0 to 0, at most 1 message," in done.stdout
    assert b"--execute" in done.stderr


def test_a_folder_in_use_is_looked_at_and_not_mended(data: Path) -> None:
    with Broker(data) as broker, Producer(broker.bootstrap) as producer:
        producer.send("t", b"one more", partition=0)
        producer.flush()
        found = verify(data, expect=0)
        assert found["in_use"]
        assert found["messages"] == len(VALUES) + 1
        refused = barnabas_here("log", "repair", "--apply", data, expect=1)
        assert b"stop it" in refused.stderr
        assert refused.stderr.count(b"\n") == 1


def test_segments_that_come_and_go_meanwhile_are_no_damage(tmp_path: Path) -> None:
    data, over = tmp_path / "data", threading.Event()
    configs = {"segment.bytes": "10000", "file.delete.delay.ms": "20"}
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

    def write(bootstrap: str) -> None:
        with Producer(bootstrap, linger_ms=0) as producer:
            while not over.is_set():
                for number in range(200):
                    for topic in ("compacted", "deleted"):
                        producer.send(topic, os.urandom(50), key=b"k%d" % (number % 20))
                producer.flush()

    with Broker(data, log_cleaner_backoff_ms=50, log_retention_check_interval_ms=50) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("compacted", partitions=1, configs=configs | compact)
            admin.create_topic("deleted", partitions=1, configs=configs | {"retention.bytes": "30000"})
        writer = threading.Thread(target=write, args=(broker.bootstrap,))
        writer.start()
        try:
            for _ in range(5):
                assert verify(data, expect=0)["in_use"]
        finally:
            over.set()
            writer.join()
    assert verify(data, expect=0)["problems"] == []


def test_one_partition_and_a_copy_of_it(data: Path, tmp_path: Path) -> None:
    flip(segments(data)[0], 70)
    assert verify(data / "t-1", expect=0)["partitions"] == 1
    assert verify(data / "t-0", expect=1)["problems"]
    copy = tmp_path / "elsewhere" / "t-0"
    shutil.copytree(data / "t-0", copy)
    assert repair(copy, "--apply", expect=0)["mended"]
    assert verify(copy, expect=0)["problems"] == []
    assert not (tmp_path / "elsewhere" / ".lock").exists()
    assert verify(data, expect=1)["problems"], "the copy was mended, not what it was made from"
    (tmp_path / "empty").mkdir()
    assert b"has no segments" in barnabas_here("log", "verify", tmp_path / "empty", expect=2).stderr


def test_the_coordination_file(data: Path) -> None:
    file = data / "coordination.db"
    whole = file.read_bytes()
    content = bytearray(whole)
    content[4096:4196] = b"\xff" * 100
    file.write_bytes(content)
    assert {problem["kind"] for problem in verify(data, expect=1)["problems"]} == {"tree-damaged"}
    assert file.read_bytes() == content
    assert {each["kind"] for each in repair(data, "--apply", expect=1)["left"]} == {"orphan"}
    assert (data / "coordination.db.aside").read_bytes() == content
    found = verify(data, expect=1)
    assert {problem["kind"] for problem in found["problems"]} == {"orphan"}, "the file is whole, and knows less"
    barnabas_here("topics", "recover", "--data", data, "--execute")
    assert verify(data, expect=0)["problems"] == []
    assert read(data) == VALUES
    file.write_bytes(whole)
    assert verify(data, expect=0)["problems"] == []


def test_folders_that_the_coordination_file_does_not_know(data: Path) -> None:
    (data / "t-1").rename(data / "u-0")
    found = verify(data, expect=1)
    kinds = {problem["kind"] for problem in found["problems"]} | {note["kind"] for note in found["notes"]}
    assert {"orphan", "partition-missing"} <= kinds
