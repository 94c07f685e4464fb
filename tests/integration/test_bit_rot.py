"""A file of a leader rots on a real disk: a replica that copies it makes the leader look, and it is repaired."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster_process import ClusterProcess, cluster_process
from support.etcd_server import EtcdServer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("etcd")]

TOPIC, MESSAGES = "rotten", 300


@pytest.fixture
def cluster(tmp_path: Path, etcd_server: EtcdServer) -> Iterator[ClusterProcess]:
    words = (
        *("--brokers", "3", "--coordination", f"etcd://127.0.0.1:{etcd_server.port}/bit-rot"),
        *("--set", "log.segment.bytes=4096", "--set", "log.scrub.io.max.bytes.per.second=0"),
    )
    with cluster_process(tmp_path / "data", *words) as running:
        yield running


def segments(data: Path, broker: int) -> dict[str, bytes]:
    (folder,) = data.glob(f"*{broker}/**/{TOPIC}-0")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".log"}


def test_a_rotten_segment_of_a_leader_is_repaired_when_a_new_replica_copies_it(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Admin(cluster.bootstrap) as admin:
        ids = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
        admin.create_topic(TOPIC, partitions=1, replication_factor=2)
        wait_for(lambda: TOPIC in admin.list_topics(), pause_s=0.05)  # the broker that is asked follows the others
        (topic,) = admin.describe_topics([TOPIC])
        leader, follower = topic.partitions[0].replicas
        (late,) = set(ids) - {leader, follower}
        with Producer(cluster.bootstrap, acks="all") as producer:
            for number in range(MESSAGES):
                producer.send(TOPIC, b"message %06d " % number + bytes(60)).result(PATIENCE_S)
        wait_for(lambda: segments(data, leader) == segments(data, follower), pause_s=0.05)
        before = segments(data, leader)
        assert len(before) > 3
        rotten = sorted(before)[1]
        (path,) = data.glob(f"*{leader}/**/{TOPIC}-0/{rotten}")
        with path.open("r+b") as file:
            file.seek(1500)
            file.write(bytes([before[rotten][1500] ^ 0xFF]))
        admin.reassign_partitions({(TOPIC, 0): [leader, follower, late]})
        wait_for(lambda: segments(data, leader) == before, pause_s=0.05)
        wait_for(lambda: segments(data, late) == before, pause_s=0.05)
    assert "is repaired" in cluster.log()
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, 0)])
        read = [consumer.poll(60.0) for _ in range(MESSAGES)]
    assert [message and message.offset for message in read] == list(range(MESSAGES))
