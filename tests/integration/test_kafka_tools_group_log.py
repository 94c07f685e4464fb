"""Apache Kafka's own tool reads what the coordinator has written of a group by KIP-848."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.compat.java_client import QUICK, java_classpath
from support.compat.model import Unavailable
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOL = "org.apache.kafka.tools.DumpLogSegments"
GROUP, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT = ("3", "5", "6", "7", "8")


def test_the_log_of_a_consumer_group(tmp_path: Path) -> None:
    try:
        classpath = java_classpath(4)
    except Unavailable as error:
        pytest.skip(str(error))
    with Broker(data_dir=tmp_path, offsets_topic_num_partitions=1) as broker, Admin(broker) as admin:
        admin.create_topic("t", partitions=2)
        with Consumer(broker, group_id="g", group_protocol="consumer", client_id="app") as consumer:
            consumer.subscribe("t")

            def is_assigned() -> bool:
                consumer.poll_many(1, 0.1)
                return len(consumer.assignment) == 2

            wait_for(is_assigned)
            consumer.commit()
            member_id = consumer.group_metadata.member_id
    files = str(next(tmp_path.rglob("__consumer_offsets-0/*.log")))
    command = ["java", *QUICK, "-cp", classpath, TOOL, "--offsets-decoder", "--files", files]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    records = [
        (json.loads(key), {} if value == "<DELETE>" else json.loads(value))
        for line in dumped.splitlines()
        if "payload" in line
        for key, value in [line.partition("key: ")[2].partition(" payload: ")[::2]]
    ]
    assert {key["type"] for key, _ in records} >= {GROUP, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT}
    assert all(key["data"].get("groupId", key["data"].get("group")) == "g" for key, _ in records)

    def first(kind: str) -> Any:
        return next(value["data"] for key, value in records if key["type"] == kind)

    assert first(GROUP)["epoch"] == 2
    assert first(TARGET)["assignmentEpoch"] == 2
    assert first(TARGET)["assignmentTimestamp"] > 0
    member = first(MEMBER)
    assert (member["clientId"], member["subscribedTopicNames"]) == ("app", ["t"])
    current = first(CURRENT)
    assert (current["memberEpoch"], current["previousMemberEpoch"], current["state"]) == (2, 0, 0)
    (assigned,) = current["assignedPartitions"]
    assert sorted(assigned["partitions"]) == [0, 1]
    assert assigned["assignmentEpochs"] == [2, 2]
    ends = [key["type"] for key, value in records if not value and key["data"].get("memberId") == member_id]
    assert ends == [CURRENT, TARGET_OF_MEMBER, MEMBER]
