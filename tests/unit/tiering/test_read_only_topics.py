"""The replicas of a partition that is read from the remote storage of another cluster."""

from collections.abc import Callable

import pytest
from support.replica_cluster import ReplicaCluster

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.app.broker.state.tiering import ReadOnlyTopics, is_beyond_replicas
from barnabas.app.config.remote_keys import check_tiered_topic, check_tiering_change
from barnabas.core.log.config import LogConfig
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.tiering.manifest import (
    MANIFEST,
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    encode_manifest,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError

SOURCE = "orders-AAAAAAAAAAAAAAAAAAAAAA"
CONFIG = LogConfig(remote_storage_source=SOURCE)


class World:
    """Three replicas, and what another cluster has in the remote storage."""

    def __init__(self) -> None:
        self.cluster = ReplicaCluster(3, config=CONFIG)
        self.storage = MemoryRemoteStorage()
        self.reports: list[str] = []
        self.raised: list[tuple[Partition, int]] = []
        self.topics = {number: self._topics(number) for number in (1, 2, 3)}
        for number, member in self.cluster.members.items():
            member.replicas.rebuild = self._rebuild
            member.replicas.add_leadership_listener(self.topics[number].lead, self._resigned(number))
        self.topics[1].lead(self.partition(1))

    def _resigned(self, number: int) -> Callable[[Partition], None]:
        return lambda partition: self.topics[number].resign(partition.topic_partition)

    def _topics(self, number: int) -> ReadOnlyTopics:
        def raise_leader_epoch(partition: Partition, epoch: int, done: Callable[[], None]) -> None:
            self.raised.append((partition, epoch))
            done()

        return ReadOnlyTopics(
            self.storage,
            self.cluster.scheduler.offload,
            self.cluster[number].replicas,
            raise_leader_epoch=raise_leader_epoch,
            clock=self.cluster.clock,
            report=self.reports.append,
        )

    def _rebuild(self, partition: Partition, done: Callable[[bool], None]) -> None:
        log = self.cluster.leader.log
        partition.continue_read_only(log.local_log_start_offset, log_start=log.log_start_offset, now_ms=0)
        done(True)

    def partition(self, number: int) -> Partition:
        return self.cluster[number].partition

    def has(self, *ends: int, log_start: int = 0, leader_epoch: int = 0) -> None:
        """The other cluster has segments with these ends."""
        segments = []
        base = 0
        for end in ends:
            segments.append(
                RemoteSegment(
                    segment_id=f"to{end}",
                    base_offset=base,
                    next_offset=end,
                    size=100,
                    max_timestamp=0,
                    epochs=((0, base),),
                    leader_epoch=0,
                    state=SegmentState.COPY_FINISHED,
                )
            )
            base = end
        content = Manifest(
            topic=TieredTopic(name="orders", topic_id=bytes(16), partitions=1),
            partition=0,
            leader_epoch=leader_epoch,
            log_start=log_start,
            epochs=((0, log_start),),
            segments=tuple(each for each in segments if each.next_offset > log_start),
        )
        self.storage.put(f"{SOURCE}/0/{MANIFEST}", encode_manifest(content))

    def read(self, number: int = 1, ms: float = 300) -> None:
        """A leader reads the manifest again, and the followers hear of it."""
        self.topics[number].read_all()
        self.cluster.run(ms)


@pytest.fixture
def world() -> World:
    return World()


def test_log_continues_where_the_manifest_ends_once_all_in_sync_replicas_do(world: World) -> None:
    world.has(10, 20)
    world.cluster.cut = {frozenset((1, 3))}
    world.read()
    leader = world.partition(1)
    assert (leader.log.log_start_offset, leader.log.log_end_offset) == (0, 20)
    assert (world.partition(2).log.log_end_offset, leader.high_watermark) == (20, 0)
    assert is_beyond_replicas(leader, 10)
    world.cluster.cut = set()
    world.cluster.run(300)
    assert [world.partition(number).log.log_end_offset for number in (1, 2, 3)] == [20, 20, 20]
    assert leader.high_watermark == 20
    assert not is_beyond_replicas(leader, 20)
    world.has(10, 20, 30)
    world.read()
    assert [world.partition(number).high_watermark for number in (1, 2, 3)] == [30, 30, 30]


def test_reader_at_the_end_is_answered_when_there_is_more(world: World) -> None:
    world.has(10)
    world.read()
    came = world.cluster[1].consume(10, max_wait_ms=60_000)
    world.cluster.run(100)
    assert not came
    world.has(10, 20)
    world.read()
    assert [each.error for each in came] == [ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE], "nothing reads it here"


def test_later_leader_continues_and_ends_no_earlier(world: World) -> None:
    world.has(10, 20)
    world.read()
    world.cluster.kill(1)
    world.cluster.lead(2)
    world.cluster.run()
    assert world.partition(2).high_watermark == 20
    world.has(10, 20, 30)
    world.read(2)
    assert world.partition(2).log.log_end_offset == 30


def test_log_start_follows_and_the_end_never_goes_back(world: World) -> None:
    world.has(10, 20)
    world.read()
    world.has(10, 20, log_start=10)
    world.read()
    assert [world.partition(number).log.log_start_offset for number in (1, 2, 3)] == [10, 10, 10]
    world.has(10)
    world.read()
    assert (world.partition(1).log.log_start_offset, world.partition(1).high_watermark) == (10, 20)
    assert [line for line in world.reports if "before 20, where it ended already" in line]
    world.has(50, log_start=50)
    world.read()
    assert [world.partition(number).high_watermark for number in (1, 2, 3)] == [50, 50, 50]
    assert world.partition(1).log.log_start_offset == 50


def test_records_of_later_leader_epochs_wait_until_that_of_the_leader_is_raised(world: World) -> None:
    world.has(10, leader_epoch=1)
    world.read()
    leader = world.partition(1)
    assert {epoch for _, epoch in world.raised} == {1}
    assert leader.log.log_end_offset == 0
    world.cluster.lead(1)
    world.cluster.run(300)
    assert (leader.leader_epoch, leader.high_watermark) == (1, 10)


def test_missing_manifest_is_reported_once(world: World) -> None:
    world.cluster.run()
    world.read()
    world.read()
    assert len([line for line in world.reports if "there is none" in line]) == 1


def test_writes_and_deletions_are_refused_and_clients_do_not_repeat_them(world: World) -> None:
    world.has(10)
    world.read()
    (observed,) = world.cluster[1].produce(b"a")
    assert observed.error is ErrorCode.POLICY_VIOLATION
    (deleted,) = world.cluster[1].delete(5)
    assert deleted.error is ErrorCode.POLICY_VIOLATION
    assert world.partition(1).log.log_end_offset == 10


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (LogConfig(remote_storage_source="../orders"), "the folder of a topic"),
        (LogConfig(remote_storage_source=SOURCE, remote_storage_enable=True), "a read-only topic is not copied"),
        (LogConfig(remote_storage_source=SOURCE, mirror_source="c"), "neither a mirror"),
        (LogConfig(remote_storage_source=SOURCE, cleanup_policy=frozenset({"compact"})), "compacted"),
        (LogConfig(remote_storage_source=SOURCE, message_format="classic"), "classic"),
    ],
)
def test_settings_that_exclude_a_read_only_topic_are_refused(config: LogConfig, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_tiered_topic(config, is_system_enabled=True)


def test_source_needs_remote_storage_and_never_changes() -> None:
    check_tiered_topic(CONFIG, is_system_enabled=True)
    with pytest.raises(ConfigError, match="no remote storage"):
        check_tiered_topic(CONFIG, is_system_enabled=False)
    with pytest.raises(ConfigError, match="cannot change"):
        check_tiering_change(CONFIG, LogConfig())
    with pytest.raises(ConfigError, match="cannot change"):
        check_tiering_change(LogConfig(), CONFIG)
