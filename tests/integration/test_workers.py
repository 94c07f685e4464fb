"""`barnabas serve --workers`: several brokers that look like one machine, as clients and administrators see them."""

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from prometheus_client.parser import text_string_to_metric_families
from support.process import BrokerProcess, barnabas, broker_process
from support.waiting import wait_for

from barnabas import Admin, Consumer, ConsumerConnector, Producer
from barnabas.ports.errors import BarnabasError

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]

PARTITIONS = 8


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Two workers, from nothing but a folder."""
    running = BrokerProcess(tmp_path_factory.mktemp("machine") / "data", "workers=2", "metrics.listen=127.0.0.1:0")
    with Admin(running.bootstrap) as admin:
        admin.create_topic("t", partitions=PARTITIONS)
    yield running
    if running.process.poll() is None:
        running.stop()


def worker(machine: BrokerProcess, number: int) -> psutil.Process:
    """Return the process of a worker."""
    found: list[psutil.Process] = []

    def look() -> bool:
        children = psutil.Process(machine.process.pid).children()
        found[:] = [each for each in children if each.cmdline()[-1:] == [f"worker-{number}"]]
        return bool(found)

    wait_for(look)
    return found[0]


def read_all(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Return the values of each partition, read by librdkafka."""
    values: dict[int, list[bytes]] = defaultdict(list)
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, 1.0):
            error, value, number = message.error(), message.value(), message.partition()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(number)
            elif value is not None and number is not None:
                values[number].append(value)
    consumer.close()
    return values


def test_clients_bootstrap_at_one_address_and_find_all_workers(machine: BrokerProcess) -> None:
    assert re.fullmatch(r"barnabas ready kafka://127\.0\.0\.1:\d+\n", machine.ready_line)
    with Admin(machine.bootstrap) as admin:
        nodes = admin.describe_cluster().brokers
        assert sorted(node.node_id for node in nodes) == [1, 2]
        assert len({node.port for node in nodes} | {int(machine.bootstrap.rpartition(":")[2])}) == 3

        def leaders() -> list[int]:
            return sorted(each.leader for each in admin.describe_topics(["t"])[0].partitions)

        wait_for(lambda: leaders() == [1] * 4 + [2] * 4)


def test_each_worker_answers_at_the_shared_port(machine: BrokerProcess) -> None:
    """A worker that is busy or stopped does not take the connections of the others."""
    for number in (1, 2):
        stopped = worker(machine, 3 - number)
        stopped.suspend()
        try:
            host, _, port = machine.bootstrap.rpartition(":")
            with socket.create_connection((host, int(port)), 30) as connection:
                connection.sendall(bytes.fromhex("0000000e 0012 0000 00000007 0004 74657374"))  # ApiVersions 0
                assert connection.recv(8)[4:] == bytes.fromhex("00000007")
        finally:
            stopped.resume()


