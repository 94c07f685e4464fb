"""Consumer connectors with real brokers on sockets, over each kind of registries."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.registry_kinds import WITH_BOTH, server_of
from support.waiting import wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas import Broker, Producer
from barnabas.app.clients.classic.consumer_connector import ConsumerConnector
from barnabas.app.clients.classic.streams import MessageStream
from barnabas.core.classic.consumer.settings import ConsumerTimeout
from barnabas.core.classic.consumer.streams import StreamMessage
from barnabas.core.classic.registry import group, layout
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.ports.coordination import Coordination
from barnabas.testing.tcp_proxy import TcpProxy

pytestmark = pytest.mark.process

SESSION_MS = 60_000
"""No test but one wants a session to end, however slow the machine is."""


class Reader:
    """A connector with one stream, read by a thread of its own."""

    def __init__(self, where: object, topic: str = "t", **settings: Any) -> None:
        quick: dict[str, Any] = {
            "groupid": "g",
            "fetcher_backoff_ms": 5,
            "rebalance_backoff_ms": 200,
            "rebalance_retries_max": 20,
            "zk_sessiontimeout_ms": SESSION_MS,
        }
        self.connector = ConsumerConnector(coordination=where, **(quick | settings))
        self.got: list[StreamMessage] = []
        self.failed: list[BaseException] = []
        self.stream: MessageStream = self.connector.create_message_streams({topic: 1})[topic][0]
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                for message in self.stream:
                    self.got.append(message)
                return
            except ConsumerTimeout:
                continue
            except BaseException as error:  # noqa: BLE001  the test looks at it
                self.failed.append(error)
                return

    @property
    def values(self) -> list[bytes]:
        return [message.value for message in self.got]

    @property
    def places(self) -> list[BrokerPartition]:
        return [place for _, place in self.connector.owned()]

    def close(self) -> None:
        self.connector.shutdown()
        self._thread.join()


@pytest.fixture(params=WITH_BOTH)
def where(request: pytest.FixtureRequest) -> str:
    """Registries of this test alone."""
    return f"{request.param}://127.0.0.1:{server_of(request).port}/{uuid4().hex}"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def read(stack: ExitStack) -> Callable[..., Reader]:
    def open_it(*arguments: Any, **settings: Any) -> Reader:
        reader = Reader(*arguments, **settings)
        stack.callback(reader.close)
        return reader

    return open_it


def broker(folder: Path, coordination: str, broker_id: int = 0, **config: object) -> Broker:
    dotted = {
        "broker.id": broker_id,
        "message.format": "classic",
        "num.partitions": 2,
        "log.flush.interval.messages": 1,
        "zookeeper.session.timeout.ms": SESSION_MS,
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    listeners = ["classic://127.0.0.1:0"]
    return Broker(folder / str(broker_id), listeners=listeners, coordination=coordination, config=dotted)


def session_of(where: str, stack: ExitStack) -> Coordination:
    from barnabas.app.compose.coordination import client_coordination

    session = client_coordination(where, session_timeout_ms=SESSION_MS)
    stack.callback(session.close)
    return session


def send(producer: Producer, start: int, stop: int) -> set[bytes]:
    values = [b"%06d" % number for number in range(start, stop)]
    for value in values:
        producer.send("t", value)
    return set(values)


def in_order(reader: Reader) -> bool:
    """Within each partition, offsets go up."""
    last: dict[BrokerPartition, list[int]] = {}
    for message in reader.got:
        last.setdefault(message.place, []).append(message.offset)
    return all(a < b for offsets in last.values() for a, b in pairwise(offsets))


def settled(readers: list[Reader], session: Coordination, count: int) -> Callable[[], bool]:
    def check() -> bool:
        owners = group.read_owners(session, "g", "t", lambda _: None)
        return len(owners) == count and sorted(p for r in readers for p in r.places) == sorted(owners)

    return check


def test_a_group_shares_two_brokers_and_loses_nothing(
    where: str, tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    for broker_id in range(2):
        stack.enter_context(broker(tmp_path, where, broker_id))
    session = session_of(where, stack)
    producer = stack.enter_context(Producer(coordination=where))
    expected = send(producer, 0, 500)
    readers = [read(where), read(where)]
    wait_for(lambda: [len(reader.places) for reader in readers] == [2, 2])
    wait_for(settled(readers, session, 4))
    wait_for(lambda: {value for reader in readers for value in reader.values} == expected)
    third = read(where)
    wait_for(settled([*readers, third], session, 4))
    expected |= send(producer, 500, 1000)
    wait_for(lambda: {v for reader in [*readers, third] for v in reader.values} == expected)
    readers.pop().close()
    left = [*readers, third]
    wait_for(settled(left, session, 4))
    more = send(producer, 1000, 1200)
    wait_for(lambda: more <= {value for reader in left for value in reader.values})
    assert all(in_order(reader) for reader in left)
    assert not [error for reader in left for error in reader.failed]


def test_consumer_resumes_after_restart_of_consumer_and_broker(
    where: str, tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    session = session_of(where, stack)
    with broker(tmp_path, where) as running:
        with Producer(coordination=running) as producer:
            first = send(producer, 0, 100)
        reader = read(where)
        wait_for(lambda: set(reader.values) == first)
        assert len(reader.got) == 100
        reader.close()
        committed = group.read_topic_offsets(session, "g", "t", lambda _: None)
        assert set(committed) == {BrokerPartition(0, 0), BrokerPartition(0, 1)}
        reader = read(where)
    wait_for(lambda: not reader.places)
    with broker(tmp_path, where) as running:
        with Producer(coordination=running) as producer:
            second = send(producer, 100, 200)
        wait_for(lambda: set(reader.values) == second)
        assert len(reader.got) == 100
        assert in_order(reader)
        reader.close()
    assert session.children(layout.consumer_ids_path("g")) == []


def test_a_consumer_cut_off_from_the_registries_loses_its_share_and_comes_back(
    where: str, tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    stack.enter_context(broker(tmp_path, where))
    session = session_of(where, stack)
    producer = stack.enter_context(Producer(coordination=where))
    scheme, _, rest = where.partition("://")
    address, _, root = rest.partition("/")
    proxy = TcpProxy(("127.0.0.1", int(address.rpartition(":")[2])))
    stack.callback(proxy.close)
    readers = [read(where), read(f"{scheme}://127.0.0.1:{proxy.port}/{root}", zk_sessiontimeout_ms=2000)]
    expected = send(producer, 0, 100)
    wait_for(settled(readers, session, 2))
    wait_for(lambda: {value for reader in readers for value in reader.values} == expected)
    proxy.stall()
    wait_for(lambda: len(readers[0].places) == 2)  # its session has expired
    expected |= send(producer, 100, 200)
    wait_for(lambda: {value for reader in readers for value in reader.values} == expected)
    proxy.cut()
    proxy.restore()
    wait_for(lambda: [len(reader.places) for reader in readers] == [1, 1])
    wait_for(settled(readers, session, 2))
    expected |= send(producer, 200, 300)
    wait_for(lambda: {value for reader in readers for value in reader.values} == expected)
    assert not [error for reader in readers for error in reader.failed]


@pytest.mark.slow
def test_reads_on_while_the_registries_are_restarted(
    tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    server = ZookeeperServer(tmp_path / "server")
    server.start()
    stack.callback(server.stop)
    server.wait_ready()
    where = f"zookeeper://127.0.0.1:{server.port}"
    stack.enter_context(broker(tmp_path, where))
    producer = stack.enter_context(Producer(coordination=where))
    reader = read(where, autocommit_interval_ms=200)
    expected = send(producer, 0, 100)
    wait_for(lambda: set(reader.values) == expected)
    server.kill()
    expected |= send(producer, 100, 200)
    wait_for(lambda: set(reader.values) == expected)
    server.start()
    server.wait_ready()
    expected |= send(producer, 200, 300)
    wait_for(lambda: set(reader.values) == expected)
    session = session_of(where, stack)
    ends = dict(reader.connector.owned())
    wait_for(lambda: {("t", p): o for p, o in group.read_topic_offsets(session, "g", "t", print).items()} == ends)
    assert not reader.failed


def test_two_consumers_share_partitions_of_in_process_broker(
    tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    running = stack.enter_context(broker(tmp_path, "embedded"))
    producer = stack.enter_context(Producer(coordination=running))
    expected = send(producer, 0, 50)
    readers = [read(running), read(running)]
    wait_for(lambda: {value for reader in readers for value in reader.values} == expected)
    assert sorted(place for reader in readers for place in reader.places) == [(0, 0), (0, 1)]


def test_offsets_of_the_application_for_exactly_once(
    tmp_path: Path, stack: ExitStack, read: Callable[..., Reader]
) -> None:
    running = stack.enter_context(broker(tmp_path, "embedded", num_partitions=1))
    producer = stack.enter_context(Producer(coordination=running))
    send(producer, 0, 10)
    stored: dict[tuple[str, BrokerPartition], int] = {}
    settings: dict[str, Any] = {"autocommit_enable": False, "start_offsets": lambda t, p: stored.get((t, p))}
    first = read(running, **settings)
    wait_for(lambda: len(first.got) == 10)
    stored["t", BrokerPartition(0, 0)] = first.got[6].offset
    first.close()
    second = read(running, **settings)
    wait_for(lambda: len(second.got) == 3)
    assert second.values == first.values[7:]
