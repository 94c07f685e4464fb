"""A broker in its own thread: what it refuses to start with, what it keeps, and clients in the same process."""

import socket
import stat
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.confluent import AdminClient, NewTopic
from support.long_tests import first_is_quick
from support.ports import free_port
from support.raw import RawConnection, fetch_v4
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.compose.clients import client_connector
from barnabas.app.embedded_broker import Broker
from barnabas.ports.broker_api.envelope import BrokerLink, Caller
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult
from barnabas.ports.errors import BarnabasError, ConfigError
from barnabas.ports.storage import FolderLocked, StorageError
from barnabas.ports.transport import TransportError


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("barnabas", "coordination"))}


def test_topics_configs_data_and_cluster_id_survive_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        cluster_id = broker.cluster_id
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 3, 1, config={"retention.ms": "123456"})])["t"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(PATIENCE_S) == 0
    with Broker(tmp_path) as broker:
        assert broker.cluster_id == cluster_id
        listed = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
        assert len(listed.topics["t"].partitions) == 3
        answer = ask(broker, Fetch(partitions=[FetchPartition("t", 0, 0, 1 << 20)], max_wait_ms=0))
        assert answer.partitions[0].high_watermark == 34


def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    before = threads()
    broker = Broker(tmp_path)
    assert (broker.listeners, broker.bootstrap, broker.cluster_id) == ([], "", "")
    with broker:
        host, _, port = broker.bootstrap.rpartition(":")
        assert broker.listeners == [f"kafka://{broker.bootstrap}"]
        begun = threads() - before
        assert begun
    broker.close()
    assert not begun & threads()
    with pytest.raises(OSError, match=r"."):
        socket.create_connection((host, int(port)), 1).close()


def test_stopping_answers_a_fetch_that_waits(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
        with RawConnection(broker.bootstrap) as connection:
            connection.send(fetch_v4("t", 0, max_wait_ms=60_000))
            wait_for(lambda: len(broker.node.state.replicas.purgatory))
            broker.close()
            assert connection.answer()
            assert connection.closed_by_broker()


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(TransportError, match=address):
            Broker(tmp_path, listeners=[f"kafka://{address}"]).start()
    with Broker(tmp_path):
        pass  # the folder was not left locked


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    with Broker(tmp_path), pytest.raises(FolderLocked, match=str(tmp_path)):
        Broker(tmp_path).start()


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Broker(tmp_path / "file").start()


def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        (folder / "probe").touch()
    except PermissionError:
        with pytest.raises(StorageError, match="data"):
            Broker(folder).start()
    else:
        pytest.skip("this user may write to read-only folders")
    finally:
        folder.chmod(stat.S_IRWXU)


def test_unknown_and_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        Broker(tmp_path, config={"log.segment.byte": 1})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(tmp_path, num_partitions="many")
    with pytest.raises(ConfigError, match="no-such-policy"):
        Broker(storage="memory", log_deletion_policy="no-such-policy").start()
    with pytest.raises(ConfigError, match="no_such_module"):
        Broker(storage="memory", plugins=["no_such_module"]).start()


def test_each_listener_advertises_its_own_address(tmp_path: Path) -> None:
    listeners = ["kafka://127.0.0.1:0", "kafka://localhost:0"]
    with Broker(storage="memory", listeners=listeners) as broker:
        for url in broker.listeners:
            bootstrap = url.removeprefix("kafka://")
            observed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).brokers[1]
            assert f"{observed.host}:{observed.port}" == bootstrap


def test_advertised_listener_is_returned_in_metadata() -> None:
    with Broker(
        storage="memory", listeners=["kafka://0.0.0.0:0"], advertised_listeners="kafka://localhost:0"
    ) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        observed = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=PATIENCE_S).brokers[1]
        assert f"{observed.host}:{observed.port}" == f"localhost:{port}"


# --- clients in the same process


