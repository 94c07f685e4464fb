"""A broker's nodes in the registries, without threads, with a manual clock."""

from collections.abc import Iterator

import pytest

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.classic.registry.broker_registration import BrokerRegistrar, classic_id_node
from barnabas.core.classic.registry.layout import ClassicBroker
from barnabas.ports.coordination import Coordination, NoNode
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError

PREDECESSOR_MS = 9000.0


class Blocking:
    """A session whose calls belong off the reactor."""

    blocking = True

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self.create, self.get, self.set, self.delete = session.create, session.get, session.set, session.delete
        self.commit, self.children, self.watch, self.add_session_listener, self.close = (
            session.commit,
            session.children,
            session.watch,
            session.add_session_listener,
            session.close,
        )
        self.get_many, self.heartbeat, self.watch_below = session.get_many, session.heartbeat, session.watch_below


class Started:
    """A broker's registrar and its log lines."""

    def __init__(self, world: "World", *, broker_id: int = 7, port: int = 9092, started_ms: int = 1000) -> None:
        self.session = world.tree.session()
        self.reports: list[str] = []
        self.ready: list[bool] = []
        self.failures: list[BarnabasError] = []
        coordination: Coordination = Blocking(self.session) if world.blocking else self.session
        creator = f"host-{started_ms}"
        broker = ClassicBroker(broker_id=broker_id, creator_id=creator, host="host", port=port)
        self.registrar = BrokerRegistrar(
            world.scheduler,
            coordination,
            broker_id=broker_id,
            ids=[classic_id_node(broker)],
            predecessor_ms=PREDECESSOR_MS,
            report=self.reports.append,
            ready=lambda: self.ready.append(True),
            failed=self.failures.append,
        )


class World:
    def __init__(self, *, blocking: bool) -> None:
        self.blocking = blocking
        self.scheduler = ManualScheduler(ManualClock())
        self.tree = MemoryTree(deliver=self.scheduler.call_soon)
        self.eyes = self.tree.session()

    def broker(self, **options: int) -> Started:
        return Started(self, **options)

    def data(self, path: str) -> bytes | None:
        try:
            node = self.eyes.get(path)
        except NoNode:
            return None
        assert node.ephemeral
        return node.data


