"""A cluster of processes whose remote storage fails, while its brokers are killed: clients read and write on.

A connection to the store is slow (what is sent stays on its way), refused, or broken between a request that has its
effect and the answer. `tests/simulation/tiering_story.py` plays the same in a simulated world, by many seeds.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chaos.switchboard import SwitchboardProcess
from support.cluster_process import ClusterProcess, cluster_process
from support.s3_server import S3Server
from support.tiered_topics import QUICK, TIERED
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Producer
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL, LATEST
from barnabas.ports.types import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("chaos")]

TOPIC = TopicPartition("t", 0)
REQUESTS, ANSWERS = ("brokers", "store"), ("store", "brokers")
LASTS_S, CALM_S = 3.0, 1.0
FAULTS = {
    "slow": ([REQUESTS, ANSWERS], False),
    "refusing": ([REQUESTS, ANSWERS], True),
    "answers late": ([ANSWERS], False),
    "answers lost": ([ANSWERS], True),
}


class Writer(threading.Thread):
    """Produces numbers, and notes at which offset each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.acknowledged: dict[int, bytes] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Producer(self.bootstrap, delivery_timeout_ms=int(PATIENCE_S * 1000)) as producer:
                number = 0
                while not self.stopping.is_set():
                    values = [b"%06d" % each * 20 for each in range(number, number + 10)]
                    handles = [producer.send(*TOPIC[:1], value, partition=0) for value in values]
                    for value, handle in zip(values, handles, strict=True):
                        self.acknowledged[handle.result().offset] = value
                    number += 10
                    time.sleep(0.02)
        except BaseException as error:  # noqa: BLE001  shown by the test
            self.error = error


class Reader(threading.Thread):
    """Reads the topic from its beginning, again and again: most of it is in remote storage only."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.read = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                for offset, number in read_from_beginning(self.bootstrap, self.stopping):
                    assert offset == number, f"offset {offset} has the record {number}"
                    self.read += 1
        except BaseException as error:  # noqa: BLE001  shown by the test
            self.error = error


def read_from_beginning(bootstrap: str, stopping: threading.Event) -> Iterator[tuple[int, int]]:
    """Yield (offset, number) up to the end that the partition has now."""
    with Admin(bootstrap) as admin:
        end = admin.list_offsets({TOPIC: LATEST})[TOPIC]
    with Consumer(bootstrap) as consumer:
        consumer.assign([TOPIC])
        consumer.seek(TOPIC, 0)
        expected = 0
        while expected < end and not stopping.is_set():
            message = consumer.poll(1.0)
            if message is not None:
                assert message.offset == expected, f"offset {message.offset} came in place of {expected}"
                yield message.offset, int((message.value or b"")[:6])
                expected = message.offset + 1


def local_start(bootstrap: str) -> int:
    with Admin(bootstrap) as admin:
        return admin.list_offsets({TOPIC: EARLIEST_LOCAL})[TOPIC]


def test_clients_read_and_write_on_while_remote_storage_fails_and_brokers_die(
    s3_server: S3Server, tmp_path: Path
) -> None:
    switchboard = SwitchboardProcess()
    try:
        where = urlsplit(s3_server.endpoint)
        assert where.hostname is not None and where.port is not None
        port = switchboard.open("store", (where.hostname, where.port), "brokers")
        settings: dict[str, object] = {
            **QUICK,
            "remote.log.storage.manager.class.name": s3_server.make_bucket(),
            **{f"rsm.config.{name}": value for name, value in s3_server.settings.items()},
            "rsm.config.endpoint": f"http://127.0.0.1:{port}",
            "min.insync.replicas": 2,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        with cluster_process(tmp_path / "cluster", "--brokers", "3", *words) as cluster:
            play(cluster, switchboard)
    finally:
        switchboard.close()


def play(cluster: ClusterProcess, switchboard: SwitchboardProcess) -> None:
    bootstrap = cluster.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC.topic, partitions=1, replication_factor=3, configs=TIERED)
    writer, reader = Writer(bootstrap), Reader(bootstrap)
    writer.start()
    wait_for(lambda: local_start(bootstrap) > 0 or writer.error, pause_s=0.2)
    reader.start()
    for number, (pairs, reset) in enumerate(FAULTS.values()):
        acknowledged, read = len(writer.acknowledged), reader.read
        switchboard.cut(pairs, reset=reset)
        time.sleep(LASTS_S / 2)
        cluster.broker(1 + number % 3).kill()
        time.sleep(LASTS_S / 2)
        wait_for(lambda: len(writer.acknowledged) > acknowledged or writer.error, pause_s=0.1)  # noqa: B023
        switchboard.heal()
        wait_for(lambda: reader.read > read or reader.error, pause_s=0.1)  # noqa: B023
        time.sleep(CALM_S)
    writer.stopping.set()
    writer.join(PATIENCE_S)
    reader.stopping.set()
    reader.join(PATIENCE_S)
    assert writer.error is None and reader.error is None, (writer.error, reader.error)
    assert not writer.is_alive() and not reader.is_alive()
    end = max(writer.acknowledged) + 1
    wait_for(lambda: local_start(bootstrap) > end // 2, pause_s=0.2)  # copying has continued
    found = dict(read_from_beginning(bootstrap, threading.Event()))
    wrong = [at for at, value in writer.acknowledged.items() if found.get(at) != int(value[:6])]
    assert not wrong, f"acknowledged, and lost or another: {wrong[:10]}"
    assert list(found.values()) == sorted(set(found.values())), "a record is there twice, or in another order"
    print(f"{len(found)} records, {reader.read} read from both tiers meanwhile, local from {local_start(bootstrap)}")
