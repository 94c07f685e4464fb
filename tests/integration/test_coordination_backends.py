"""A broker, our clients, and real coordination servers that stop and come back."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.command import Command
from support.etcd_server import EtcdServer
from support.ports import free_port
from support.process import broker_process
from support.server_process import ServerProcess
from support.waiting import PATIENCE_S, wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.app.compose.coordination import client_coordination
from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import BrokerRegistration, Topic
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ConfigError

SESSION_MS = 2000
TIMEOUT = {"zookeeper.session.timeout.ms": SESSION_MS}


class Backend:
    """One server, and where a broker finds it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.server: ServerProcess
        if kind == "zookeeper":
            server = ZookeeperServer(folder)
            self.server, self.port = server, server.port
        else:
            other = EtcdServer(folder)
            self.server, self.port = other, other.port
        self.kind = kind
        self._trees = 0

    def new_tree(self) -> str:
        self._trees += 1
        return f"{self.kind}://127.0.0.1:{self.port}/tree{self._trees}"

    def start(self) -> None:
        self.server.start()
        self.server.wait_ready()


@pytest.fixture(
    scope="module",
    # ZooKeeper's restarts are also tested by its adapter; a second server of Java costs 3 s of CPU time.
    params=[
        pytest.param("etcd", marks=pytest.mark.xdist_group("etcd")),
        pytest.param("zookeeper", marks=[pytest.mark.xdist_group("zookeeper"), pytest.mark.slow]),
    ],
)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    backend = Backend(request.param, tmp_path_factory.mktemp(request.param) / "server")
    try:
        backend.start()
        yield backend
    finally:
        backend.server.stop()


pytestmark = pytest.mark.process


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with Consumer(bootstrap) as consumer:
        consumer.assign(topic, position="earliest")
        return [message.value for message in consumer.messages(stop_at_end=True)]


def send(bootstrap: str, topic: str, *messages: bytes) -> None:
    with Producer(bootstrap) as producer:
        assert producer.send_many(topic, list(messages)).result(PATIENCE_S) == len(messages)


