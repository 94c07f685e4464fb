"""Apache Kafka's own tools read what the coordinator has written of a share group, and administer it (KIP-932)."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.compat.java_client import QUICK, broker_classpath
from support.compat.model import Unavailable
from support.share_groups import read_from_the_beginning, start_offsets
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Producer, ShareConsumer

pytestmark = [pytest.mark.slow, pytest.mark.process]

COUNT = 50
MEMBER, GROUP, TARGET, TARGET_OF_MEMBER, CURRENT, STATE = ("10", "11", "12", "13", "14", "15")


def run_tool(tool: str, *options: str) -> str:
    try:
        classpath = broker_classpath()
    except Unavailable as error:
        pytest.skip(str(error))
    command = ["java", *QUICK, "-cp", classpath, f"org.apache.kafka.tools.{tool}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shares")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    with Broker(data_dir=data, offsets_topic_num_partitions=1) as broker:
        with Admin(broker) as admin:
            admin.create_topic("t", partitions=2)
        read_from_the_beginning(broker.bootstrap, "g")
        with Producer(broker) as producer:
            producer.send_many("t", [b"x"] * COUNT, partition=0)
        with ShareConsumer(broker, group_id="g", client_id="app") as consumer:
            consumer.subscribe("t")
            left = COUNT
            while left:
                left -= len(consumer.poll_many(left, timeout=PATIENCE_S))
        yield broker


def test_the_log_of_a_share_group(broker: Broker, data: Path) -> None:
    files = str(next(data.rglob("__consumer_offsets-0/*.log")))
    dumped = run_tool("DumpLogSegments", "--offsets-decoder", "--files", files)
    records = [
        (json.loads(key), {} if value == "<DELETE>" else json.loads(value))
        for line in dumped.splitlines()
        if "payload" in line
        for key, value in [line.partition("key: ")[2].partition(" payload: ")[::2]]
    ]
    assert {key["type"] for key, _ in records} == {MEMBER, GROUP, TARGET, TARGET_OF_MEMBER, CURRENT, STATE}
    assert all(key["data"]["groupId"] == "g" for key, _ in records)

    def values(kind: str) -> list[Any]:
        return [value["data"] for key, value in records if key["type"] == kind and value]

    assert [each["epoch"] for each in values(GROUP)] == [2, 3, 4]
    assert [each["assignmentEpoch"] for each in values(TARGET)] == [2, 3]
    (member,) = values(MEMBER)
    assert (member["clientId"], member["subscribedTopicNames"]) == ("app", ["t"])
    assert [each["memberEpoch"] for each in values(CURRENT)] == [2, 3]
    (assigned,) = values(CURRENT)[-1]["assignedPartitions"]
    assert sorted(assigned["partitions"]) == [0, 1]
    first, last = values(STATE)
    assert [each["topicName"] for each in first["initializingTopics"]] == ["t"]
    assert (first["initializedTopics"], last["initializingTopics"], last["deletingTopics"]) == ([], [], [])
    assert sorted(last["initializedTopics"][0]["partitions"]) == [0, 1]
    ends = [key["type"] for key, value in records if not value]
    assert ends == [CURRENT, TARGET_OF_MEMBER, MEMBER]


def share_groups(broker: Broker, *options: str) -> str:
    tool = "consumer.group.ShareGroupCommand"
    return run_tool(tool, "--bootstrap-server", broker.bootstrap, *options)


def test_kafka_share_groups_describes_resets_and_deletes(broker: Broker) -> None:
    assert "g" in share_groups(broker, "--list").split()
    described = share_groups(broker, "--describe", "--group", "g", "--offsets")
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    assert ["g", "t", "0", str(COUNT), "0"] in [row[:5] for row in rows], described
    state = share_groups(broker, "--describe", "--group", "g", "--state")
    assert "Empty" in state, state
    share_groups(broker, "--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")
    assert start_offsets(broker.bootstrap, "g") == {0: 0, 1: 0}
    share_groups(broker, "--delete-offsets", "--group", "g", "--topic", "t")
    assert start_offsets(broker.bootstrap, "g") == {}
    share_groups(broker, "--delete", "--group", "g")
    assert "g" not in share_groups(broker, "--list").split()
