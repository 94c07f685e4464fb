"""Points of a broker's work at which the simulation interferes, one by one."""

from contextlib import suppress
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.ports.errors import BarnabasError
from barnabas.simulation import World
from barnabas.simulation.interference import POINTS, point_of_append, point_of_rename, point_of_write

QUICK: dict[str, Any] = {
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "zookeeper_session_timeout_ms": 2000,
}


def cluster(seed: int) -> World:
    return World(seed, brokers=3, session_seconds=2.0, **QUICK)


@pytest.mark.parametrize(("act", "is_made"), [("kill before", False), ("kill after", True)])
def test_broker_killed_at_the_write_of_a_topic_leaves_it_unmade_or_made(act: str, is_made: bool) -> None:
    with cluster(3) as world:
        there: list[bool] = []

        def struck() -> None:
            there.append("t" in world.look.topics())
            for broker in world.brokers.values():
                broker.points.disarm()

        for broker in world.brokers.values():
            broker.points.arm("write of a topic", act, struck)
        with Admin(world.client(), default_api_timeout_ms=5000) as admin, suppress(BarnabasError):
            admin.create_topic("t", partitions=1)  # another broker makes it, or finds it there
        assert there == [is_made]
        assert sum(broker.running for broker in world.brokers.values()) == 2
        assert world.reached[f"point: write of a topic: {act}"] == 1


def test_disarmed_broker_is_left_alone_at_every_point() -> None:
    with cluster(4) as world:
        for broker in world.brokers.values():
            for point, acts in POINTS.items():
                broker.points.arm(point, acts[-1])
            broker.points.disarm()
        with Admin(world.client()) as admin, Producer(world.client()) as producer:
            admin.create_topic("t", partitions=1)
            assert producer.send("t", b"m").result().offset == 0
        assert not [state for state in world.reached if state.startswith("point")]


def test_refused_change_of_the_isr_is_tried_again() -> None:
    with cluster(5) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        for broker in world.brokers.values():
            broker.points.arm("write of partition states", "is refused")
        world.brokers[1].restart(after=4)
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 2, 20)
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3, 20)
        assert world.reached["point: write of partition states: is refused"]


def test_process_killed_within_a_callback_runs_no_further_code() -> None:
    """The leader is killed during its own append to the log, so no client gets an answer."""
    with cluster(6) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(world.client(), transactional_id="a", max_block_ms=3000) as producer:
            for broker in world.brokers.values():
                broker.points.arm("append to a coordinator's log", "kill after")
            with pytest.raises(BarnabasError):
                producer.init_transactions(2)
            assert any(broker.node is None for broker in world.brokers.values())
            for broker in world.brokers.values():
                broker.points.disarm()
                broker.start()
            world.run(5)
            producer.init_transactions(20)


def test_names_of_files_and_nodes_lead_to_points() -> None:
    assert point_of_write(["/barnabas/states/x.0"]) == "write of partition states"
    assert point_of_write(["/barnabas/states/x.0", "/barnabas/topics/t"]) == "write of a topic"
    assert point_of_write(["/barnabas/topics"]) == "write of a topic"
    assert point_of_write(["/barnabas/cluster/id"]) is None
    assert point_of_rename("1.log.cleaned", "1.log.swap") == point_of_rename("1.log.swap", "1.log")
    assert point_of_rename("1.log", "1.log.deleted") == "deletion of a segment"
    assert point_of_append("__consumer_offsets-0", "1.log") == "append to a coordinator's log"
    assert point_of_append("__consumer_offsets-0", "1.index") is None
    assert point_of_append("t-0", "1.log") is None