def test_one_endpoint_has_the_metrics_and_the_health_of_all_workers(machine: BrokerProcess) -> None:
    (url,) = re.findall(r"metrics of all workers at (http://127\.0\.0\.1:\d+)/metrics", machine.log())
    status, text = get(f"{url}/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    assert all(sample.labels["worker"] in ("1", "2") for sample in samples)
    up = {each.labels["worker"]: each.value for each in samples if each.name == "barnabas_worker_up"}
    assert up == {"1": 1, "2": 1}
    led = [each.value for each in samples if each.name == "kafka_server_replicamanager_leadercount"]
    assert len(led) == 2
    assert sum(led) >= PARTITIONS
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert get(f"{url}/readyz") == (200, "ok\n")


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_messages_go_through_both_workers(machine: BrokerProcess) -> None:
    with Admin(machine.bootstrap) as admin:
        admin.create_topic("both", partitions=PARTITIONS)
    with Producer(machine.bootstrap) as producer:
        for number in range(400):
            producer.send("both", str(number).encode(), partition=number % PARTITIONS)
    with Consumer(machine.bootstrap, group_id="own", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["both"])
        values: set[int] = set()
        while len(values) < 400:
            values |= {int(message.value or b"-1") for message in consumer.poll_many(1000)}
    assert values == set(range(400))
    assert {number: len(found) for number, found in read_all(machine.bootstrap, "both").items()} == dict.fromkeys(
        range(PARTITIONS), 50
    )


def _differences(found: list[bytes], wanted: list[bytes]) -> list[str]:
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if missing or extra:
        return [f"missing {sorted(missing.elements())[:10]} of {len(wanted)}", f"extra {sorted(extra.elements())[:10]}"]
    return [] if found == wanted else ["another order"]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_a_killed_worker_is_restarted(machine: BrokerProcess) -> None:
    acknowledged: dict[int | None, list[bytes]] = defaultdict(list)
    failed: list[KafkaError] = []
    reached, enough = Event(), Event()

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            failed.append(error)  # type: ignore[arg-type]
        else:
            acknowledged[message.partition()].append(value)
            if sum(map(len, acknowledged.values())) > 2000:
                reached.set()

    def produce() -> None:
        producer = ConfluentProducer(
            {"bootstrap.servers": machine.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        number = 0
        while not enough.is_set():
            if len(producer) < 10_000:
                producer.produce("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
                number += 1
            producer.poll(0.001 if number % 50 == 0 else 0)
        assert producer.flush(120) == 0

    thread = Thread(target=produce)
    thread.start()
    try:
        assert reached.wait(120)
        victim = worker(machine, 2)
        os.kill(victim.pid, signal.SIGKILL)
        (url,) = re.findall(r"metrics of all workers at (http://127\.0\.0\.1:\d+)/metrics", machine.log())
        wait_for(lambda: get(f"{url}/readyz")[0] == 503)
        assert get(f"{url}/healthz")[0] == 200, "a worker that is restarted is no reason to restart the machine"
        wait_for(lambda: "worker-2 is ready again" in machine.log())
        wait_for(lambda: get(f"{url}/readyz") == (200, "ok\n"))
    finally:
        enough.set()
        thread.join(180)
    assert not failed
    assert worker(machine, 2).pid != victim.pid
    assert "worker-2 was killed by signal 9; it starts again in 0.5 s" in machine.log()
    found = read_all(machine.bootstrap, "t")
    for number in range(PARTITIONS):
        assert _differences(found[number], acknowledged[number]) == [], "each message once, in order"


@pytest.mark.slow
def test_classic_clients_find_all_workers_by_their_registry(tmp_path: Path) -> None:
    listen = ("kafka://127.0.0.1:0", "classic://127.0.0.1:0")
    with broker_process(tmp_path / "data", "workers=2", "log.flush.interval=1", listen=listen) as running:
        assert "classic" not in running.ready_line
        assert len(set(re.findall(r" (classic://127\.0\.0\.1:\d+) ", running.log()))) == 2
        (address,) = set(re.findall(r"coordination etcd://(127\.0\.0\.1:\d+)", running.log()))
        with Producer(etcd_connect=address) as producer:
            for number in range(40):
                producer.send("views", str(number).encode(), key=str(number).encode())
        settings = {"groupid": "g", "autooffset.reset": "smallest", "consumer.timeout.ms": 60_000}
        with ConsumerConnector(f"etcd://{address}", config=settings) as connector:
            (stream,) = connector.create_message_streams({"views": 1})["views"]
            found = [(int(message.value), message.broker_id) for message in islice(stream, 40)]
    assert sorted(number for number, _ in found) == list(range(40))
    assert {broker for _, broker in found} == {1, 2}


def test_each_line_of_the_log_names_its_worker(machine: BrokerProcess) -> None:
    lines = machine.log().splitlines()
    assert all(re.match(r"(parent  |worker-1|worker-2) \| ", line) for line in lines), lines
    assert {line.partition(" ")[0] for line in lines} == {"parent", "worker-1", "worker-2"}


@pytest.mark.slow
def test_workers_of_a_file_keep_their_data_and_end_with_their_parent_in_order(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('workers = 2\nbroker.id = 11\nbroker.rack = "r1"\nlogging.format = "json"\n')
    running = BrokerProcess(tmp_path / "data", config=file)
    try:
        with Admin(running.bootstrap) as admin:
            nodes = admin.describe_cluster().brokers
            assert sorted((node.node_id, node.rack) for node in nodes) == [(11, "r1"), (12, "r1")]
            admin.create_topic("t", partitions=2)
        with Producer(running.bootstrap) as producer:
            for number in range(2):
                producer.send("t", b"before", partition=number).result(60)
        assert '{"node": "worker-2", "time"' in running.log()
        children = [worker(running, 1), worker(running, 2)]
    finally:
        running.kill()
    wait_for(lambda: all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in children))

    refused = barnabas("serve", "--data", tmp_path / "data", "--listen", "kafka://127.0.0.1:0", expect=2)
    assert b"has the data of workers (barnabas serve --workers)" in refused.stderr
    again = BrokerProcess(tmp_path / "data", config=file)
    try:
        with Consumer(again.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [message.value for message in consumer.poll_many(10, timeout=1.0)]
        assert values == [b"before", b"before"]
        processes = psutil.Process(again.process.pid).children(recursive=True)
    finally:
        assert again.stop() == 0
    assert len(processes) >= 3, "two workers and an etcd"
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    log = again.log()
    assert log.rindex("broker 12 has stopped") < log.rindex("broker 11 stops") < log.rindex("broker 11 has stopped")


@pytest.mark.slow
def test_fewer_workers_start_once_the_last_one_is_drained(tmp_path: Path) -> None:
    words = ("--data", tmp_path / "data", "--workers", "2", "--listen", "kafka://127.0.0.1:0")
    with broker_process(tmp_path / "data", "workers=3") as three:
        with Admin(three.bootstrap) as admin:
            admin.create_topic("orders", partitions=6)
        with Producer(three.bootstrap) as producer:
            sent = [producer.send("orders", str(number).encode(), partition=number % 6) for number in range(60)]
            for each in sent:
                each.result(60)
        assert three.stop() == 0
    refused = barnabas("serve", *words, expect=2).stderr.decode()
    assert re.search(
        r"workers=2, but worker-3 holds 2 replicas \(orders-\d, orders-\d\): start with at least 3", refused
    )
    assert "barnabas brokers drain 3" in refused
    with broker_process(tmp_path / "data", "workers=3") as three:
        barnabas("brokers", "drain", "3", "--bootstrap", three.bootstrap, "--execute")
    with broker_process(tmp_path / "data", "workers=2", "schema.registry.listen=127.0.0.1:0") as two:
        assert re.fullmatch(r"kafka://127\.0\.0\.1:\d+ http://127\.0\.0\.1:\d+", " ".join(two.listeners))
        with Admin(two.bootstrap) as admin:
            leaders = [each.leader for each in admin.describe_topics(["orders"])[0].partitions]
            assert set(leaders) == {1, 2}
        with Consumer(two.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", number) for number in range(6)])
            values: set[int] = set()
            while len(values) < 60:
                values |= {int(message.value or b"-1") for message in consumer.poll_many(100, timeout=1.0)}
        assert values == set(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("service", ["etcd", "zookeeper"])
def test_replicas_are_on_different_machines_where_there_are_several(
    tmp_path: Path, service: str, request: pytest.FixtureRequest
) -> None:
    port = request.getfixturevalue(f"{service}_server").port
    shared = f"coordination={service}://127.0.0.1:{port}/two-machines"
    with (
        broker_process(tmp_path / "m1", "workers=2", "broker.id=10", "broker.machine=m1", shared) as first,
        broker_process(tmp_path / "m2", "workers=2", "broker.id=20", "broker.machine=m2", shared) as second,
        Admin(f"{first.bootstrap},{second.bootstrap}") as admin,
    ):
        wait_for(lambda: {node.node_id for node in admin.describe_cluster().brokers} == {10, 11, 20, 21})
        admin.create_topic("t", partitions=PARTITIONS, replication_factor=2)
        with Consumer(second.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            with Producer(first.bootstrap) as producer:
                producer.send("t", b"x").result(60)
            found: list[bytes | None] = []
            while not found:
                found = [message.value for message in consumer.poll_many(10, timeout=1.0)]
            assert found == [b"x"]
        topics = {topic.name: topic.partitions for topic in admin.describe_topics(["t", "__consumer_offsets"])}
        for name, partitions in topics.items():
            assert all({each // 10 for each in partition.replicas} == {1, 2} for partition in partitions), name
            assert all(len(partition.replicas) == 2 for partition in partitions), name
        led = Counter(partition.leader for partition in topics["t"])
        assert led == {10: 2, 11: 2, 20: 2, 21: 2}


@pytest.mark.slow
def test_sigusr1_restarts_one_worker_after_the_other_while_clients_write(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", "workers=2", "min.insync.replicas=1") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("t", partitions=PARTITIONS, replication_factor=2)
        before = [worker(running, number).pid for number in (1, 2)]
        stop = Event()
        failures: list[BarnabasError] = []

        def produce() -> None:
            with Producer(running.bootstrap) as producer:
                number = 0
                while not stop.is_set():
                    try:
                        producer.send("t", str(number).encode(), partition=number % PARTITIONS).result(120)
                    except BarnabasError as error:
                        failures.append(error)
                        return
                    written.append(number)
                    number += 1

        written: list[int] = []
        thread = Thread(target=produce)
        thread.start()
        try:
            wait_for(lambda: len(written) > 10)
            os.kill(running.process.pid, signal.SIGUSR1)
            wait_for(lambda: "all are restarted\n" in running.log())
        finally:
            stop.set()
            thread.join(180)
        assert not failures
        after = [worker(running, number).pid for number in (1, 2)]
        assert not set(before) & set(after)
        log = running.log()
        assert log.index("worker-2 is ready again") < log.index("broker 1 stops") < log.index("worker-1 is ready again")
        found = sorted(int(value) for values in read_all(running.bootstrap, "t").values() for value in values)
        assert found == written


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--set", "coordination=embedded"], b"leave it out, and an etcd is started in "),
        (["--set", "storage=memory"], b"set coordination to a service"),
        (["--listen", "classic://127.0.0.1:0"], b"workers need a listener kafka://HOST:PORT"),
        (["--workers", "0"], b"Invalid value for '--workers'"),
    ],
)
def test_what_workers_cannot_do_is_refused_with_a_remedy(tmp_path: Path, words: list[str], reason: bytes) -> None:
    listen = [] if "--listen" in words else ["--listen", "kafka://127.0.0.1:0"]
    refused = barnabas("serve", "--data", tmp_path / "d", "--workers", "2", *listen, *words, expect=2)
    assert reason in refused.stderr


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    BrokerProcess(tmp_path / "d").stop()
    refused = barnabas("serve", "--data", tmp_path / "d", "--workers", "2", "--listen", "kafka://127.0.0.1:0", expect=2)
    assert b"has the data of a single broker, and workers have folders of their own" in refused.stderr
