"""The simulated world itself: programs wait in its time, its faults do what they say, a seed replays it."""

import threading
from collections.abc import Callable

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.errors import BarnabasError
from barnabas.simulation import Disasters, Program, World


def one_broker(seed: int = 1, **settings: object) -> World:
    world = World(seed, brokers=1)
    with Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
    return world


def test_clients_of_the_caller_wait_in_the_time_of_the_world() -> None:
    with one_broker() as world:
        with Producer(world.client()) as producer:
            assert producer.send("t", b"a").result().offset == 0
        before = world.now
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign("t")
            assert [m.value for m in consumer.poll_many(timeout=5)] == [b"a"]
            assert world.now - before < 1
            assert consumer.poll(timeout=600) is None
        assert world.now - before > 600


@pytest.mark.slow
def test_a_program_is_ordinary_blocking_code() -> None:
    """A whole loop with a group, commits and waiting; an hour of it."""
    seen: list[bytes | None] = []

    def produce(program: Program) -> None:
        with Producer(program) as producer:
            for number in range(60):
                producer.send("t", b"%d" % number)
                program.sleep(60)

    def consume(program: Program) -> None:
        with Consumer(program, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            while len(seen) < 60:
                seen.extend(message.value for message in consumer.poll_many(timeout=1.0))

    with one_broker() as world:
        producer, consumer = world.program("producer", produce), world.program("consumer", consume)
        world.run(3660)
        assert not producer.running
        assert not consumer.running
    assert seen == [b"%d" % number for number in range(60)]


def test_exception_of_a_program_leaves_the_run() -> None:
    def wrong(_program: Program) -> None:
        raise AssertionError("two and two")

    with one_broker() as world:
        world.program("wrong", wrong)
        with pytest.raises(AssertionError, match="two and two"):
            world.run(1)


def test_a_supervised_program_is_started_again_after_an_error_and_after_a_kill() -> None:
    begun: list[float] = []

    def run(program: Program) -> None:
        begun.append(program.world.clock.monotonic_ms())
        program.sleep(5)
        raise BarnabasError("cannot continue")

    with one_broker() as world:
        program = world.program("run", run, restart_after=2)
        world.run(8)
        assert len(begun) == 2
        program.kill()
        world.run(1.5)
        assert not program.running
        world.run(1)
        assert len(begun) == 3


def test_a_killed_program_does_nothing_more_not_even_in_finally() -> None:
    done: list[str] = []

    def run(program: Program) -> None:
        try:
            with Producer(program) as producer:
                producer.send("t", b"never", timestamp_ms=1)
                program.sleep(100)
        finally:
            done.append("cleaned up")
            with Producer(program) as producer:
                producer.send("t", b"from beyond").result()

    with one_broker() as world:
        before = set(threading.enumerate())
        program = world.program("run", run)
        world.run(1)
        program.kill()
        world.run(30)
        assert done == ["cleaned up"]
        assert set(threading.enumerate()) <= before
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign("t")
            assert [message.value for message in consumer.poll_many(timeout=1)] == [b"never"]


def test_paused_program_continues_after_pause() -> None:
    woke: list[float] = []

    def run(program: Program) -> None:
        program.sleep(1)
        woke.append(program.now)

    with one_broker() as world:
        program = world.program("run", run)
        world.run(0.5)
        began = program.now
        program.pause(20)
        world.run(30)
        assert woke[0] - began >= 20


def send_one(world: World, value: bytes) -> int:
    with Producer(world.client(), delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        return producer.send("t", value).result().offset


@pytest.mark.parametrize("one_way", [False, True])
def test_a_partition_keeps_a_client_from_the_broker_until_it_heals(one_way: bool) -> None:
    with one_broker() as world:
        client = world.client()
        with Producer(client, delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
            producer.send("t", b"before").result()
            world.network.partition(1, client.name, one_way=one_way)
            with pytest.raises(ClientTimeout):
                producer.send("t", b"lost on the way").result(2.0)
            world.network.heal(1)
            producer.send("t", b"after").result()
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign("t")
            values = [message.value for message in consumer.poll_many(timeout=1)]
        assert values[0] == b"before"
        assert values[-1] == b"after"
        assert (b"lost on the way" in values) >= one_way, "it is its answer that does not arrive"


def flushed(world: World) -> None:
    world.brokers[1].kill()


def cut(world: World) -> None:
    world.brokers[1].power_cut()


def lost(world: World) -> None:
    world.brokers[1].lose_disk()


@pytest.mark.parametrize(("end", "log_ends"), [(flushed, range(20, 21)), (cut, range(20)), (lost, range(1))])
def test_end_of_a_broker_leaves_its_flushed_bytes_on_disk(end: Callable[[World], None], log_ends: range) -> None:
    with one_broker(3) as world:
        for number in range(20):
            send_one(world, b"%d" % number)
        end(world)
        world.run(1)
        world.brokers[1].start()
        world.run_until(lambda: world.brokers[1].running)
        partition = world.partition(1, "t", 0)
        assert (partition.log.log_end_offset if partition is not None else 0) in log_ends


def test_the_coordination_service_may_be_down() -> None:
    with one_broker() as world:
        world.coordination.go_down()
        world.run(1)
        world.coordination.come_up()
        world.run(1)
        with Admin(world.client()) as admin:
            admin.create_topic("u")
        world.coordination.expire(1)
        world.run(1)
        assert world.brokers[1].running


def test_the_same_seed_plays_the_same_world() -> None:
    def trace(seed: int) -> tuple[object, ...]:
        test_values: list[bytes | None] = []

        def consume(program: Program) -> None:
            with Consumer(program, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe("t")
                for message in consumer:
                    test_values.append(message.value)

        with one_broker(seed) as world:
            world.program("consumer", consume, restart_after=1)
            send_one(world, b"a")
            world.run(3)
            world.brokers[1].power_cut()
            world.run(1)
            world.brokers[1].start()
            send_one(world, b"b")
            world.run(20)
            return (world.now, test_values, world.reports)

    assert trace(5) == trace(5)
    assert trace(5)[2] != trace(6)[2]


def test_disasters_happen_and_end() -> None:
    def work(program: Program) -> None:
        while True:
            program.sleep(1)

    with one_broker(2) as world:
        program = world.program("work", work, restart_after=1)
        disasters = Disasters(world, every=2, lasting=3)
        with disasters:
            world.run(120)
        world.run(5)
        assert disasters.count > 20
        assert program.lives > 1
        assert world.brokers[1].lives > 5
        assert send_one(world, b"all is well") >= 0


def test_a_kind_of_disaster_that_there_is_not() -> None:
    with World(brokers=1) as world, pytest.raises(ValueError, match=r"earthquake; there are restart"):
        Disasters(world, kinds=["kill", "earthquake"])


def test_disasters_spare_listed_brokers() -> None:
    with one_broker() as world:
        with Disasters(world, every=1, spared=[1], kinds=["kill", "power_cut", "restart", "pause"]) as disasters:
            world.run(60)
        assert disasters.count == 0
        assert world.brokers[1].lives == 1


def test_a_program_without_power_is_not_started_again_though_it_had_just_ended() -> None:
    def work(_program: Program) -> None:
        raise ClientTimeout("at once")

    with World(3, brokers=1) as world:
        program = world.program("work", work, restart_after=1)
        world.run(0.5)
        assert (program.running, program.lives) == (False, 1)
        program.cut_power()
        world.run(3)
        assert program.lives == 1


def test_lagging_server_sends_no_watch_event_for_changes_it_does_not_show() -> None:
    """A watch event was in flight when the server fell behind: it must not include later changes."""
    with World(1, brokers=2) as world:
        machine = world.brokers[1]
        session, other = machine.session(), world.brokers[2].session()
        session.create("/a")
        session.create("/b")
        world.run(1)
        shown: list[bytes] = []
        session.watch_below("/a", lambda _: shown.append(session.get("/b").data))
        session.watch_below("/b", lambda _: shown.append(session.get("/b").data))
        other.set("/a", b"1")
        machine.session_faults.lag(world.tree.nodes)
        other.set("/b", b"1")
        world.run(1)
        machine.session_faults.catch_up()
        world.run(1)
        assert shown[-1:] == [b"1"], "the watcher of /b has read its earlier value"
