"""The consumer connector as users have it: threads, blocking streams, settings, the end."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.classic_world import ClassicWorld
from support.waiting import PATIENCE_S, wait_for

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import SystemClock, SystemEntropy
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.app.background import ReactorThread
from barnabas.app.clients.classic.consumer_connector import ConsumerConnector
from barnabas.core.classic.consumer.settings import ConsumerTimeout
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.ports.clock import Clock
from barnabas.ports.coordination import Coordination, CoordinationError
from barnabas.ports.entropy import Entropy
from barnabas.ports.errors import BarnabasError, ClosedError, ConfigError
from barnabas.ports.scheduler import Scheduler
from barnabas.ports.transport import Address

P0 = BrokerPartition(0, 0)
Open = Callable[..., ConsumerConnector]


class FakeConnector:
    """Fulfils `Connector`: a reactor in a thread, and connections to the brokers of a `ClassicWorld`."""

    def __init__(self, world: ClassicWorld) -> None:
        self.bootstrap: list[Address] = []
        self.clock: Clock = SystemClock()
        self.entropy: Entropy = SystemEntropy()
        self._world = world
        self._thread: ReactorThread | None = None

    def start(self) -> Scheduler:
        self._thread = ReactorThread(Reactor(self._world.reports.append, workers=1), "test-connector")
        self._thread.start()
        return self._thread.reactor

    def condition(self, lock: threading.Lock) -> threading.Condition:
        return threading.Condition(lock)

    def owns_thread(self) -> bool:
        return self._thread is not None and self._thread.owns_caller()

    def connect(self, address: Address, opened: Any) -> None:
        assert self._thread is not None
        self._world.connect(address, opened, self._thread.reactor)

    def stop(self) -> None:
        assert self._thread is not None
        self._thread.stop()


@pytest.fixture
def world() -> ClassicWorld:
    world = ClassicWorld()
    world.tree = MemoryTree(report=world.reports.append)
    world.onlooker = world.tree.session()
    return world


@pytest.fixture
def connect(world: ClassicWorld) -> Iterator[Open]:
    made: list[ConsumerConnector] = []

    def open_it(**settings: Any) -> ConsumerConnector:
        quick: dict[str, Any] = {
            "groupid": "g",
            "fetcher_backoff_ms": 2,
            "rebalance_backoff_ms": 50,
            "coordination": world.tree.session,
        }
        made.append(ConsumerConnector(connector=FakeConnector(world), **(quick | settings)))
        return made[-1]

    yield open_it
    for connector in made:
        connector.shutdown()
    world.onlooker.close()
    for broker in world.brokers.values():
        if broker.session is not None:
            broker.session.close()


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, stop)]


def test_streams_are_blocking_iterators_that_end_with_the_connector(world: ClassicWorld, connect: Open) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 5))
    connector = connect()
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    got: list[bytes] = []

    def read() -> None:
        for message in stream:
            got.append(message.value)

    reader = threading.Thread(target=read)
    reader.start()
    wait_for(lambda: len(got) == 5)
    log.append(numbered(5, 10))
    wait_for(lambda: len(got) == 10)
    connector.shutdown()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert got == numbered(0, 10)
    assert stream.ended
    assert world.committed("t") == {P0: 150}
    assert list(stream) == []


def test_a_timeout_leaves_the_stream_usable(world: ClassicWorld, connect: Open) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    (stream,) = connect(consumer_timeout_ms=20).create_message_streams({"t": 1})["t"]
    for number in range(2):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        log.append(numbered(number, number + 1))
        assert stream.poll(PATIENCE_S) is not None
    assert stream.poll() is None


def test_many_threads_read_many_streams(world: ClassicWorld, connect: Open) -> None:
    broker = world.add_broker(0, {"t": 4})
    for partition in range(4):
        broker.log("t", partition).append(numbered(0, 2000))
    streams = connect(
        consumer_timeout_ms=PATIENCE_S * 1000, fetch_size=1000, queuedchunks_max=2
    ).create_message_streams({"t": 4})["t"]

    def read(number: int) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < 2000:
            values.append(next(streams[number]).value)
        return values

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(4))) == [numbered(0, 2000)] * 4


def test_streams_by_filter(world: ClassicWorld, connect: Open) -> None:
    broker = world.add_broker(0, {"red": 1, "blue": 1})
    broker.log("red").append([b"r"])
    broker.log("blue").append([b"b"])
    (white,) = connect(groupid="w").create_message_streams_by_filter(whitelist="re.")
    (black,) = connect(groupid="b").create_message_streams_by_filter(TopicFilter.blacklist("re."), 1)
    assert (next(white).topic, next(black).topic) == ("red", "blue")
    broker.add_topics({"rex": 1})
    broker.log("rex").append([b"x"])
    assert next(white).value == b"x"


def test_commit_seek_and_owned(world: ClassicWorld, connect: Open) -> None:
    world.add_broker(0, {"t": 1}).log("t").append(numbered(0, 5))
    connector = connect(autocommit_enable=False)
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    for _ in range(3):
        message = next(stream)
    assert connector.owned() == {("t", P0): message.offset}
    assert connector.commit_offsets() == {("t", P0): 45}
    assert connector.commit_offsets({("t", P0): 15}) == {("t", P0): 15}
    assert world.committed("t") == {P0: 15}
    connector.seek("t", P0, 15)
    assert next(stream).value == b"00001"
    connector.seek("t", (0, 0), "smallest")
    assert next(stream).value == b"00000"
    for wrong in ("middle", -7):
        with pytest.raises(ConfigError):
            connector.seek("t", P0, wrong)


def test_settings_have_the_names_of_the_classic_consumer(world: ClassicWorld, connect: Open) -> None:
    config = {
        "groupid": "readers",
        "zk.sessiontimeout.ms": "400",
        "zk.synctime.ms": 200,
        "autooffset.reset": "largest",
        "consumer.timeout.ms": "-1",
        "shallowiterator.enable": "false",
        "queuedchunks.max": "3",
        "mirror.topics.whitelist": "a",
        "socket.buffersize": 1,
    }
    settings = connect(groupid=None, rebalance_backoff_ms=None, config=config).settings
    assert (settings.groupid, settings.autooffset_reset, settings.queuedchunks_max) == ("readers", "largest", 3)
    assert (settings.zk_connectiontimeout_ms, settings.rebalance_backoff_ms) == (400, 200)
    defaults = connect(fetcher_backoff_ms=None, rebalance_backoff_ms=None).settings
    assert (defaults.fetch_size, defaults.fetcher_backoff_ms, defaults.queuedchunks_max) == (1_048_576, 1000, 10)
    assert (defaults.autocommit_enable, defaults.autocommit_interval_ms) == (True, 10_000)
    assert (defaults.rebalance_retries_max, defaults.rebalance_backoff_ms) == (4, 2000)
    assert (defaults.consumer_timeout_ms, defaults.autooffset_reset) == (-1, "smallest")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"groupid": None}, "groupid is missing"),
        ({"groupid": "a/b"}, "groupid"),
        ({"coordination": None}, "exactly one"),
        ({"zk_connect": "h:2181"}, "zk.connect and coordination"),
        ({"autooffset_reset": "middle"}, "autooffset_reset"),
        ({"fetchsize": 3}, "did you mean 'fetch_size'"),
        ({"decoder": "no such"}, "no such"),
        ({"coordination": 5}, "coordination 5"),
    ],
)
def test_invalid_settings_raise_config_error(connect: Open, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        connect(**settings)


def test_streams_are_created_once(connect: Open) -> None:
    connector = connect()
    with pytest.raises(BarnabasError, match="first"):
        connector.commit_offsets()
    with pytest.raises(ConfigError):
        connector.create_message_streams({})
    with pytest.raises(ConfigError):
        connector.create_message_streams({"t": 0})
    with pytest.raises(ConfigError):
        connector.create_message_streams_by_filter(whitelist="(")
    with pytest.raises(ConfigError):
        connector.create_message_streams_by_filter(whitelist="a", blacklist="b")
    connector.create_message_streams({"t": 1})
    with pytest.raises(BarnabasError, match="another connector"):
        connector.create_message_streams({"t": 1})


def test_stream_creation_fails_without_coordination_and_succeeds_on_retry(world: ClassicWorld, connect: Open) -> None:
    session = world.tree.session()
    connector = connect(coordination=lambda: session)
    world.tree.disconnect(session)
    with pytest.raises(CoordinationError):
        connector.create_message_streams({"t": 1})
    world.tree.reconnect(session)
    world.add_broker(0, {"t": 1}).log("t").append([b"one"])
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    assert next(stream).value == b"one"


def test_shutdown_is_the_end(world: ClassicWorld, connect: Open) -> None:
    with connect() as connector:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
    connector.shutdown()
    assert stream.poll(None) is None
    for call in (connector.commit_offsets, connector.owned, lambda: connector.create_message_streams({"t": 1})):
        with pytest.raises(ClosedError):
            call()
    assert world.onlooker.children("/consumers/g/ids") == []


def test_a_connector_that_never_began_closes_its_session(world: ClassicWorld, connect: Open) -> None:
    sessions: list[Coordination] = []

    def make() -> Coordination:
        sessions.append(world.tree.session())
        return sessions[0]

    connect(coordination=make).shutdown()
    with pytest.raises(ClosedError):
        sessions[0].children("/")


def test_values_are_decoded(world: ClassicWorld, connect: Open) -> None:
    world.add_broker(0, {"t": 1}).log("t").append([b'{"a": 1}'])
    (stream,) = connect(decoder="json").create_message_streams({"t": 1})["t"]
    assert next(stream).value == {"a": 1}


def test_invalid_partition_raises_on_calling_thread(world: ClassicWorld, connect: Open) -> None:
    """On the thread that asked, which else would wait for ever."""
    world.add_broker(0, {"t": 1})
    connector = connect()
    connector.create_message_streams({"t": 1})
    observed: list[type[BaseException]] = []

    def ask() -> None:
        for call in (
            lambda: connector.seek("t", 5, 0),  # type: ignore[arg-type]  # on purpose
            lambda: connector.seek("t", P0, None),  # type: ignore[arg-type]  # on purpose
            lambda: connector.commit_offsets([1]),  # type: ignore[arg-type]  # on purpose
        ):
            try:
                call()
            except Exception as error:  # noqa: BLE001  whatever it is
                observed.append(type(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    assert observed == [TypeError, TypeError, AttributeError]
