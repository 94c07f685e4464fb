"""Every API in every version against kio, an independent implementation: field by field, both ways."""

import dataclasses
import datetime
import enum
import io
import uuid
from typing import Any

import pytest
from attrs import evolve
from kio.index import load_payload_module
from kio.schema.fetch.v16 import request as newest_request
from kio.schema.fetch.v16 import response as newest
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64
from support.kafka_pair import joined, normal
from support.kafka_samples import CLIENT_SAMPLES, SAMPLES

from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.schema import FieldCodec
from barnabas.adapters.wire_kafka.table import BY_KEY, BY_REQUEST
from barnabas.ports.broker_api.fetch import AbortedTransaction, CurrentLeader
from barnabas.ports.broker_api.groups import DeleteGroupsResult, DescribeGroupsResult, GroupDescription, GroupOutcome
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

KIO_LACKS = {(27, 0), (28, 6), (35, 0), (42, 3)}


SIDES: dict[Any, str] = {EntityType.request: "Request", EntityType.response: "Response"}


def _cases() -> list[Any]:
    return [
        pytest.param(
            api,
            version,
            side,
            id=f"{api.name}-{version}-{SIDES[side]}",
            marks=() if version in api.versions else pytest.mark.slow,  # the oldest and the newest one are quick
        )
        for api in BY_REQUEST.values()
        if not api.is_own
        for version in range(api.versions[0], api.versions[1] + 1)
        for side in SIDES
        if (api.key, version) not in KIO_LACKS
    ]


def _entity_type(api: Api, version: int, side: Any) -> Any:
    module = load_payload_module(api.key, version, side)
    return next(
        kind
        for name, kind in vars(module).items()
        if dataclasses.is_dataclass(kind) and getattr(kind, "__type__", None) is side and name.endswith(SIDES[side])
    )


def _plain(value: Any) -> Any:
    match value:
        case _ if dataclasses.is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case tuple() | list():
            return [_plain(item) for item in value]
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case enum.Enum():
            return value.value
        case uuid.UUID():
            return value.bytes
    return value


def _check(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(found, dict):
        for name, value in found.items():
            if name in expected:
                _check(value, expected[name], f"{path}.{name}")
            else:
                assert name == "snapshot_id", f"{path}.{name}"
    elif isinstance(found, list) and isinstance(expected, list):
        assert len(found) == len(expected), path
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            _check(one, other, f"{path}[{index}]")
    elif path.endswith("topic_id"):
        assert (found or bytes(16)) == expected, path
    else:
        assert found == expected, path


def _encoded(api: Api, version: int, codec: FieldCodec[Any], value: Any) -> bytes:
    writer = api.writer(version)
    codec.write(writer, version, value)
    return joined(writer.pieces())


@pytest.mark.parametrize(("api", "version", "side"), _cases())
def test_agrees_with_kio(api: Api, version: int, side: Any) -> None:
    sample = {**SAMPLES, **CLIENT_SAMPLES}[api.key].at(version)
    if side is EntityType.request:
        codec, value, tree = api.request, sample.request, sample.request_wire
    else:
        codec, value, tree = api.result, sample.result, sample.result_wire
    ours = _encoded(api, version, codec, value)
    kind = _entity_type(api, version, side)
    entity, size = entity_reader(kind)(ours, 0)
    assert size == len(ours)
    _check(_plain(entity), tree)
    theirs = io.BytesIO()
    entity_writer(kind)(theirs, entity)
    assert theirs.getvalue() == ours
    reader = api.reader(version, memoryview(theirs.getvalue()), 0, 1000)
    read = codec.read(reader, version)
    assert reader.position == reader.size
    assert _encoded(api, version, codec, read) == ours
    if version == api.versions[1]:
        assert normal(read) == normal(value)


def test_tagged_fields_that_we_do_not_know_are_passed_over() -> None:
    """The bytes are those of Kafka's own quorum in a fetch and in its answer."""
    api, sample = BY_KEY[1], SAMPLES[1]
    request, _ = entity_reader(newest_request.FetchRequest)(_encoded(api, 16, api.request, sample.request), 0)
    content = io.BytesIO()
    entity_writer(newest_request.FetchRequest)(content, dataclasses.replace(request, cluster_id="another"))
    read = api.request.read(api.reader(16, memoryview(content.getvalue()), 0, 1000), 16)
    assert normal(read) == normal(sample.request)
    plain, _ = entity_reader(newest.FetchResponse)(_encoded(api, 16, api.result, sample.result), 0)
    topic = plain.responses[0]
    rich_parts = [
        dataclasses.replace(part, snapshot_id=newest.SnapshotId(end_offset=i64(2), epoch=i32(1)))
        for part in topic.partitions
    ]
    rich = dataclasses.replace(
        plain, responses=(dataclasses.replace(topic, partitions=tuple(rich_parts)), *plain.responses[1:])
    )
    content = io.BytesIO()
    entity_writer(newest.FetchResponse)(content, rich)
    observed = api.result.read(api.reader(16, memoryview(content.getvalue()), 0, 1000), 16)
    assert normal(observed) == normal(sample.result)


def test_unknown_current_leader_decodes_as_none() -> None:
    """The protocol lets a broker say that it knows of none, instead of saying nothing."""
    for key, version in ((0, 11), (1, 16)):
        api = BY_KEY[key]
        sample = SAMPLES[key].result
        leaderless = [evolve(part, current_leader=CurrentLeader(-1, -1)) for part in sample.partitions]
        content = _encoded(api, version, api.result, evolve(sample, partitions=leaderless))
        read = api.result.read(api.reader(version, memoryview(content), 0, 1000), version)
        assert [part.current_leader for part in read.partitions] == [None] * 3


@pytest.mark.parametrize("version", [4, 5, 10, 11, 12, 16])
def test_aborted_transactions_are_written_and_read(version: int) -> None:
    api = BY_KEY[1]
    aborted = (AbortedTransaction(2**40, 7), AbortedTransaction(9, 2**33))
    sample = SAMPLES[1].at(version).result
    value = evolve(sample, partitions=[evolve(sample.partitions[0], aborted=aborted), *sample.partitions[1:]])
    ours = _encoded(api, version, api.result, value)
    entity, size = entity_reader(_entity_type(api, version, EntityType.response))(ours, 0)
    assert size == len(ours)
    listed = entity.responses[0].partitions[0].aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in listed] == [(2**40, 7), (9, 2**33)]
    read = api.result.read(api.reader(version, memoryview(ours), 0, 1000), version)
    assert [part.aborted for part in read.partitions] == [aborted, *[None] * (len(read.partitions) - 1)]


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_empty_aborted_transactions_differ_from_null_in_fetch_response(version: int) -> None:
    api = BY_KEY[1]
    sample = SAMPLES[1].at(version).result
    value = evolve(sample, partitions=[evolve(sample.partitions[0], aborted=())])
    ours = _encoded(api, version, api.result, value)
    entity, _ = entity_reader(_entity_type(api, version, EntityType.response))(ours, 0)
    assert entity.responses[0].partitions[0].aborted_transactions == ()
    read = api.result.read(api.reader(version, memoryview(ours), 0, 1000), version)
    assert [part.aborted for part in read.partitions] == [()]