def test_topics_and_configs_are_there_again_after_a_restart(backend: Backend, tmp_path: Path) -> None:
    where = backend.new_tree()
    with Broker(tmp_path, coordination=where, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        cluster_id = broker.cluster_id
        made = admin.create_topics(
            [NewTopic(name="t", partitions=3, configs={"retention.ms": "77"}), NewTopic(name="gone")]
        )
        assert [topic.partitions for topic in made] == [3, 1]
        admin.create_partitions("t", 4)
        admin.alter_configs(ResourceKind.TOPIC, "t", {"segment.bytes": "5000"})
        admin.alter_configs(ResourceKind.BROKER, "1", {"log.flush.interval.messages": "9"})
        admin.delete_topics(["gone"])
        send(broker.bootstrap, "t", b"a", b"b")
        send(broker.bootstrap, "made-by-naming-it", b"c")
    with Broker(tmp_path, coordination=where, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        assert broker.cluster_id == cluster_id
        topics = {topic.name: len(topic.partitions) for topic in admin.describe_topics()}
        assert topics == {"t": 4, "made-by-naming-it": 1}
        configs = admin.describe_topic_configs("t")
        assert [configs[name] for name in ("retention.ms", "segment.bytes", "flush.messages")] == ["77", "5000", "9"]
        assert set(values(broker.bootstrap, "t")) == {b"a", b"b"}
        assert values(broker.bootstrap, "made-by-naming-it") == [b"c"]


@pytest.mark.slow
def test_a_server_that_restarts_is_survived_with_clear_errors(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = backend.new_tree()
    with Broker(tmp_path, coordination=where, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        wait_for(lambda: _works(admin, "before"), pause_s=0.1)  # a slow machine may lose the session at first
        send(broker.bootstrap, "before", b"a")
        backend.server.kill()
        try:
            refused = _refusals(admin)
            assert {error.code for error in refused} == {ErrorCode.REQUEST_TIMED_OUT}
            assert all(str(backend.port) in error.message for error in refused)
            send(broker.bootstrap, "before", b"b")
            assert values(broker.bootstrap, "before") == [b"a", b"b"], "requests without agreement continue"
        finally:
            backend.start()
        wait_for(lambda: _works(admin, "after"), pause_s=0.1)
        send(broker.bootstrap, "after", b"c")
        assert not [record.message for record in caplog.records if "Traceback" in record.message]
        eyes = client_coordination(where, session_timeout_ms=SESSION_MS)
        wait_for(lambda: "controller" in eyes.children("/barnabas"))
        wait_for(lambda: eyes.children("/barnabas/brokers/ids") == ["1"])
        eyes.close()
    with Broker(tmp_path, coordination=where, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        assert admin.list_topics() == ["after", "before"]
        assert (values(broker.bootstrap, "before"), values(broker.bootstrap, "after")) == ([b"a", b"b"], [b"c"])


def _refusals(admin: Admin) -> list[ApiError]:
    """Return the errors of each type of change."""
    found = []
    for change in (
        lambda: admin.create_topic("meanwhile"),
        lambda: admin.create_partitions("before", 2),
        lambda: admin.alter_configs(ResourceKind.TOPIC, "before", {"retention.ms": "5"}),
        lambda: admin.delete_topics(["before"]),
    ):
        with pytest.raises(ApiError) as raised:
            change()
        found.append(raised.value)
    return found


def _works(admin: Admin, topic: str) -> bool:
    with suppress(BarnabasError):
        admin.create_topic(topic)
    return topic in admin.list_topics()


def test_the_broker_answers_others_while_a_change_waits(backend: Backend, tmp_path: Path) -> None:
    """The connection to the service is open but without answers: a change waits for its time-out, and only that.

    The session outlasts the pause on any machine: a broker without one takes no messages.
    """
    where = backend.new_tree()
    lasting = {"zookeeper.session.timeout.ms": 60_000}
    with Broker(tmp_path, coordination=where, config=lasting) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t")
        send(broker.bootstrap, "t", b"first")  # the broker has producer ids to give out now
        backend.server.pause()
        try:
            waiting = threading.Thread(target=_works, args=(admin, "slow"))
            waiting.start()
            meanwhile = 0
            with Producer(broker.bootstrap) as producer:
                for n in range(20):
                    producer.send("t", b"%d" % n).result(PATIENCE_S)
                    meanwhile += waiting.is_alive()
            assert meanwhile > 1, "the sends have waited for the change"
            assert len(values(broker.bootstrap, "t")) == 21
        finally:
            backend.server.resume()
        waiting.join(PATIENCE_S)
        wait_for(lambda: _works(admin, "slow"), pause_s=0.1)


def test_a_second_broker_joins(backend: Backend, tmp_path: Path) -> None:
    where = backend.new_tree()
    with Broker(tmp_path / "1", coordination=where, config=TIMEOUT) as first:
        only_classic = ["classic://127.0.0.1:0"]
        with Broker(tmp_path / "3", coordination=where, broker_id=3, listeners=only_classic, config=TIMEOUT):
            pass
        with Broker(tmp_path / "2", coordination=where, broker_id=2, config=TIMEOUT) as second:
            with Admin(second) as admin:
                wait_for(lambda: {broker.node_id for broker in admin.describe_cluster().brokers} == {1, 2})
                admin.create_topic("t", partitions=2, replication_factor=2)
            send(f"{first.bootstrap},{second.bootstrap}", "t", b"a")
        wait_for(lambda: values(first.bootstrap, "t") == [b"a"])
    with pytest.raises(ConfigError, match="belongs to broker 2"):
        Broker(tmp_path / "2", coordination=where, broker_id=7, config=TIMEOUT).start()
    with pytest.raises(CoordinationError, match="knows no topic"):
        Broker(tmp_path / "2", coordination=backend.new_tree(), broker_id=2, config=TIMEOUT).start()


@pytest.mark.slow
def test_a_broker_that_was_killed_comes_back_with_its_topics(backend: Backend, tmp_path: Path) -> None:
    port = free_port()
    settings = [f"coordination={backend.new_tree()}", f"zookeeper.session.timeout.ms={SESSION_MS}"]
    listen = [f"kafka://127.0.0.1:{port}"]
    with broker_process(tmp_path / "data", *settings, listen=listen) as process:
        send(process.bootstrap, "t", b"a")
        process.kill()
    with broker_process(tmp_path / "data", *settings, listen=listen) as process:
        assert values(process.bootstrap, "t") == [b"a"]
        send(process.bootstrap, "t", b"b")
        assert process.stop() == 0


def test_no_server_at_all(tmp_path: Path) -> None:
    port = free_port()
    for kind in ("zookeeper", "etcd"):
        config = {**TIMEOUT, "zookeeper.connection.timeout.ms": 300}
        with pytest.raises(BarnabasError, match=rf"127\.0\.0\.1:{port} within 300 ms"):
            Broker(tmp_path / kind, coordination=f"{kind}://127.0.0.1:{port}/x", config=config).start()


def test_start_with_empty_coordination_fails_until_topics_are_recovered(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tree = tmp_path / "data", backend.new_tree()
    with Broker(folder, coordination=tree, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
        send(broker.bootstrap, "t", b"kept")
        cluster_id = broker.cluster_id
    empty = backend.new_tree()
    with pytest.raises(CoordinationError, match=f"{empty}.* knows no topic"):
        Broker(folder, coordination=empty, config=TIMEOUT).start()
    words = ("topics", "recover", "--data", str(folder), "--set", f"coordination={empty}")
    Command(capsys)(*words, "--execute")
    with Broker(folder, coordination=empty, config=TIMEOUT) as broker:
        assert values(broker.bootstrap, "t") == [b"kept"]
        assert broker.cluster_id == cluster_id


def test_broker_applies_external_changes_of_coordination_tree(backend: Backend, tmp_path: Path) -> None:
    where = backend.new_tree()
    entered = Topic(name="by-hand", topic_id=b"made by somebody", partitions={0: (1,), 1: (1,)})
    other = BrokerRegistration(broker_id=7, endpoints=("kafka://127.0.0.1:9",))
    with Broker(tmp_path, coordination=where, config=TIMEOUT) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("own")
        hand = client_coordination(where, session_timeout_ms=SESSION_MS)
        try:
            hand.create(layout.topic_path("by-hand"), layout.encode_topic(entered))
            hand.create(layout.broker_config_path(1), layout.encode_configs({"log.segment.bytes": "20000"}))
            hand.create(layout.broker_path(7), layout.encode_broker(other), ephemeral=True)
            wait_for(lambda: admin.list_topics() == ["by-hand", "own"])
            wait_for(lambda: admin.describe_topic_configs("own")["segment.bytes"] == "20000")
            wait_for(lambda: [node.node_id for node in admin.describe_cluster().brokers] == [1, 7])
            send(broker.bootstrap, "by-hand", b"a")
            assert values(broker.bootstrap, "by-hand") == [b"a"]
        finally:
            hand.close()
        wait_for(lambda: [node.node_id for node in admin.describe_cluster().brokers] == [1])
