"""Speed of a follower that copies the log of its leader, from page cache into page cache."""

import psutil
from cluster import RunningCluster, cluster, cpu_seconds, wait_until
from harness import Result

from barnabas import Admin, Producer

TOPIC = "bench"
MEGABYTES = 600
BATCH_BYTES = 1_000_000
MESSAGE = bytes(10_000)


def _fill(running: RunningCluster) -> None:
    with Producer(
        running.bootstrap, acks="1", batch_size=BATCH_BYTES, linger_ms=20, enable_idempotence=False
    ) as producer:
        for _ in range(MEGABYTES * 1_000_000 // len(MESSAGE)):
            producer.send(TOPIC, MESSAGE, partition=0)


def _held(admin: Admin, broker: int) -> int:
    folders = admin.describe_log_dirs([broker], {TOPIC: [0]})[broker]
    return sum(replica.size_bytes for folder in folders for replica in folder.replicas)


def measure() -> list[Result]:
    """Measure the copy of a full partition to a second replica."""
    with cluster("min.insync.replicas=1", brokers=2) as running, Admin(running.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, replication_factor=1)
        leader = admin.describe_topics([TOPIC])[0].partitions[0].leader
        follower = 3 - leader
        _fill(running)
        size = _held(admin, leader)
        processes: dict[int, psutil.Process] = running.brokers()
        before = {number: cpu_seconds([process]) for number, process in processes.items()}
        admin.reassign_partitions({(TOPIC, 0): [leader, follower]})

        def copied() -> bool:
            return set(admin.describe_topics([TOPIC])[0].partitions[0].isr) == {1, 2}

        seconds = wait_until(copied, 120, "the new replica in sync")
        spent = {number: cpu_seconds([process]) - before[number] for number, process in processes.items()}
    rate = size / 1e6 / seconds
    details = {"MB": size / 1e6, "s of CPU, leader": spent[leader], "s of CPU, follower": spent[follower]}
    return [Result("replication to one follower", rate, "MB/s", 150, details=details)]