def test_the_oldest_markers_of_transactions() -> None:
    """The form of Kafka 0.11 to 2.x, which kio does not know."""
    api = BY_KEY[27]
    marker = TxnMarker(
        producer_id=5, producer_epoch=3, committed=True, partitions=[TopicPartition("t", 7)], coordinator_epoch=9
    )
    request, result = WriteTxnMarkers(markers=[marker]), SAMPLES[27].result
    written = _encoded(api, 0, api.request, request)
    topic = "00000001" + "000174" + "00000001" + "00000007"
    assert written.hex() == "00000001" + f"{5:016x}" + "0003" + "01" + topic + "00000009"
    assert api.request.read(api.reader(0, memoryview(written), 0, 1000), 0) == request
    answer = _encoded(api, 0, api.result, result)
    assert api.result.read(api.reader(0, memoryview(answer), 0, 1000), 0) == result


def test_the_newest_answer_about_deleted_groups() -> None:
    """The form of Kafka 4.4, which kio does not know."""
    api = BY_KEY[42]
    observed = DeleteGroupsResult(
        groups=[GroupOutcome(group_id="a"), GroupOutcome(group_id="b", error=ErrorCode(68), error_message="no")],
        throttle_ms=16,
    )
    written = _encoded(api, 3, api.result, observed)
    assert written.hex(" ") == "00 00 00 10 03 02 61 00 00 00 00 02 62 00 44 03 6e 6f 00 00"
    assert api.result.read(api.reader(3, memoryview(written), 0, 1000), 3) == observed


@pytest.mark.parametrize(("version", "error", "text"), [(5, 0, None), (6, 69, "Group gone not found.")])
def test_describe_groups_encodes_missing_group_by_version(version: int, error: int, text: str | None) -> None:
    api = BY_KEY[15]
    gone = DescribeGroupsResult(groups=[GroupDescription(group_id="gone", state="Dead")])
    ours = _encoded(api, version, api.result, gone)
    entity, _ = entity_reader(_entity_type(api, version, EntityType.response))(ours, 0)
    (group,) = entity.groups
    assert (group.error_code.value, group.group_state) == (error, "Dead")
    assert getattr(group, "error_message", None) == text
    assert normal(api.result.read(api.reader(version, memoryview(ours), 0, 1000), version)) == normal(gone)


@pytest.mark.parametrize(("timestamp", "since"), [(-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_place_in_the_log_has_no_meaning_in_versions_before_it(timestamp: int, since: int) -> None:
    api = BY_KEY[2]
    request = ListOffsets(partitions=[ListOffsetsPartition(topic="t", partition=0, timestamp=timestamp)])
    assert api.least_version is not None and api.least_version(request) == since
    for version in range(api.versions[0], api.versions[1] + 1):
        ours = _encoded(api, version, api.request, request)
        read = api.request.read(api.reader(version, memoryview(ours), 0, 1000), version)
        assert read.partitions[0].timestamp == (timestamp if version >= since else -(2**63))


def test_replication_factors_may_change_in_versions_that_do_not_say() -> None:
    api = BY_KEY[45]
    request = evolve(SAMPLES[45].request, allow_replication_factor_change=False)
    assert api.least_version is not None and api.least_version(request) == 1
    for version, allowed in ((0, True), (1, False)):
        ours = _encoded(api, version, api.request, request)
        read = api.request.read(api.reader(version, memoryview(ours), 0, 1000), version)
        assert read.allow_replication_factor_change is allowed


def test_an_unknown_error_code_is_an_unknown_error() -> None:
    api = BY_KEY[2]
    content = bytearray(_encoded(api, 1, api.result, SAMPLES[2].result))
    at = content.index(b"clicks") + len("clicks") + 8
    assert content[at : at + 2] == b"\x00\x00"
    content[at : at + 2] = b"\x30\x39"
    result = api.result.read(api.reader(1, memoryview(content), 0, 1000), 1)
    assert result.partitions[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("version", "observed"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_list_offsets_encodes_unavailable_offset_error_by_version(version: int, observed: ErrorCode) -> None:
    api = BY_KEY[2]
    content = _encoded(api, version, api.result, SAMPLES[2].result)
    read = api.result.read(api.reader(version, memoryview(content), 0, 1000), version)
    assert read.partitions[1].error is observed