@pytest.fixture(params=[False, True], ids=["quick", "blocking"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    yield World(blocking=request.param)


def test_the_id_and_then_the_topics_stand_with_exactly_these_contents(world: World) -> None:
    broker = world.broker()
    broker.registrar.want("clicks", 4)
    assert broker.registrar.register()
    assert world.data("/brokers/ids/7") == b"host-1000:host:9092"
    assert world.data("/brokers/topics/clicks/7") == b"4"
    assert broker.registrar.is_ready
    assert not broker.ready, "begin said it"


def test_topics_are_shown_as_they_appear_change_and_go(world: World) -> None:
    broker = world.broker()
    broker.registrar.register()
    broker.registrar.want("late", 2)
    broker.registrar.want("later", 3)
    assert world.data("/brokers/topics/late/7") is None or not world.blocking
    world.scheduler.run_pending()
    assert (world.data("/brokers/topics/late/7"), world.data("/brokers/topics/later/7")) == (b"2", b"3")
    broker.registrar.want("late", 5)
    broker.registrar.forget("later")
    broker.registrar.forget("never was")
    world.scheduler.run_pending()
    assert (world.data("/brokers/topics/late/7"), world.data("/brokers/topics/later/7")) == (b"5", None)


def test_everything_is_registered_again_after_the_session_expired(world: World) -> None:
    broker = world.broker()
    broker.registrar.want("t", 1)
    broker.registrar.register()
    world.tree.expire(broker.session)
    assert world.data("/brokers/ids/7") is None
    world.scheduler.run_pending()
    assert (world.data("/brokers/ids/7"), world.data("/brokers/topics/t/7")) == (b"host-1000:host:9092", b"1")
    assert any("expired" in line for line in broker.reports)
    assert not broker.failures


def test_a_session_that_expires_while_a_topic_is_registered(world: World) -> None:
    broker = world.broker()
    broker.registrar.register()
    broker.registrar.want("t", 1)
    world.tree.expire(broker.session)
    broker.registrar.want("u", 1)
    world.scheduler.run_pending()
    assert all(world.data(path) for path in ("/brokers/ids/7", "/brokers/topics/t/7", "/brokers/topics/u/7"))


def test_while_the_coordination_cannot_be_reached_it_is_tried_again_less_and_less_often(world: World) -> None:
    broker = world.broker()
    broker.registrar.register()
    world.tree.disconnect(broker.session)
    broker.registrar.want("t", 1)
    world.scheduler.advance(60_000)
    assert len([line for line in broker.reports if "retrying" in line]) == 1
    assert world.data("/brokers/topics/t/7") is None
    world.tree.reconnect(broker.session)
    world.scheduler.run_pending()
    assert world.data("/brokers/topics/t/7") == b"1", "at once when it is connected again"


def test_a_session_that_expires_while_it_is_cut_off(world: World) -> None:
    broker = world.broker()
    broker.registrar.want("t", 1)
    broker.registrar.register()
    world.tree.disconnect(broker.session)
    world.tree.expire(broker.session)
    world.scheduler.advance(10_000)
    assert world.data("/brokers/ids/7") is None
    world.tree.reconnect(broker.session)
    world.scheduler.run_pending()
    assert world.data("/brokers/ids/7") and world.data("/brokers/topics/t/7")


def test_a_second_broker_of_the_same_id_does_not_start(world: World) -> None:
    world.broker().registrar.register()
    second = world.broker(port=9093, started_ms=2000)
    with pytest.raises(ApiError, match=r"broker\.id 7 is taken.*host-1000:host:9092") as raised:
        second.registrar.register()
    assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.data("/brokers/ids/7") == b"host-1000:host:9092"


def test_garbage_in_the_place_of_the_id_is_a_clash_too(world: World) -> None:
    world.eyes.create("/brokers/ids/7", b"what is this")
    with pytest.raises(ApiError, match="what is this"):
        world.broker().registrar.register()


def test_one_that_took_the_id_after_an_expiry_is_a_failure(world: World) -> None:
    broker = world.broker()
    broker.registrar.want("t", 1)
    broker.registrar.register()
    world.tree.disconnect(broker.session)
    world.tree.expire(broker.session)
    world.broker(port=9093).registrar.register()
    world.tree.reconnect(broker.session)
    world.scheduler.advance(1000)
    assert [type(error) for error in broker.failures] == [ApiError]
    assert "9093" in str(broker.failures[0])
    assert world.data("/brokers/topics/t/7") is None
    broker.registrar.want("u", 1)
    world.tree.expire(broker.session)
    world.scheduler.advance(100_000)
    assert len(broker.failures) == 1
    assert world.data("/brokers/topics/u/7") is None


def test_the_node_of_a_dead_predecessor_is_waited_for(world: World) -> None:
    dead = world.broker()
    dead.registrar.want("t", 1)
    dead.registrar.register()
    world.tree.disconnect(dead.session)
    broker = world.broker(started_ms=2000)
    broker.registrar.want("t", 1)
    assert not broker.registrar.register()
    world.scheduler.advance(PREDECESSOR_MS - 1000)
    assert not broker.ready
    assert world.data("/brokers/ids/7") == b"host-1000:host:9092"
    world.tree.expire(dead.session)
    world.scheduler.advance(1000)
    assert broker.ready == [True]
    assert world.data("/brokers/ids/7") == b"host-2000:host:9092"
    assert world.data("/brokers/topics/t/7") == b"1"
    world.scheduler.advance(PREDECESSOR_MS)
    assert not broker.failures
    assert len([line for line in broker.reports if "waiting" in line]) == 1


def test_a_predecessor_that_lives_on_is_a_failure_in_the_end(world: World) -> None:
    world.broker().registrar.register()
    broker = world.broker(started_ms=2000)
    assert not broker.registrar.register()
    world.scheduler.advance(PREDECESSOR_MS + 1000)
    assert len(broker.failures) == 1
    assert "another broker" in str(broker.failures[0])
    assert not broker.ready


def test_conflicting_topic_node_is_reported_and_registration_retried(world: World) -> None:
    world.eyes.create("/brokers/topics/mine/7", b"99", ephemeral=True)
    broker = world.broker()
    broker.registrar.want("mine", 1)
    broker.registrar.want("other", 1)
    assert broker.registrar.register()
    assert world.data("/brokers/topics/other/7") == b"1"
    assert any("/brokers/topics/mine/7" in line and "99" in line for line in broker.reports)
    world.eyes.delete("/brokers/topics/mine/7")
    world.scheduler.advance(60_000)
    assert world.data("/brokers/topics/mine/7") == b"1"


def test_nothing_is_done_after_close(world: World) -> None:
    broker = world.broker()
    broker.registrar.register()
    broker.registrar.want("t", 1)
    broker.registrar.close()
    broker.registrar.close()
    broker.session.close()
    world.scheduler.advance(60_000)
    assert not broker.reports
    assert world.data("/brokers/ids/7") is None


def test_a_start_without_a_coordination_raises(world: World) -> None:
    broker = world.broker()
    world.tree.disconnect(broker.session)
    with pytest.raises(BarnabasError, match="connected"):
        broker.registrar.register()
