"""Differences between the versions of the coordinator's APIs."""

import pytest

from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.producers import InitProducerIdResult
from barnabas.ports.broker_api.topics import CreatedTopic, CreateTopicsResult
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxnResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import Malformed
from barnabas.ports.types import TopicPartition

FENCED, OLD = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("key", "since", "result"),
    [
        (22, 4, InitProducerIdResult(error=FENCED)),
        (24, 2, AddPartitionsToTxnResult(partitions=[PartitionOutcome("t", 0, FENCED)])),
        (25, 2, AddOffsetsToTxnResult(error=FENCED)),
        (26, 2, EndTxnResult(error=FENCED)),
    ],
)
def test_fenced_producer_error_code_depends_on_request_version(key: int, since: int, result: object) -> None:
    api = BY_KEY[key]
    observed = {}
    for version in range(api.versions[0], api.versions[1] + 1):
        writer = api.writer(version)
        api.result.write(writer, version, result)
        frame = b"".join(bytes(piece) for piece in writer.pieces())  # type: ignore[arg-type]
        read = api.result.read(api.reader(version, memoryview(frame), 0, 100), version)
        observed[version] = read.partitions[0].error if key == 24 else read.error
    assert observed == {version: FENCED if version >= since else OLD for version in observed}


def test_brokers_ask_about_one_transaction_at_a_time() -> None:
    api = BY_KEY[24]
    asked = AddPartitionsToTxn(
        transactional_id="x", producer_id=1, producer_epoch=0, partitions=[TopicPartition("t", 0)], verify_only=True
    )
    writer = api.writer(4)
    api.request.write(writer, 4, asked)
    frame = bytearray(b"".join(bytes(piece) for piece in writer.pieces()))  # type: ignore[arg-type]
    assert frame[0] == 2  # a compact array of one
    frame[0] = 3
    with pytest.raises(Malformed, match="2 transactions"):
        api.request.read(api.reader(4, memoryview(frame), 0, 100), 4)


def test_refused_verification_has_one_error_and_no_transactions() -> None:
    api = BY_KEY[24]
    refused = AddPartitionsToTxnResult(partitions=(), error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    writer = api.writer(4)
    api.result.write(writer, 4, refused)
    frame = b"".join(bytes(piece) for piece in writer.pieces())  # type: ignore[arg-type]
    assert frame == b"\x00\x00\x00\x00" + b"\x00\x1f" + b"\x01" + b"\x00"
    assert api.result.read(api.reader(4, memoryview(frame), 0, 100), 4) == refused


@pytest.mark.parametrize("version", range(2, 8))
def test_error_of_hidden_configs_is_sent_where_the_version_has_it(version: int) -> None:
    api = BY_KEY[19]
    hidden = CreatedTopic(name="made", configs=(), configs_error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    writer = api.writer(version)
    api.result.write(writer, version, CreateTopicsResult(topics=[hidden]))
    frame = b"".join(bytes(piece) for piece in writer.pieces())  # type: ignore[arg-type]
    (read,) = api.result.read(api.reader(version, memoryview(frame), 0, 100), version).topics
    assert read.configs_error is (hidden.configs_error if version >= 5 else ErrorCode.NONE)
