"""Bytes of closed segments change on one disk: the replica gets them again from another one."""

from typing import Any

import pytest
from support.long_tests import first_is_quick

from barnabas import Admin, Producer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.types import TopicPartition
from barnabas.simulation import NetworkFaults, World

MESSAGES = 60
SETTINGS: dict[str, Any] = {
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "replica_lag_time_max_ms": 1500,
    "zookeeper_session_timeout_ms": 2000,
    "log_segment_bytes": 1_000,
    "log_segment_delete_delay_ms": 100,
}


class Rotten:
    """Three brokers, and a topic of several segments on each."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.world = World(seed, brokers=3, session_seconds=2.0, **{**SETTINGS, **settings})

    def __enter__(self) -> "Rotten":
        world = self.world
        world.__enter__()
        with Admin(world.client("admin")) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(world.client("p"), acks="all") as producer:
            for number in range(MESSAGES):
                producer.send("t", b"message %04d" % number + bytes(60)).result()
        self.leader = world.look.states("t")[0].leader
        world.run_until(lambda: all(self.log(each).log_end_offset == MESSAGES for each in world.brokers))
        world.run(2)
        self.before = {each: self.files(each) for each in world.brokers}
        return self

    def __exit__(self, *error: object) -> None:
        self.world.__exit__(*error)  # type: ignore[arg-type]

    def log(self, broker: int) -> Any:
        return self.world.brokers[broker].partitions["t", 0].log

    def files(self, broker: int) -> dict[str, bytes]:
        folder = self.world.brokers[broker].disk.folders["t-0"]
        return {name: bytes(content.data) for name, content in folder.items() if name.endswith(".log")}

    def rot(self, broker: int, number: int, at: int = 200, size: int = 1) -> str:
        """Change bytes of a closed segment; returns its name."""
        name = sorted(self.files(broker))[number]
        content = self.world.brokers[broker].disk.folders["t-0"][name]
        for position in range(at, at + size):
            content.data[position] ^= 0x55
        content.durable = bytes(content.data)
        return name

    def figures(self, broker: int) -> Any:
        node = self.world.brokers[broker].node
        assert node is not None
        return node._scrubbing

    def suspect(self, broker: int, number: int) -> None:
        log = self.log(broker)
        self.figures(broker).scrubber.suspect(log, log.segments[number].base_offset)


def followers(harness: Rotten) -> list[int]:
    return [each for each in harness.world.brokers if each != harness.leader]


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize(("at", "size"), first_is_quick([(200, 1), (0, 30), (300, 400), (0, 990)]))
def test_the_background_check_finds_rot_and_the_segment_is_made_again(who: str, at: int, size: int) -> None:
    """One byte, the header of the first batch, several batches, nearly all of the segment."""
    with Rotten(3) as harness:
        broker = harness.leader if who == "leader" else followers(harness)[0]
        harness.rot(broker, 1, at, size)
        assert harness.files(broker) != harness.before[broker]
        harness.world.run_until(lambda: harness.files(broker) == harness.before[broker], limit=100.0)
        harness.world.run(1)
        scrubbing = harness.figures(broker)
        assert (scrubbing.scrubber.figures.damaged, scrubbing.repairs.figures.repaired) == (1, 1)
        assert harness.log(broker).log_end_offset == MESSAGES
        assert {harness.log(each).log_end_offset for each in harness.world.brokers} == {MESSAGES}
        names = harness.world.brokers[broker].disk.folders["t-0"]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_short_interval_holds_from_the_start_on() -> None:
    with Rotten(31, log_scrub_interval_ms=2_000) as harness:
        harness.rot(harness.leader, 1)
        harness.world.run_until(lambda: harness.files(harness.leader) == harness.before[harness.leader], limit=20.0)


def test_damaged_segment_that_others_have_compacted_away_becomes_an_empty_batch() -> None:
    """It would keep the cleaner from the log for ever."""
    with Rotten(7, log_scrub_interval_ms=2_000, log_cleaner_backoff_ms=500) as harness:
        broker, world = followers(harness)[0], harness.world
        harness.rot(broker, 1, 0, len(harness.before[broker][sorted(harness.before[broker])[1]]))
        with Producer(world.client("again"), acks="all") as producer:
            for number in range(20):
                producer.send("t", b"last %04d" % number + bytes(60), key=b"k").result()
        with Admin(world.client("admin")) as admin:
            changed = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            admin.alter_configs(ResourceKind.TOPIC, "t", changed)
        others = [each for each in world.brokers if each != broker]
        world.run_until(lambda: all(harness.log(each).size_bytes < 3_000 for each in others), limit=60.0)
        world.run_until(lambda: harness.figures(broker).repairs.figures.repaired == 1, limit=100.0)
        world.run_until(lambda: harness.log(broker).size_bytes < 3_000, limit=60.0)
        assert not any(segment.gaps for segment in harness.log(broker).segments)


def test_a_follower_that_refuses_a_damaged_batch_makes_its_leader_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background check is off: a new replica has to copy old messages that were not read for long."""
    with Rotten(4, log_scrub_io_max_bytes_per_second=0) as harness:
        harness.rot(harness.leader, 2)
        late = followers(harness)[0]
        harness.world.brokers[late].kill()
        harness.world.run_until(lambda: not harness.world.brokers[late].running)
        harness.world.brokers[late].lose_disk()
        harness.world.run(4)
        harness.world.brokers[late].start()
        harness.world.run_until(lambda: harness.world.brokers[late].running, limit=100.0)
        harness.world.run_until(lambda: harness.files(late) == harness.before[harness.leader], limit=100.0)
        assert harness.files(harness.leader) == harness.before[harness.leader]
        assert harness.figures(harness.leader).repairs.figures.repaired == 1


