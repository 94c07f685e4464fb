"""kafka-reassign-partitions of Apache Kafka, with a throttle."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.model import Unavailable
from support.waiting import wait_for

from barnabas.testing import TestCluster

pytestmark = pytest.mark.slow

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
COUNT, SIZE, RATE = 100, 1000, 50_000


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


@pytest.fixture
def tools(cluster: TestCluster) -> Iterator[ConsoleTools]:
    try:
        opened = ConsoleTools(cluster.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(opened):
        yield opened


def test_a_partition_moves_no_quicker_than_it_may(cluster: TestCluster, tools: ConsoleTools, tmp_path: Path) -> None:
    with cluster.admin() as admin:
        admin.create_topic("moved", replication_factor=1)
        cluster.produce("moved", [f"{number:{SIZE}}" for number in range(COUNT)], partition=0)
        (home,) = cluster.replicas("moved")
        target = [broker for broker in cluster.broker_ids if broker != home]
        plan = tmp_path / "plan.json"
        moves = [{"topic": "moved", "partition": 0, "replicas": target}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))

        began = time.monotonic()
        observed = tools.run(TOOL, "--reassignment-json-file", str(plan), "--execute", "--throttle", str(RATE))
        assert "Successfully started partition reassignment for moved-0" in observed
        names = admin.topic_overrides("moved")
        assert names["leader.replication.throttled.replicas"] == f"0:{home}"
        assert names["follower.replication.throttled.replicas"] == ",".join(f"0:{broker}" for broker in target)
        wait_for(lambda: cluster.replicas("moved") == target and cluster.in_sync("moved") == target)
        burst = RATE  # a second's worth
        assert time.monotonic() - began > (COUNT * SIZE - burst) / RATE
        observed = tools.run(TOOL, "--reassignment-json-file", str(plan), "--verify")
        assert "Reassignment of partition moved-0 is completed" in observed
        assert admin.topic_overrides("moved") == {}
    assert len(cluster.produced("moved")) == COUNT
