"""Apache Kafka's own tool reads what the share coordinator has written."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.compat.java_client import QUICK, java_classpath
from support.compat.model import Unavailable
from support.raw_shares import RawShareMember
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Producer
from barnabas.ports.error_codes import ErrorCode as E

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOL = "org.apache.kafka.tools.DumpLogSegments"
ACCEPT, RELEASE, REJECT = b"\x01", b"\x02", b"\x03"


def dumped(classpath: str, file: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    command = ["java", *QUICK, "-cp", classpath, TOOL, "--share-group-state-decoder", "--files", str(file)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    lines = [line for line in shown.splitlines() if " payload: " in line]
    pairs = (line.partition("key: ")[2].partition(" payload: ")[::2] for line in lines)
    return [(json.loads(key), json.loads(value)) for key, value in pairs]


def test_the_log_of_share_group_states(tmp_path: Path) -> None:
    try:
        classpath = java_classpath(4)
    except Unavailable as error:
        pytest.skip(str(error))
    with (
        Broker(
            data_dir=tmp_path,
            share_coordinator_state_topic_num_partitions=1,
            share_coordinator_snapshot_update_records_per_snapshot=3,
        ) as broker,
        Admin(broker) as admin,
        Producer(broker) as producer,
    ):
        admin.create_topic("t", partitions=1)
        producer.send_many("t", [b"x"] * 10)
        producer.flush()
        member = RawShareMember(broker.bootstrap, "t")
        member.initialize()
        assert member.fetch() == [(0, 9, 1)]
        assert member.acknowledge((0, 1, ACCEPT), (2, 2, RELEASE), (4, 5, REJECT)) is E.NONE
        for offset in (6, 7):
            assert member.acknowledge((offset, offset, ACCEPT)) is E.NONE
        member.leave()
    records = dumped(classpath, next(tmp_path.rglob("__share_group_state-0/*.log")))
    kinds = [key["type"] for key, _ in records]
    assert kinds[:3] == ["0", "1", "1"]
    assert "0" in kinds[1:], "a snapshot follows three updates"
    for key, _ in records:
        assert (key["data"]["groupId"], key["data"]["partition"]) == ("g", 0)
    first, (_, update), (_, acknowledged) = records[0], records[1], records[2]
    assert first[1]["data"] | {"createTimestamp": 0, "writeTimestamp": 0} == {
        "snapshotEpoch": 0,
        "stateEpoch": 1,
        "leaderEpoch": -1,
        "startOffset": 0,
        "createTimestamp": 0,
        "writeTimestamp": 0,
        "stateBatches": [],
    }
    assert update["data"]["stateBatches"] == []
    assert update["data"]["leaderEpoch"] >= 0
    assert acknowledged["data"]["startOffset"] == 2
    batches = [
        (each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"])
        for each in acknowledged["data"]["stateBatches"]
    ]
    assert batches == [(2, 2, 0, 1), (4, 5, 4, 1)]
