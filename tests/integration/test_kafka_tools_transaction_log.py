"""Apache Kafka's own tool reads what the transaction coordinator has written."""

import json
import subprocess
from pathlib import Path

import pytest
from support.compat.java_client import QUICK, java_classpath
from support.compat.model import Unavailable
from support.raw_transactions import RawTransactions
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker
from barnabas.ports.error_codes import ErrorCode as E

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOL = "org.apache.kafka.tools.DumpLogSegments"
STATUSES = {"Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5}


def test_the_log_of_transactions(tmp_path: Path) -> None:
    try:
        classpath = java_classpath(4)
    except Unavailable as error:
        pytest.skip(str(error))
    with Broker(data_dir=tmp_path, transaction_state_log_num_partitions=1) as broker, Admin(broker) as admin:
        admin.create_topic("t", partitions=2)
        sender = RawTransactions(broker.bootstrap, "orders")
        assert sender.init() is E.NONE
        for commit in (True, False):
            assert sender.add(("t", 1), ("t", 0)) == [E.NONE, E.NONE]
            assert sender.end(commit=commit) is E.NONE
        assert sender.init() is E.NONE
    files = str(next(tmp_path.rglob("__transaction_state-0/*.log")))
    command = ["java", *QUICK, "-cp", classpath, TOOL, "--transaction-log-decoder", "--files", files]
    observed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    records = [
        line.partition("key: ")[2].partition(" payload: ")[::2] for line in observed.splitlines() if "payload" in line
    ]
    assert {key for key, _ in records} == {'{"type":"0","data":{"transactionalId":"orders"}}'}
    values = [json.loads(value)["data"] for _, value in records]
    states = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
        "Empty",
    ]
    assert [value["transactionStatus"] for value in values] == [STATUSES[state] for state in states]
    assert [value["producerEpoch"] for value in values] == [0] * 7 + [1]
    assert values[1]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 1]}]
    assert values[0]["transactionTimeoutMs"] == 60_000
