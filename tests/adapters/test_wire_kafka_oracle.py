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
from kio.schema.fetch.v12 import response as v12
from kio.schema.types import BrokerId, ProducerId
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64
from support.kafka_pair import joined, normal
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.schema import FieldCodec
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.ports.broker_api import AbortedTransaction
from barnabas.ports.error_codes import ErrorCode

KIO_LACKS = {(35, 0)}


SIDES: dict[Any, str] = {EntityType.request: "Request", EntityType.response: "Response"}


def _cases() -> list[Any]:
    return [
        pytest.param(api, version, side, id=f"{api.name}-{version}-{SIDES[side]}")
        for api in BY_KEY.values()
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
                assert name in ("current_leader", "node_endpoints", "diverging_epoch", "snapshot_id"), f"{path}.{name}"
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
    sample = SAMPLES[api.key].at(version)
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


def test_tagged_fields_of_others_are_passed_over_and_aborted_transactions_read() -> None:
    """What newer brokers add: leader hints, diverging epochs."""
    api = BY_KEY[1]
    plain, _ = entity_reader(v12.FetchResponse)(_encoded(api, 12, api.result, SAMPLES[1].result), 0)
    topic = plain.responses[0]
    rich_part = dataclasses.replace(
        topic.partitions[0],
        diverging_epoch=v12.EpochEndOffset(epoch=i32(1), end_offset=i64(2)),
        current_leader=v12.LeaderIdAndEpoch(leader_id=BrokerId(3), leader_epoch=i32(4)),
        aborted_transactions=(v12.AbortedTransaction(producer_id=ProducerId(5), first_offset=i64(6)),),
        preferred_read_replica=BrokerId(7),
    )
    rich = dataclasses.replace(
        plain,
        responses=(dataclasses.replace(topic, partitions=(rich_part, topic.partitions[1])), *plain.responses[1:]),
    )
    content = io.BytesIO()
    entity_writer(v12.FetchResponse)(content, rich)
    read = api.result.read(api.reader(12, memoryview(content.getvalue()), 0, 1000), 12)
    assert read.partitions[0].aborted == (AbortedTransaction(5, 6),)
    plain_part = evolve(read.partitions[0], aborted=())
    assert normal(evolve(read, partitions=[plain_part, *read.partitions[1:]])) == normal(SAMPLES[1].result)


@pytest.mark.parametrize("version", [4, 5, 10, 11, 12])
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
    assert [part.aborted for part in read.partitions] == [aborted, *[()] * (len(read.partitions) - 1)]


def test_an_unknown_error_code_is_an_unknown_error() -> None:
    api = BY_KEY[2]
    content = bytearray(_encoded(api, 1, api.result, SAMPLES[2].result))
    at = content.index(b"clicks") + len("clicks") + 8
    assert content[at : at + 2] == b"\x00\x00"
    content[at : at + 2] = b"\x30\x39"
    result = api.result.read(api.reader(1, memoryview(content), 0, 1000), 1)
    assert result.partitions[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
