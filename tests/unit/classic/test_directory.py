"""A producer's view of brokers and partitions, on the registries in memory."""

import pytest

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.classic.registry.directory import (
    RETRY_MS,
    RegistryDirectory,
    StaticDirectory,
    parse_broker_list,
    places_of,
)
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.errors import BarnabasError, ClosedError, ConfigError


class BlockingSession:
    """A session that wants to be called off the reactor; everything else is the real one's."""

    blocking = True

    def __init__(self, session: MemorySession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


class Bench:
    def __init__(self, blocking: bool = False) -> None:
        self.scheduler = ManualScheduler(ManualClock(), SeededEntropy(1))
        self.tree = MemoryTree(deliver=self.scheduler.call_soon)
        self.brokers = self.tree.session()
        self.session = self.tree.session()
        self.reports: list[str] = []
        self.directory = RegistryDirectory(
            BlockingSession(self.session) if blocking else self.session,  # type: ignore[arg-type]  # it stands in
            self.scheduler,
            report=self.reports.append,
        )
        self.observed: list[BarnabasError | None] = []

    def broker(self, number: int, host: str = "", session: MemorySession | None = None) -> None:
        data = f"host-1:{host or f'b{number}'}:9092".encode()
        (session or self.brokers).create(f"/brokers/ids/{number}", data, ephemeral=True)

    def topic(self, name: str, session: MemorySession | None = None, **counts: int) -> None:
        for broker, count in counts.items():
            path = f"/brokers/topics/{name}/{broker.removeprefix('b')}"
            (session or self.brokers).create(path, str(count).encode(), ephemeral=True)

    def learn(self, topic: str) -> list[str] | None:
        self.directory.learn(topic, self.observed.append)
        self.run_until_idle()
        return self.places(topic)

    def places(self, topic: str) -> list[str] | None:
        found = self.directory.places(topic)
        return None if found is None else [str(place) for place in found]

    def run_until_idle(self) -> None:
        self.scheduler.advance(100)


@pytest.fixture(params=[False, True], ids=["quick", "blocking"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_partitions_are_sorted_by_broker_then_partition(bench: Bench) -> None:
    for number in (10, 2):
        bench.broker(number)
    bench.topic("t", b10=2, b2=1)
    assert bench.places("t") is None
    assert bench.learn("t") == ["2-0", "10-0", "10-1"]
    assert bench.directory.address(10) == ("b10", 9092)
    assert bench.directory.address(3) is None
    assert bench.observed == [None]


def test_unknown_topic_has_partition_0_on_every_live_broker_until_registered(bench: Bench) -> None:
    bench.broker(1)
    bench.broker(0)
    assert bench.learn("t") == ["0-0", "1-0"]
    bench.topic("t", b1=3)
    bench.run_until_idle()
    assert bench.places("t") == ["1-0", "1-1", "1-2"]


def test_brokers_come_and_go(bench: Bench) -> None:
    other = bench.tree.session()
    bench.broker(0)
    bench.topic("t", b0=1)
    assert bench.learn("t") == ["0-0"]
    bench.broker(1, session=other)
    bench.topic("t", session=other, b1=1)
    bench.run_until_idle()
    assert bench.places("t") == ["0-0", "1-0"]
    other.close()
    bench.run_until_idle()
    assert bench.places("t") == ["0-0"]
    assert bench.directory.address(1) is None
    bench.broker(1, "elsewhere")
    bench.run_until_idle()
    assert bench.directory.address(1) == ("elsewhere", 9092)
    assert bench.places("t") == ["0-0"], "it lives, and has not registered the topic"


def test_a_topic_without_live_brokers_counts_as_unknown(bench: Bench) -> None:
    bench.broker(0)
    bench.topic("t", b7=2)
    assert bench.learn("t") == ["0-0"]


def test_more_partitions_are_noticed(bench: Bench) -> None:
    bench.broker(0)
    bench.topic("t", b0=1)
    bench.learn("t")
    bench.brokers.set("/brokers/topics/t/0", b"3")
    bench.run_until_idle()
    assert bench.places("t") == ["0-0", "0-1", "0-2"]


def test_no_broker_at_all(bench: Bench) -> None:
    assert bench.learn("t") == []


def test_after_an_expired_session_everything_is_read_again(bench: Bench) -> None:
    bench.broker(0)
    bench.topic("t", b0=1)
    bench.learn("t")
    bench.tree.disconnect(bench.session)
    bench.topic("t", b1=2)
    bench.broker(1)
    bench.run_until_idle()
    assert bench.places("t") == ["0-0"], "what was read last stands"
    bench.tree.expire(bench.session)
    bench.tree.reconnect(bench.session)
    bench.run_until_idle()
    assert bench.places("t") == ["0-0", "1-0", "1-1"]


def test_when_the_registries_cannot_be_reached_it_says_so_and_tries_again(bench: Bench) -> None:
    bench.broker(0)
    bench.tree.disconnect(bench.session)
    assert bench.learn("t") is None
    assert isinstance(bench.observed[0], CoordinationError)
    bench.scheduler.advance(3 * RETRY_MS)
    assert len(bench.reports) == 1
    bench.tree.reconnect(bench.session)
    bench.scheduler.advance(2 * RETRY_MS)
    assert bench.places("t") == ["0-0"]


def test_garbage_in_registry_nodes_is_skipped_and_reported_once(bench: Bench) -> None:
    bench.broker(0)
    bench.brokers.create("/brokers/ids/x", b"\xff")
    bench.brokers.create("/brokers/topics/t/0", b"many")
    assert bench.learn("t") == ["0-0"]
    bench.learn("u")
    assert len(bench.reports) == 2
    assert "/brokers/ids/x" in bench.reports[0]
    assert "/brokers/topics/t/0" in bench.reports[1]


def test_changes_during_a_reading_are_not_missed(bench: Bench) -> None:
    bench.broker(0)
    bench.directory.learn("t", bench.observed.append)
    bench.topic("t", b0=1)
    bench.directory.learn("u", bench.observed.append)
    bench.topic("u", b0=2)
    bench.run_until_idle()
    assert (bench.places("t"), bench.places("u")) == (["0-0"], ["0-0", "0-1"])
    assert bench.observed == [None, None]


def test_closed_directory_fails_pending_lookups_and_stops_watching(bench: Bench) -> None:
    bench.broker(0)
    bench.learn("t")
    bench.directory.learn("u", bench.observed.append)
    bench.directory.close()
    bench.directory.close()
    bench.run_until_idle()
    bench.directory.learn("v", bench.observed.append)
    bench.run_until_idle()
    assert [type(error) for error in bench.observed[1:]] == [ClosedError, ClosedError]
    bench.broker(1)
    bench.run_until_idle()
    assert bench.directory.address(1) is None


# --- a fixed list


def test_a_broker_list() -> None:
    brokers = parse_broker_list("0:localhost:9092, 7:[::1]:9093")
    assert brokers == {0: ("localhost", 9092), 7: ("::1", 9093)}
    directory = StaticDirectory(brokers)
    assert list(directory.places("any")) == [BrokerPartition(0, -1), BrokerPartition(7, -1)]
    assert (directory.address(7), directory.address(1)) == (("::1", 9093), None)


@pytest.mark.parametrize(
    "wrong",
    [
        "localhost:9092",
        "0:localhost",
        "a:b:1",
        "1:h:0",
        "1:h:70000",
        "1:h:1,",
        "1:h:1,1:i:2",
        "3000000000:h:1",
        "1:h :1",
    ],
)
def test_a_typo_in_a_broker_list_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.list: '"):
        parse_broker_list(f"9:good:9092,{wrong}")


def test_topic_without_brokers_or_partitions_has_no_places() -> None:
    assert places_of({1: 2}, []) == ()
    assert places_of({1: 0}, [1]) == (BrokerPartition(1, 0),)


def test_a_name_that_no_topic_has_spoils_no_other(bench: Bench) -> None:
    bench.broker(0)
    bench.topic("t", b0=1)
    assert bench.learn("") is None
    assert bench.learn("t") == ["0-0"]
    assert [type(error) for error in bench.observed] == [ConfigError, type(None)]
