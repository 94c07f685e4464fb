"""Over a socket: making topics, and stopping, leave the broker's own thread alone."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.confluent import AdminClient, NewTopic
from support.waiting import PATIENCE_S

from barnabas.app.embedded_broker import Broker
from barnabas.core.log.manager.creation import LogOpening
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.storage import Folder


def test_a_neighbour_writes_while_a_disk_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, began = threading.Event(), threading.Event()
    original = LogOpening.create

    def slow(opening: LogOpening, topic_id: bytes | None) -> tuple[UnifiedLog, Folder, bool]:
        if opening.partition.topic != "neighbour":
            began.set()
            assert released.wait(PATIENCE_S)
        return original(opening, topic_id)

    monkeypatch.setattr(LogOpening, "create", slow)
    with Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("neighbour", 1, 1)])["neighbour"].result(PATIENCE_S)
        creating = admin.create_topics([NewTopic(f"t{number}", 2, 1) for number in range(10)])
        try:
            assert began.wait(PATIENCE_S)
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for number in range(20):
                producer.produce("neighbour", b"%d" % number)
            assert producer.flush(PATIENCE_S) == 0
            other = AdminClient({"bootstrap.servers": broker.bootstrap})
            found = other.list_topics(timeout=PATIENCE_S).topics["t0"]
            assert [(p.leader, p.error is None) for p in found.partitions.values()] == [(-1, False)] * 2
            assert not any(each.done() for each in creating.values())
        finally:
            released.set()
        for each in creating.values():
            each.result(PATIENCE_S)
        made = other.list_topics(timeout=PATIENCE_S).topics
        assert {p.leader for name in creating for p in made[name].partitions.values()} == {1}


def test_logs_are_closed_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)
    original = UnifiedLog.close

    def close(log: UnifiedLog, now_ms: int = 0) -> None:
        both.wait()  # raises unless two are closed at the same time
        original(log, now_ms)

    with Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(PATIENCE_S)
        monkeypatch.setattr(UnifiedLog, "close", close)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_the_end_of_the_process_is_an_orderly_stop(tmp_path: Path) -> None:
    """A terminating interpreter starts no threads."""
    program = """
import sys
from barnabas import Admin, Broker, Producer
broker = Broker(sys.argv[1]).start()
if len(sys.argv) > 2:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=4)
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"x").result(120)
"""
    for further in ([], ["with a topic"]):
        command = [sys.executable, "-c", program, str(tmp_path), *further]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert (tmp_path / ".kafka_cleanshutdown").exists()
