"""The services that continue while the coordination service is unavailable, and those that do not.

The rules are in docs/design/replication.md, 'Without the coordination service'.
"""

from itertools import cycle

import pytest
from simulation.cluster_checker import ClusterChecker
from simulation.cluster_story import ClusterStory
from simulation.test_cluster_cases import cluster

from barnabas import Admin, Consumer, Producer
from barnabas.core.cluster.topics import NO_LEADER
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.simulation import COORDINATION, Program

MINUTES = 10


@pytest.mark.slow
def test_ten_minutes_without_coordination_fail_no_idempotent_producer_and_stop_no_consumer() -> None:
    sent: list[int] = []
    read: list[int] = []

    def produce(program: Program) -> None:
        with Producer(program, acks="all", enable_idempotence=True) as producer:
            while True:
                producer.send("t", b"%d" % len(sent)).result()  # an error would end the case
                sent.append(len(sent))
                program.sleep(1.0)

    def consume(program: Program) -> None:
        with Consumer(program, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            while True:
                record = consumer.poll(1.0)
                if record is not None:
                    read.append(int(record.value or b""))

    with cluster(1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        ClusterChecker(world, ["t"]).watch()
        world.program("producer", produce)
        world.program("consumer", consume)
        world.run_until(lambda: len(read) > 3)
        lives = {number: broker.lives for number, broker in world.brokers.items()}
        world.coordination.go_down(sessions_expire=True)
        for _ in range(MINUTES):
            written, taken = len(sent), len(read)
            world.run(60)
            assert len(sent) - written > 40, f"the producer stands after {world.now:.0f} s"
            assert len(read) - taken > 40, f"the consumer stands after {world.now:.0f} s"
        world.coordination.come_up()
        written = len(sent)
        world.run_until(lambda: len(sent) > written + 20)
        world.run_until(lambda: read[-1:] == sent[-1:])
        assert {number: broker.lives for number, broker in world.brokers.items()} == lives, "no broker was restarted"
        assert read == sent == list(range(len(sent))), "each message once, in order"


def test_a_leader_that_lost_coordination_alone_acknowledges_nothing_that_its_successor_lacks() -> None:
    """The clients reach both; the old leader does not know better, and its lease is over."""
    sent: list[bytes] = []

    def produce(program: Program) -> None:
        with Producer(program, acks="all", enable_idempotence=True) as producer:
            while True:
                value = b"%d" % len(sent)
                producer.send("t", value).result()
                sent.append(value)

    with cluster(2) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        checker = ClusterChecker(world, ["t"])
        checker.watch()
        world.program("producer", produce)
        world.run_until(lambda: len(sent) > 20)
        old = world.look.states("t")[0].leader
        world.network.partition(old, COORDINATION)
        world.run_until(lambda: world.look.states("t")[0].leader not in (old, NO_LEADER))
        world.run(5)
        deposed = world.partition(old, "t", 0)
        assert deposed is not None and deposed.is_leader, "it has not heard of its successor"
        high_watermark = deposed.high_watermark
        node = world.brokers[old].node
        assert node is not None
        for all_in_sync in (False, True):
            with pytest.raises(ApiError) as refused:
                node.state.replicas.led_for_append("t", 0, all_in_sync=all_in_sync)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        written = len(sent)
        world.run_until(lambda: len(sent) > written + 20)
        assert deposed.high_watermark == high_watermark
        world.network.heal()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == set(world.brokers))
        producer = world.programs["producer"]
        producer.kill()
        values: list[bytes | None] = []
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            while len(values) < len(sent):
                record = consumer.poll(30.0)
                assert record is not None, f"{len(values)} of {len(sent)} that were acknowledged are there"
                values.append(record.value)
        assert values == sent


@pytest.mark.slow
@pytest.mark.parametrize("chosen", range(3))
@pytest.mark.parametrize("sessions_expire", [True, False])
def test_disasters_while_the_service_is_away_break_no_promise(chosen: int, sessions_expire: bool) -> None:
    story = ClusterStory(1_000 + chosen, seconds=12.0)
    world = story.world

    def go_down() -> None:
        world.coordination.go_down(sessions_expire=sessions_expire)
        world.scheduler.call_later(7_000, world.coordination.come_up)

    world.scheduler.call_later(3_000, go_down)
    story.play()


@pytest.mark.slow
@pytest.mark.parametrize("chosen", range(4))
def test_disasters_while_brokers_in_turn_lose_coordination_break_no_promise(chosen: int) -> None:
    """Each for three sessions, so that others lead in its place, which it does not hear of."""
    story = ClusterStory(2_000 + chosen, seconds=14.0)
    brokers = cycle(list(story.world.brokers.values())[chosen % 2 :])

    def cut_off_the_next() -> None:
        if story.world.now < 10:
            next(brokers).lose_coordination(6_000)
            story.world.scheduler.call_later(2_500, cut_off_the_next)

    story.world.scheduler.call_later(2_000, cut_off_the_next)
    story.play()