class Asker:
    """The least that a client does: a link, and answers that a thread waits for."""

    def __init__(self, broker: Broker) -> None:
        self.connector = client_connector(broker)
        self.scheduler = self.connector.start()
        self.answers: list[object] = []
        self.answered = threading.Semaphore(0)
        opened = threading.Event()
        self.link: BrokerLink

        def done(link: BrokerLink | TransportError) -> None:
            assert not isinstance(link, TransportError), link
            self.link = link
            opened.set()

        self.scheduler.call_soon(lambda: self.connector.connect(self.connector.bootstrap[0], done))
        assert opened.wait(PATIENCE_S)

    def submit(self, request: object) -> None:
        def reply(result: object) -> None:
            self.answers.append(result)
            self.answered.release()

        self.scheduler.call_soon(lambda: self.link.submit(request, Caller(), reply))  # type: ignore[arg-type]  # any request

    def answer(self) -> object:
        assert self.answered.acquire(timeout=PATIENCE_S)
        return self.answers.pop(0)

    def close(self) -> None:
        self.scheduler.call_soon(self.link.close)
        self.connector.stop()


def ask(broker: Broker, request: Fetch) -> Any:
    asker = Asker(broker)
    try:
        asker.submit(request)
        return asker.answer()
    finally:
        asker.close()


def test_a_client_in_the_same_process_needs_no_socket() -> None:
    with Broker(storage="memory") as broker:
        asker = Asker(broker)
        asker.submit(Metadata(topics=["t"]))
        answer = asker.answer()
        assert isinstance(answer, MetadataResult)
        assert answer.cluster_id == broker.cluster_id
        asker.close()


def test_in_process_client_gets_transport_error_after_broker_stop() -> None:
    with Broker(storage="memory") as broker:
        asker = Asker(broker)
        asker.submit(Metadata(topics=["t"]))
        asker.answer()
    asker.submit(Metadata(topics=["t"]))
    assert isinstance(asker.answer(), TransportError)
    asker.close()


def test_a_client_cannot_reach_a_broker_that_is_not_there() -> None:
    connector = client_connector(Broker(storage="memory"))
    scheduler = connector.start()
    opened = threading.Event()
    results: list[BrokerLink | TransportError] = []

    def done(result: BrokerLink | TransportError) -> None:
        results.append(result)
        opened.set()

    scheduler.call_soon(lambda: connector.connect(connector.bootstrap[0], done))
    assert opened.wait(PATIENCE_S)
    assert isinstance(results[0], TransportError)
    connector.stop()
    connector.stop()


@pytest.mark.parametrize("bootstrap", ["", "nonsense", ["a:1", 7], None, 5, "a:99999"])
def test_a_bootstrap_that_makes_no_sense(bootstrap: object) -> None:
    with pytest.raises(BarnabasError):
        client_connector(bootstrap)


def test_bootstrap_accepts_text_lists_and_pairs() -> None:
    expected = [("a", 1), ("b", 2)]
    for bootstrap in ("a:1,b:2", ["a:1", "b:2"], [("a", 1), ("b", 2)], "kafka://a:1, kafka://b:2"):
        connector = client_connector(bootstrap)
        assert list(connector.bootstrap) == expected
        connector.stop()


# --- metrics


def test_metrics_are_found_over_http() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    busy = pytest.raises(TransportError, match=f"{address}.*metrics.listen")
    with socket.create_server(("127.0.0.1", port)), busy:
        Broker(storage="memory", metrics_listen=address).start()
    with Broker(storage="memory", metrics_listen=address) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"x")
        assert producer.flush(PATIENCE_S) == 0
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 1.0' in lines
    assert 'kafka_topic_partition_current_offset{partition="0",topic="t"} 1.0' in lines
    assert 'kafka_network_requestmetrics_requests_total{request="Produce"} 1.0' in lines


@pytest.mark.parametrize("used", first_is_quick([True, False]))
def test_unclosed_broker_shuts_down_cleanly_at_process_exit(tmp_path: Path, used: bool) -> None:
    script = f"""
from barnabas import Broker, Producer
broker = Broker({str(tmp_path / "data")!r}).start()
if {used}:
    with Producer(broker) as producer:
        producer.send("t", b"x")
        producer.confirm(120)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=5 * PATIENCE_S, capture_output=True, check=True)
    assert done.stderr == b""
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
