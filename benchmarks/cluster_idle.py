"""Cost of three idle brokers: 1,000 partitions with three replicas each, and no requests of clients."""

import time

from cluster import all_in_sync, cluster, cpu_seconds, wait_until
from harness import Result

from barnabas import Admin

TOPIC = "bench"
PARTITIONS = 1000
WARM_UP_S, SECONDS = 5.0, 20.0


def measure() -> list[Result]:
    with cluster() as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            wait_until(lambda: all_in_sync(admin, TOPIC), 120, "replicas in sync")
        time.sleep(WARM_UP_S)
        brokers, etcd = list(running.brokers().values()), running.etcd()
        before, before_etcd = cpu_seconds(brokers), cpu_seconds(etcd)
        time.sleep(SECONDS)
        cores = (cpu_seconds(brokers) - before) / SECONDS
        details = {"etcd's cores": (cpu_seconds(etcd) - before_etcd) / SECONDS}
        memory = [process.memory_full_info() for process in brokers]
        resident = max(each.rss for each in memory) / 1e6
        # What libraries map (gRPC alone 11 MB) is there once for all three.
        shared_out = {"its share of what is in memory": max(each.pss for each in memory) / 1e6}
    name = f"3 idle brokers with {PARTITIONS} partitions"
    return [
        Result(name, cores, "cores", 0.10, at_least=False, details=details),
        Result(f"{name}: memory of one", resident, "MB", 60, at_least=False, details=shared_out),
    ]
