"""A batch that is not committed rots on a leader that has the only copy: the way out that the error names."""

from pathlib import Path

import pytest
from support.cluster_process import ClusterProcess, cluster_process
from support.etcd_server import EtcdServer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("etcd")]

TOPIC, COMMITTED, UNCOMMITTED = "rotten", 20, 200


def isr_of(admin: Admin) -> list[int]:
    (topic,) = admin.describe_topics([TOPIC])
    return sorted(topic.partitions[0].isr)


def leave_uncommitted_messages(cluster: ClusterProcess, admin: Admin) -> tuple[int, int]:
    """Stop the follower until it is out of the ISR; return the leader's id and the follower's."""
    admin.create_topic(TOPIC, partitions=1, replication_factor=2, configs={"min.insync.replicas": "2"})
    wait_for(lambda: TOPIC in admin.list_topics() and isr_of(admin) == [1, 2], pause_s=0.05)
    (topic,) = admin.describe_topics([TOPIC])
    leader = topic.partitions[0].leader
    follower = 3 - leader
    with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(COMMITTED):
            producer.send(TOPIC, b"committed %06d" % number).result(PATIENCE_S)
    process = cluster.broker(follower)
    process.suspend()
    with Producer(cluster.bootstrap, acks=1, enable_idempotence=False) as producer:
        for number in range(UNCOMMITTED):
            producer.send(TOPIC, b"uncommitted %06d " % number + bytes(60)).result(PATIENCE_S)
    wait_for(lambda: isr_of(admin) == [leader], pause_s=0.2)
    return leader, follower


def test_rot_in_an_uncommitted_batch_without_a_copy_ends_with_a_restart_of_the_leader(
    tmp_path: Path, etcd_server: EtcdServer
) -> None:
    data = tmp_path / "data"
    words = (
        *("--brokers", "2", "--coordination", f"etcd://127.0.0.1:{etcd_server.port}/rot-uncommitted"),
        *("--set", "log.segment.bytes=4096", "--set", "log.scrub.io.max.bytes.per.second=0"),
        *("--set", "replica.lag.time.max.ms=2000"),
    )
    with cluster_process(data, *words) as cluster, Admin(cluster.bootstrap, request_timeout_ms=5_000) as admin:
        leader, follower = leave_uncommitted_messages(cluster, admin)
        (folder,) = data.glob(f"*{leader}/**/{TOPIC}-0")
        path = sorted(folder.glob("*.log"))[2]
        content = path.read_bytes()
        at = content.index(b"uncommitted", len(content) // 3)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"X")
        cluster.broker(follower).resume()
        wait_for(lambda: "damaged above the high watermark" in cluster.log(), pause_s=0.2)
        assert isr_of(admin) == [leader]
        cluster.broker(leader).terminate()
        wait_for(lambda: isr_of(admin) == [1, 2], pause_s=0.2)
        with Producer(cluster.bootstrap, acks="all") as producer:
            producer.send(TOPIC, b"later").result(PATIENCE_S)
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, 0)])
            values: list[bytes | None] = []
            while not values or values[-1] != b"later":
                message = consumer.poll(60.0)
                assert message is not None
                values.append(message.value)
    assert values[:COMMITTED] == [b"committed %06d" % number for number in range(COMMITTED)]
