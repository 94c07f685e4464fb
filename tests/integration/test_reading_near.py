"""Consumers that say where they are read from the replica near them, and continue when it is gone (KIP-392)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import confluent_kafka
import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.model import Start, Unavailable
from support.waiting import PATIENCE_S, wait_for

from barnabas import Consumer
from barnabas.core.log.partition_log.unified_log import LogSlice
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster
from barnabas.testing.faults import Fault

RACKS = {1: "a", 2: "b", 3: "c"}
SETTINGS = {broker: {"broker.rack": rack} for broker, rack in RACKS.items()}
SELECTOR: dict[str, Any] = {"replica_selector_class": "rack-aware"}
CONSUMER = -1


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3, per_broker=SETTINGS, **SELECTOR) as running:
        yield running


def _of_consumers(request: Request[Any], caller: Caller) -> bool:
    replica_id: int = request.replica_id  # type: ignore[attr-defined]  # of a Fetch
    return replica_id == CONSUMER


class Watched:
    """A topic of one partition with ten messages, and who is asked for it."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        self.topic = cluster.create_topic()
        self.sent = 0
        self.send(10)
        cluster.wait_in_sync(self.topic)
        self.leader = cluster.wait_for_leader(self.topic, 0)
        self.near = next(broker for broker in cluster.broker_ids if broker != self.leader)
        self._asked: dict[int, Fault] = {
            broker: cluster.broker(broker).faults.delay("Fetch", 0, topic=self.topic, when=_of_consumers)
            for broker in cluster.broker_ids
        }

    def send(self, count: int) -> None:
        self.cluster.produce(self.topic, [str(self.sent + number) for number in range(count)], partition=0)
        self.sent += count

    def asked(self, broker: int) -> int:
        return self._asked[broker].hits


class Reader:
    """Reads all there is, over and over."""

    def __init__(self, poll: Callable[[], list[bytes]]) -> None:
        self.poll = poll
        self.values: list[bytes] = []

    def has(self, count: int) -> bool:
        self.values += self.poll()
        return len(self.values) >= count


@contextmanager
def _librdkafka(bootstrap: str, topic: str, rack: str) -> Iterator[Reader]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"near-{topic}-{rack}",
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def poll() -> list[bytes]:
        messages = consumer.consume(100, 0.02)
        return [message.value() or b"" for message in messages if message.error() is None]

    yield Reader(poll)
    consumer.close()


@contextmanager
def _ours(bootstrap: str, topic: str, rack: str) -> Iterator[Reader]:
    with Consumer(bootstrap, auto_offset_reset="earliest", client_rack=rack, fetch_max_wait_ms=50) as consumer:
        consumer.assign([(topic, 0)])
        yield Reader(lambda: [message.value or b"" for message in consumer.poll_many(100, 0.02)])


Open = Callable[[str, str, str], AbstractContextManager[Reader]]
CLIENTS = [pytest.param(_librdkafka, id="librdkafka"), pytest.param(_ours, id="barnabas")]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_leader_sends_readers_to_the_replica_in_their_rack(cluster: TestCluster, client: Open) -> None:
    watched = Watched(cluster)
    with client(cluster.bootstrap, watched.topic, RACKS[watched.near]) as reader:
        wait_for(lambda: reader.has(10))
        assert watched.asked(watched.near) > 0
        assert watched.asked(watched.leader) >= 1, "it has sent the reader elsewhere"
        wait_for(lambda: _reads_at_the_near_one(watched, reader))
        assert reader.values == [b"%d" % number for number in range(watched.sent)]


def _reads_at_the_near_one(watched: Watched, reader: Reader) -> bool:
    """Return True if the leader got no fetch for the next messages. (Behind a replica that lags, it may get one.)"""
    at_the_leader = watched.asked(watched.leader)
    watched.send(20)
    wait_for(lambda: reader.has(watched.sent))
    return watched.asked(watched.leader) == at_the_leader


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reader_goes_back_to_the_leader_when_the_near_replica_dies(cluster: TestCluster, client: Open) -> None:
    watched = Watched(cluster)
    with client(cluster.bootstrap, watched.topic, RACKS[watched.near]) as reader:
        wait_for(lambda: reader.has(10) and watched.asked(watched.near) > 0)
        cluster.kill(watched.near)
        watched.send(5)
        wait_for(lambda: reader.has(15), PATIENCE_S)
        assert reader.values == [b"%d" % number for number in range(15)]


def _damage(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The near replica cannot read the first ten messages."""
    log = watched.cluster.broker(watched.near).inner.node.state.logs.get(TopicPartition(watched.topic, 0))
    assert log is not None
    read = log.read

    def damaged(offset: int, **limits: Any) -> LogSlice:
        if offset < 10:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the segment is damaged")
        return read(offset, **limits)

    monkeypatch.setattr(log, "read", damaged)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reader_gets_from_the_leader_what_is_damaged_on_the_near_replica(
    cluster: TestCluster, client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster)
    _damage(watched, monkeypatch)
    with client(cluster.bootstrap, watched.topic, RACKS[watched.near]) as reader:
        wait_for(lambda: reader.has(10), PATIENCE_S)
        assert watched.asked(watched.near) > 0, "the leader sent the reader there first"
        wait_for(lambda: _reads_at_the_near_one(watched, reader))
        assert reader.values == [b"%d" % number for number in range(watched.sent)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reader_in_no_rack_of_the_cluster_reads_at_the_leader(cluster: TestCluster, client: Open) -> None:
    watched = Watched(cluster)
    with client(cluster.bootstrap, watched.topic, "elsewhere") as reader:
        wait_for(lambda: reader.has(10))
        assert [watched.asked(broker) for broker in cluster.broker_ids if broker != watched.leader] == [0, 0]


def _read_by_java(watched: Watched) -> list[bytes | None]:
    """Return what Java's consumer reads, in the rack of the near replica."""
    try:
        tools = ConsoleTools(watched.cluster.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(tools):
        read = tools.read(watched.topic, watched.sent, Start(rack=RACKS[watched.near]))
    return [record.value for record in read]


@pytest.mark.slow
def test_javas_consumer_is_sent_there_too(cluster: TestCluster) -> None:
    watched = Watched(cluster)
    assert _read_by_java(watched) == [b"%d" % number for number in range(10)]
    assert watched.asked(watched.near) > 0


@pytest.mark.slow
def test_javas_consumer_gets_from_the_leader_what_is_damaged_on_the_near_replica(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster)
    _damage(watched, monkeypatch)
    assert _read_by_java(watched) == [b"%d" % number for number in range(10)]
    assert watched.asked(watched.near) > 0, "the leader sent the reader there first"


@pytest.mark.slow
def test_javas_consumer_gets_from_the_leader_what_a_near_replica_that_is_behind_lacks() -> None:
    with TestCluster(brokers=3, per_broker=SETTINGS, replica_lag_time_max_ms=1000, **SELECTOR) as cluster:
        watched = Watched(cluster)

        def _of_the_near_one(request: Request[Any], _caller: Caller) -> bool:
            replica_id: int = request.replica_id  # type: ignore[attr-defined]  # of a Fetch
            return replica_id == watched.near

        cluster.broker(watched.leader).faults.delay("Fetch", when=_of_the_near_one)
        watched.send(10)
        assert _read_by_java(watched) == [b"%d" % number for number in range(20)]
        assert watched.asked(watched.near) > 0, "the leader sent the reader there first"
