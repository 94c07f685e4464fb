"""`barnabas mirror --identical` from Apache Kafka after an unclean election, read by Kafka's own dump tool."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.compat.java_client import QUICK, broker_classpath
from support.confluent import AdminClient, NewTopic
from support.kafka_server import KafkaServer, made_kafka_cluster, start_kafka_cluster
from support.process import BrokerProcess
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.mirror.identical import IdenticalMirror

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
STEP = 300


@pytest.fixture
def kafkas(tmp_path: Path) -> Iterator[list[KafkaServer]]:
    with made_kafka_cluster(tmp_path) as servers:
        start_kafka_cluster(servers)
        yield servers


def produce(bootstrap: str, text: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 2})
    for number in range(STEP):
        producer.produce("t", f"{text} {number}".encode(), partition=0)
        if number % 50 == 0:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def log(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "t-0").glob("*.log")))


def leader(bootstrap: str) -> int:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).topics["t"]
    return int(found.partitions[0].leader)


def dumped(folder: Path) -> list[str]:
    """Return what Kafka's dump tool prints of the segments, without their paths."""
    files = ",".join(map(str, sorted((folder / "t-0").glob("*.log"))))
    tool = ["org.apache.kafka.tools.DumpLogSegments", "--files", files, "--print-data-log", "--deep-iteration"]
    command = ["java", *QUICK, "-cp", broker_classpath(), *tool]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.splitlines()
    return [line for line in lines if not line.startswith(("Dumping", "Log starting"))]


def test_mirror_is_cut_where_an_unclean_leader_has_less(kafkas: list[KafkaServer], tmp_path: Path) -> None:
    controller, second, third = kafkas
    admin = AdminClient({"bootstrap.servers": controller.bootstrap})
    topic = NewTopic("t", 1, replica_assignment=[[2, 3]], config=UNCLEAN)
    admin.create_topics([topic])["t"].result(PATIENCE_S)
    target = BrokerProcess(tmp_path / "data")
    source_config, target_config = {"bootstrap.servers": controller.bootstrap}, {"bootstrap.servers": target.bootstrap}
    mirror = IdenticalMirror(source_config, target_config, topics="t")
    thread = threading.Thread(target=mirror.run)
    thread.start()
    try:
        produce(controller.bootstrap, "both have it")
        third.kill()
        produce(controller.bootstrap, "only the second has it")
        at_second = log(tmp_path / "kafka-2" / "data")
        wait_for(lambda: log(tmp_path / "data") == at_second, PATIENCE_S, pause_s=0.2)
        second.kill()
        third.start()
        third.wait_ready()
        wait_for(lambda: leader(controller.bootstrap) == 3, PATIENCE_S, pause_s=0.2)
        produce(controller.bootstrap, "after the unclean election")
        at_third = tmp_path / "kafka-3" / "data"
        assert not log(at_third).startswith(at_second)
        wait_for(lambda: log(tmp_path / "data") == log(at_third), PATIENCE_S, pause_s=0.2)
        assert mirror.copied.truncations >= 1
        mirror.stop()
        thread.join()
        mirror.promote("t")
        said = dumped(at_third)
        assert len(said) > 2 * STEP
        assert dumped(tmp_path / "data") == said
    finally:
        mirror.stop()
        thread.join()
        mirror.close()
        target.stop()
