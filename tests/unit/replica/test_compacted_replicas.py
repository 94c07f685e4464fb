"""Each replica compacts its own log: what is copied from another one may have holes where others have none."""

from support.cleaned_log import last_values, messages_of
from support.replica_cluster import KEY, Member, ReplicaCluster

from barnabas.adapters.system import SeededEntropy
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.log.compaction.log_cleaner import LogCleaner
from barnabas.core.log.config import LogConfig
from barnabas.core.message.codec import NO_CODECS
from barnabas.ports.broker_api.produce import ProducePartition
from barnabas.ports.types import Offset
from barnabas.testing.logs import batch

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=400, min_cleanable_dirty_ratio=0.0)


def send(cluster: ReplicaCluster, *pairs: tuple[bytes, bytes]) -> None:
    records = batch(*(value for _, value in pairs), keys=[key for key, _ in pairs])
    cluster.leader.replicas.append([ProducePartition("t", 0, records)], lambda _: None, acks=1, timeout_ms=1000)


def compact(cluster: ReplicaCluster, member: Member) -> None:
    """Up to its high watermark."""
    cleaner = LogCleaner(
        member.logs.homes,
        settings=lambda: CleanerSettings(backoff_ms=1),
        decided_to=lambda _: Offset(member.partition.high_watermark),
        clock=cluster.clock,
        scheduler=cluster.scheduler,
        codecs=NO_CODECS,
        entropy=SeededEntropy(member.broker_id),
        report=member.reports.append,
    )
    cleaner.start()
    cluster.run(500)
    stopped: list[bool] = []
    cleaner.stop(lambda: stopped.append(True))
    cluster.run(100)
    assert stopped


def test_returning_follower_copies_the_compacted_log() -> None:
    cluster = ReplicaCluster(config=CONFIG)
    send(cluster, (b"early", b"1"))
    cluster.run()
    cluster.isolate(3)
    for number in range(60):
        send(cluster, (b"k%d" % (number % 3), b"%d" % number), (b"once%d" % (number % 20), b"x"))
        cluster.run(1)
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.run()
    wanted = last_values(cluster[1].log)
    compact(cluster, cluster[1])
    assert len(messages_of(cluster[1].log)) < 50
    assert cluster[3].log.log_end_offset == 1
    cluster.heal()
    cluster.until(lambda: cluster.state.isr == (1, 2, 3))
    assert messages_of(cluster[3].log) == messages_of(cluster[1].log)
    assert len(messages_of(cluster[2].log)) == 121
    assert all(last_values(member.log) == wanted for member in cluster.live)
    assert len({member.log.log_end_offset for member in cluster.live}) == 1
    wrong = [line for member in cluster.live for line in member.reports if "lost" in line or "damaged" in line]
    assert not wrong


def test_a_new_leader_that_has_compacted_less_or_more_agrees_with_the_others() -> None:
    cluster = ReplicaCluster(config=CONFIG)
    for number in range(40):
        send(cluster, (b"k%d" % (number % 3), b"%d" % number))
        cluster.run(1)
    cluster.run()
    wanted = last_values(cluster[1].log)
    compact(cluster, cluster[2])
    assert len(messages_of(cluster[2].log)) < 20
    cluster.kill(1)
    cluster.lead(2, isr=(2, 3))
    send(cluster, (b"later", b"y"))
    cluster.until(lambda: last_values(cluster[3].log) == {**wanted, b"later": b"y"})
    cluster.start(1)
    cluster.until(lambda: 1 in cluster.state.isr)
    for member in cluster.live:
        assert last_values(member.log) == {**wanted, b"later": b"y"}
        assert KEY in member.replicas.partitions
    assert len(messages_of(cluster[1].log)) == 41
