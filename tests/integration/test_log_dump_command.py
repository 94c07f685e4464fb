"""`barnabas log dump`: each kind of file as lines of JSON, and what the records of internal topics say."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import barnabas_here
from support.raw_shares import RawShareMember

from barnabas import Admin, Broker, Consumer, Producer


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("dump") / "data"
    with Broker(
        data,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        share_coordinator_state_topic_num_partitions=1,
    ) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs={"segment.bytes": "3000"})
        with Producer(broker.bootstrap, transactional_id="dumped") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"kept", key=b"k")
            with pytest.raises(RuntimeError), producer.transaction():
                producer.send("t", b"given up")
                producer.flush()
                raise RuntimeError
        with Producer(broker.bootstrap) as producer:
            producer.send_many("t", [b"%050d" % number for number in range(100)])
        member = RawShareMember(broker.bootstrap, "t")
        member.initialize()
        member.fetch()
        member.acknowledge((0, 0, b"\x01"))
        member.leave()
        with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert next(iter(consumer)).value == b"kept"
            consumer.commit()
    return data


def dumped(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in barnabas_here("log", "dump", "--json", *words).stdout.splitlines()]


def test_batches_markers_and_messages(data: Path) -> None:
    batches = dumped("--records", data / "t-0" / f"{0:020d}.log")
    assert {batch["type"] for batch in batches} == {"log"}
    assert [batch["marker"] for batch in batches if batch.get("control")] == ["COMMIT", "ABORT"]
    first = batches[0]
    assert (first["base_offset"], first["last_offset"], first["crc"], first["transactional"]) == (0, 0, "ok", True)
    assert [(record["key"], record["value"]) for record in first["records"]] == [("k", "kept")]


def test_every_kind_of_file(data: Path) -> None:
    found = dumped(data)
    kinds = {each["type"] for each in found}
    assert kinds >= {"log", "txnindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata"}
    assert kinds >= {"recovery-point-offset-checkpoint", "segment-checkpoint"}
    (aborted,) = [each for each in found if each["type"] == "txnindex"]
    assert aborted["first_offset"] < aborted["last_offset"]
    assert not [each for each in found if "problem" in each]
    text = barnabas_here("log", "dump", data).stdout.decode()
    assert "marker COMMIT" in text


def test_positions_of_groups_are_decoded(data: Path) -> None:
    batches = dumped("--offsets-decoder", data / "__consumer_offsets-0" / f"{0:020d}.log")
    records = [record for batch in batches for record in batch.get("records", ())]
    positions = [record["value"] for record in records if "topic" in record["key"]]
    assert positions[-1]["offset"] == 1
    assert {"group": "readers", "topic": "t", "partition": 0} in [record["key"] for record in records]
    members = [record for record in records if record["key"].get("type") == 5]
    assert members[0]["value"]["subscribed_topic_names"] == ["t"]
    assert members[-1]["value"] is None, "it has left"
    assert not [record for record in records if "undecoded" in record]


def test_transactional_ids_are_decoded(data: Path) -> None:
    folder = data / "__transaction_state-0"
    batches = dumped("--transaction-log-decoder", folder / f"{0:020d}.log")
    values = [record["value"] for batch in batches for record in batch.get("records", ())]
    assert {"ONGOING", "PREPARE_COMMIT", "COMPLETE_ABORT"} <= {value["state"] for value in values}
    both = ("--offsets-decoder", "--transaction-log-decoder")
    assert b"give one of them" in barnabas_here("log", "dump", *both, folder, expect=2).stderr


def test_states_of_share_partitions_are_decoded(data: Path) -> None:
    batches = dumped("--share-group-state-decoder", data / "__share_group_state-0" / f"{0:020d}.log")
    records = [record for batch in batches for record in batch.get("records", ())]
    assert [record["key"]["type"] for record in records][:2] == ["snapshot", "update"]
    assert {record["key"]["group"] for record in records} == {"g"}
    assert records[0]["value"]["state_epoch"] == 1
    assert records[-1]["value"]["start_offset"] == 2, "offset 1 is a marker"
