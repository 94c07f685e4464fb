"""`make bench`: every benchmark, one after the other, as ratios of one run.

`ARGS="produce fetch"` chooses some. Exits with 0 whatever the figures are, because a machine with other work on it
measures low: the goals stand next to the figures.
"""

import json
import platform
import sys
from importlib import import_module
from pathlib import Path

from harness import Result

BENCHMARKS = (
    "start",
    "test_broker_start",
    "produce",
    "fetch",
    "fetch_committed",
    "growth",
    "many_partitions",
    "small_requests",
    "workers",
    "capacity",
    "create_topics",
    "replicate",
    "transactions",
    "acls",
    "audit",
    "group_commits",
    "group_idle",
    "group_settle",
    "group_modern",
    "group_consume",
    "clients",
    "where_time_goes",
    "share_fetch",
    "java_clients",
    "message_codec",
    "arrow",
    "classic_codec",
    "classic_publish",
    "classic_consume",
    "transport_echo",
    "tls",
    "security",
    "attacks",
    "spark_read",
    "load",
    "table_delay",
    "spark_streams",
    "spark_write",
    "avro_decode",
    "compaction",
    "cluster_produce",
    "cluster_latency",
    "cluster_transactions",
    "cluster_replication",
    "cluster_failover",
    "cluster_idle",
)


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(BENCHMARKS)}")
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", flush=True)
    results: list[Result] = []
    for name in chosen or BENCHMARKS:
        for result in import_module(name).measure():
            print(result.line(), flush=True)
            results.append(result)
    out = Path(__file__).resolve().parents[1] / ".build" / "bench.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(
        json.dumps([{"name": r.name, "ratio": r.ratio, "unit": r.unit, **r.details} for r in results], indent=1)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