def test_rot_in_the_same_place_of_all_replicas_is_an_error_and_the_rest_stays() -> None:
    with Rotten(5) as harness:
        for broker in harness.world.brokers:
            harness.rot(broker, 1)
        rotten = {each: harness.files(each) for each in harness.world.brokers}
        harness.suspect(harness.leader, 1)
        figures = harness.figures(harness.leader).repairs.figures
        harness.world.run_until(lambda: figures.failed > 0, limit=100.0)
        assert figures.repaired == 0
        assert {each: harness.files(each) for each in harness.world.brokers} == rotten, "nothing is cut"
        assert harness.log(harness.leader).log_end_offset == MESSAGES


def test_rot_in_different_places_is_repaired_from_each_other() -> None:
    with Rotten(6) as harness:
        for number, broker in enumerate(harness.world.brokers):
            harness.rot(broker, number)
        harness.world.run_until(
            lambda: all(harness.files(each) == harness.before[each] for each in harness.world.brokers), limit=200.0
        )


def test_a_repair_waits_until_a_replica_with_a_good_copy_is_back() -> None:
    with Rotten(7) as harness:
        others = followers(harness)
        harness.rot(others[0], 1)
        harness.rot(harness.leader, 1)
        harness.world.brokers[others[1]].stop()
        harness.world.run_until(lambda: harness.world.brokers[others[1]].node is None)
        harness.suspect(harness.leader, 1)
        figures = harness.figures(harness.leader).repairs.figures
        harness.world.run_until(lambda: figures.failed > 0, limit=100.0)
        assert figures.repaired == 0
        harness.world.brokers[others[1]].start()
        harness.world.run_until(lambda: harness.files(harness.leader) == harness.before[harness.leader], limit=300.0)


def test_a_repair_whose_connections_were_lost_is_tried_again_within_seconds() -> None:
    with Rotten(11) as harness:
        world, leader = harness.world, harness.leader
        harness.rot(leader, 1)
        network, figures = world.network, harness.figures(leader).repairs.figures
        network.faults = NetworkFaults(refuse_chance=1.0)
        network.lose_connections(f"broker-{leader}")
        harness.suspect(leader, 1)
        world.run_until(lambda: figures.failed > 1, limit=10.0)
        network.faults = NetworkFaults()
        world.run_until(lambda: harness.files(leader) == harness.before[leader], limit=10.0)
        assert sum("cannot be repaired" in line for line in world.reports) == 1


def test_retention_of_the_damaged_segment_during_a_repair_ends_it() -> None:
    with Rotten(8) as harness:
        harness.rot(harness.leader, 1)
        harness.suspect(harness.leader, 1)
        with Admin(harness.world.client("admin")) as admin:
            admin.delete_records({("t", 0): MESSAGES - 5})
        harness.world.run(5)
        assert harness.figures(harness.leader).repairs.figures.failed == 0
        assert harness.log(harness.leader).log_end_offset == MESSAGES
        assert TopicPartition("t", 0) in harness.world.brokers[harness.leader].partitions


@pytest.mark.parametrize("after_ms", first_is_quick([20, 5, 10, 15, 25, 30, 35, 40, 45, 50, 120]))
def test_a_power_cut_during_a_repair_leaves_the_old_segment_or_the_new(after_ms: int) -> None:
    with Rotten(20 + after_ms) as harness:
        harness.rot(harness.leader, 1)
        harness.suspect(harness.leader, 1)
        harness.world.run(after_ms / 1000)
        broker = harness.world.brokers[harness.leader]
        broker.power_cut()
        harness.world.run_until(lambda: not broker.running)
        harness.world.run(1)
        broker.start()
        harness.world.run_until(lambda: ("t", 0) in broker.partitions, limit=100.0)
        harness.world.run_until(lambda: harness.files(harness.leader) == harness.before[harness.leader], limit=200.0)
        assert harness.log(harness.leader).log_end_offset == MESSAGES
        harness.world.run(2)
        names = broker.disk.folders["t-0"]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("at", [2_050, 2_000])
def test_a_damaged_active_segment_is_closed_and_made_again(at: int) -> None:
    """The records of a batch, and its leader epoch, which is under no checksum."""
    with Rotten(9, log_segment_bytes=1_000_000) as harness:
        (name,) = harness.files(harness.leader)
        harness.rot(harness.leader, 0, at)
        late = followers(harness)[0]
        harness.world.brokers[late].kill()
        harness.world.run_until(lambda: not harness.world.brokers[late].running)
        harness.world.brokers[late].lose_disk()
        harness.world.run(4)
        harness.world.brokers[late].start()
        harness.world.run_until(lambda: harness.world.brokers[late].running, limit=100.0)
        before = harness.before[harness.leader][name]
        harness.world.run_until(lambda: b"".join(harness.files(late).values()) == before, limit=100.0)
        harness.world.run(1)
        assert harness.files(harness.leader)[name] == before
        assert harness.figures(harness.leader).repairs.figures.repaired == 1


def test_a_follower_that_asks_twice_does_not_close_a_sound_segment() -> None:
    with Rotten(10, log_segment_bytes=1_000_000) as harness:
        log = harness.log(harness.leader)
        for _ in range(3):
            harness.figures(harness.leader).scrubber.suspect(log, 5)
            harness.world.run(11)
        assert harness.figures(harness.leader).scrubber.figures.bytes > 0
        assert len(log.segments) == 1
