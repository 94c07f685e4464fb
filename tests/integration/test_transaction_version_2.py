"""Version 2 of transactions (KIP-890) at our broker, by our producer and by others: an epoch for each transaction."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import confluent_kafka
import pytest
from support.compat.java_client import QUICK, java_4, java_classpath
from support.compat.model import Record, Unavailable
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster

pytestmark = [pytest.mark.process]

FEATURE = "transaction.version"
PAUSE_S = 0.01
"""Between the transactions of a producer that has many."""
FEATURES_AGE_MS = 500
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", transaction_state_log_num_partitions=1) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=1)
            admin.create_topic("source", partitions=1)
        yield running


def epoch_of(broker: Broker, name: str) -> int:
    with Admin(broker) as admin:
        wait_for(lambda: admin.describe_transactions([name])[0].state.startswith("Complete"))
        return admin.describe_transactions([name])[0].producer_epoch


def committed(bootstrap: str, topic: str = "t") -> list[bytes]:
    with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(topic)
        return [message.value or b"" for message in consumer.messages(stop_at_end=True)]


def test_new_cluster_has_version_2(broker: Broker) -> None:
    with Admin(broker) as admin:
        assert admin.describe_features().level(FEATURE) == 2


def test_our_producer_gets_an_epoch_for_each_transaction(broker: Broker) -> None:
    with Producer(broker.bootstrap, transactional_id="ours") as producer:
        for number in range(3):
            with producer.transaction():
                producer.send("t", b"%d" % number)
                producer.send_offsets({("source", 0): number}, "g")
    assert epoch_of(broker, "ours") == 3
    assert committed(broker.bootstrap) == [b"0", b"1", b"2"]
    with Admin(broker) as admin:
        assert admin.group_offsets("g")[TopicPartition("source", 0)].offset == 2


def test_librdkafka_keeps_version_1_in_the_same_cluster(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "theirs"})
    producer.init_transactions(PATIENCE_S)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", b"%d" % number)
        producer.commit_transaction(PATIENCE_S)
    assert epoch_of(broker, "theirs") == 0
    assert committed(broker.bootstrap) == [b"0", b"1", b"2"]


@pytest.mark.slow
def test_java_producer_uses_version_2_and_kafkas_tool_reads_the_records(broker: Broker, tmp_path: Path) -> None:
    try:
        client = java_4(broker.bootstrap)
        classpath = java_classpath(4)
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        client.transact("java", "t", [Record(value=b"a")], commit=True)
        assert epoch_of(broker, "java") == 1
        client.transact("java", "t", [Record(value=b"b")], commit=False)
        with Producer(broker.bootstrap) as plain:
            plain.send("source", b"c").result(PATIENCE_S)
        client.transform("java", "g", "source", "t", 1, commit=True)
        assert client.zombie("java", "t", Record(value=b"fenced"), Record(value=b"d"))
    finally:
        client.close()
    assert committed(broker.bootstrap) == [b"a", b"c", b"d"]
    with Admin(broker) as admin:
        assert admin.group_offsets("g")[TopicPartition("source", 0)].offset == 1
    broker.close()
    files = str(next(tmp_path.rglob("__transaction_state-0/*.log")))
    command = ["java", *QUICK, "-cp", classpath, DUMP, "--transaction-log-decoder", "--files", files]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    values = [json.loads(line.partition(" payload: ")[2]) for line in dumped.splitlines() if " payload: " in line]
    assert {value["version"] for value in values} == {"1"}
    assert [value["data"].get("clientTransactionVersion") for value in values[:4]] == [None, 2, 2, 2]


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3, transaction_state_log_num_partitions=2) as running:
        running.create_topic("t", partitions=3)
        yield running


@pytest.mark.slow
def test_live_cluster_changes_the_version_under_producers(cluster: TestCluster) -> None:
    """Down to 1, and up again: nothing is lost, doubled or there in part; both producers get on."""
    sent: dict[str, list[bytes]] = {"ours": [], "theirs": []}
    is_over = False

    def ours() -> None:
        quick = Producer(cluster.bootstrap, transactional_id="ours", linger_ms=0, metadata_max_age_ms=FEATURES_AGE_MS)
        with quick as producer:
            while not is_over:
                values = [b"ours %d %d" % (len(sent["ours"]), partition) for partition in range(3)]
                with producer.transaction():
                    for partition, value in enumerate(values):
                        producer.send("t", value, partition=partition)
                sent["ours"] += values
                time.sleep(PAUSE_S)

    def theirs() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "theirs"}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(PATIENCE_S)
        while not is_over:
            values = [b"theirs %d %d" % (len(sent["theirs"]), partition) for partition in range(3)]
            producer.begin_transaction()
            for partition, value in enumerate(values):
                producer.produce("t", value, partition=partition)
            producer.commit_transaction(PATIENCE_S)
            sent["theirs"] += values
            time.sleep(PAUSE_S)

    failures: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> Callable[[], None]:
        def guard() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001  the test shows it
                failures.append(error)

        return guard

    threads = [Thread(target=guarded(each)) for each in (ours, theirs)]
    for thread in threads:
        thread.start()
    levels: list[tuple[int, int]] = []
    try:
        with Admin(cluster.bootstrap) as admin:
            for level, upgrade_type in ((1, UpgradeType.SAFE_DOWNGRADE), (2, UpgradeType.UPGRADE)):
                _some_more(sent, failures)
                before = _epoch(admin)
                admin.update_features({FEATURE: level}, upgrade_type)
                wait_for(lambda level=level: failures or _has_version(admin, level, sent["ours"]))  # type: ignore[misc]
                levels.append((level, _epoch(admin) - before))
                _some_more(sent, failures)
    finally:
        is_over = True
        for thread in threads:
            thread.join(PATIENCE_S)
    assert failures == []
    assert [level for level, _ in levels] == [1, 2]
    with Admin(cluster.bootstrap) as admin:  # a producer continues before the markers of its transaction are written
        wait_for(lambda: all(each.state == "CompleteCommit" for each in admin.describe_transactions(list(sent))))
    assert sorted(committed(cluster.bootstrap)) == sorted(sent["ours"] + sent["theirs"])


def _some_more(sent: dict[str, list[bytes]], failures: list[BaseException]) -> None:
    before = {name: len(values) for name, values in sent.items()}
    wait_for(lambda: bool(failures) or all(len(values) > before[name] + 30 for name, values in sent.items()))


def _epoch(admin: Admin) -> int:
    epoch: int = admin.describe_transactions(["ours"])[0].producer_epoch
    return epoch


def _has_version(admin: Admin, level: int, sent: list[bytes]) -> bool:
    """Return True if transactions increase the epoch of our producer, as in version 2, or do not, as in version 1."""
    before, count = _epoch(admin), len(sent)
    wait_for(lambda: len(sent) > count + 9)
    return (_epoch(admin) > before) is (level == 2)
