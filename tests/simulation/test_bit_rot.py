"""Bytes of closed segments change on one disk: the replica gets them again from another one."""

from typing import Any

import pytest
from support.long_tests import first_is_quick

from barnabas import Admin, Producer
from barnabas.ports.types import TopicPartition
from barnabas.simulation import World

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


def followers(house: Rotten) -> list[int]:
    return [each for each in house.world.brokers if each != house.leader]


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize(("at", "size"), first_is_quick([(200, 1), (0, 30), (300, 400), (0, 990)]))
def test_the_background_check_finds_rot_and_the_segment_is_made_again(who: str, at: int, size: int) -> None:
    """One byte, the header of the first batch, several batches, nearly all of the segment."""
    with Rotten(3) as house:
        broker = house.leader if who == "leader" else followers(house)[0]
        house.rot(broker, 1, at, size)
        assert house.files(broker) != house.before[broker]
        house.world.run_until(lambda: house.files(broker) == house.before[broker], limit=100.0)
        house.world.run(1)
        scrubbing = house.figures(broker)
        assert (scrubbing.scrubber.figures.damaged, scrubbing.repairs.figures.repaired) == (1, 1)
        assert house.log(broker).log_end_offset == MESSAGES
        assert {house.log(each).log_end_offset for each in house.world.brokers} == {MESSAGES}
        names = house.world.brokers[broker].disk.folders["t-0"]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_short_interval_holds_from_the_start_on() -> None:
    with Rotten(31, log_scrub_interval_ms=2_000) as house:
        house.rot(house.leader, 1)
        house.world.run_until(lambda: house.files(house.leader) == house.before[house.leader], limit=20.0)


def test_a_follower_that_refuses_a_damaged_batch_makes_its_leader_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the background check: a new replica has to copy what nobody has read for long."""
    with Rotten(4, log_scrub_io_max_bytes_per_second=0) as house:
        house.rot(house.leader, 2)
        late = followers(house)[0]
        house.world.brokers[late].kill()
        house.world.run_until(lambda: not house.world.brokers[late].running)
        house.world.brokers[late].lose_disk()
        house.world.run(4)
        house.world.brokers[late].start()
        house.world.run_until(lambda: house.world.brokers[late].running, limit=100.0)
        house.world.run_until(lambda: house.files(late) == house.before[house.leader], limit=100.0)
        assert house.files(house.leader) == house.before[house.leader]
        assert house.figures(house.leader).repairs.figures.repaired == 1


def test_rot_in_the_same_place_of_all_replicas_is_an_error_and_the_rest_stays() -> None:
    with Rotten(5) as house:
        for broker in house.world.brokers:
            house.rot(broker, 1)
        rotten = {each: house.files(each) for each in house.world.brokers}
        house.suspect(house.leader, 1)
        figures = house.figures(house.leader).repairs.figures
        house.world.run_until(lambda: figures.failed > 0, limit=100.0)
        assert figures.repaired == 0
        assert {each: house.files(each) for each in house.world.brokers} == rotten, "nothing is cut"
        assert house.log(house.leader).log_end_offset == MESSAGES


def test_rot_in_different_places_is_repaired_from_each_other() -> None:
    with Rotten(6) as house:
        for number, broker in enumerate(house.world.brokers):
            house.rot(broker, number)
        house.world.run_until(
            lambda: all(house.files(each) == house.before[each] for each in house.world.brokers), limit=200.0
        )


def test_a_repair_waits_until_a_replica_with_a_good_copy_is_back() -> None:
    with Rotten(7) as house:
        others = followers(house)
        house.rot(others[0], 1)
        house.rot(house.leader, 1)
        house.world.brokers[others[1]].stop()
        house.world.run_until(lambda: house.world.brokers[others[1]].node is None)
        house.suspect(house.leader, 1)
        figures = house.figures(house.leader).repairs.figures
        house.world.run_until(lambda: figures.failed > 0, limit=100.0)
        assert figures.repaired == 0
        house.world.brokers[others[1]].start()
        house.world.run_until(lambda: house.files(house.leader) == house.before[house.leader], limit=300.0)


def test_retention_of_the_damaged_segment_during_a_repair_ends_it() -> None:
    with Rotten(8) as house:
        house.rot(house.leader, 1)
        house.suspect(house.leader, 1)
        with Admin(house.world.client("admin")) as admin:
            admin.delete_records({("t", 0): MESSAGES - 5})
        house.world.run(5)
        assert house.figures(house.leader).repairs.figures.failed == 0
        assert house.log(house.leader).log_end_offset == MESSAGES
        assert TopicPartition("t", 0) in house.world.brokers[house.leader].partitions


@pytest.mark.parametrize("after_ms", first_is_quick([20, 5, 10, 15, 25, 30, 35, 40, 45, 50, 120]))
def test_a_power_cut_during_a_repair_leaves_the_old_segment_or_the_new(after_ms: int) -> None:
    with Rotten(20 + after_ms) as house:
        house.rot(house.leader, 1)
        house.suspect(house.leader, 1)
        house.world.run(after_ms / 1000)
        broker = house.world.brokers[house.leader]
        broker.power_cut()
        house.world.run_until(lambda: not broker.running)
        house.world.run(1)
        broker.start()
        house.world.run_until(lambda: ("t", 0) in broker.partitions, limit=100.0)
        house.world.run_until(lambda: house.files(house.leader) == house.before[house.leader], limit=200.0)
        assert house.log(house.leader).log_end_offset == MESSAGES
        house.world.run(2)
        names = broker.disk.folders["t-0"]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("at", [2_050, 2_000])
def test_a_damaged_active_segment_is_closed_and_made_again(at: int) -> None:
    """The records of a batch, and its leader epoch, which is under no checksum."""
    with Rotten(9, log_segment_bytes=1_000_000) as house:
        (name,) = house.files(house.leader)
        house.rot(house.leader, 0, at)
        late = followers(house)[0]
        house.world.brokers[late].kill()
        house.world.run_until(lambda: not house.world.brokers[late].running)
        house.world.brokers[late].lose_disk()
        house.world.run(4)
        house.world.brokers[late].start()
        house.world.run_until(lambda: house.world.brokers[late].running, limit=100.0)
        before = house.before[house.leader][name]
        house.world.run_until(lambda: b"".join(house.files(late).values()) == before, limit=100.0)
        house.world.run(1)
        assert house.files(house.leader)[name] == before
        assert house.figures(house.leader).repairs.figures.repaired == 1


def test_a_follower_that_asks_twice_does_not_close_a_sound_segment() -> None:
    with Rotten(10, log_segment_bytes=1_000_000) as house:
        log = house.log(house.leader)
        for _ in range(3):
            house.figures(house.leader).scrubber.suspect(log, 5)
            house.world.run(11)
        assert house.figures(house.leader).scrubber.figures.bytes > 0
        assert len(log.segments) == 1
