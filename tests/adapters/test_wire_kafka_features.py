"""The features of a cluster in ApiVersions: field by field against kio, and between our client and our server."""

from typing import Any

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader
from kio.static.constants import EntityType
from support.kafka_frames import ServerEnd
from support.kafka_pair import ScriptedBroker, linked

from barnabas.adapters.wire_kafka import KafkaServer, versions
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.features import (
    DescribeFeatures,
    DescribeFeaturesResult,
    FeatureMetadata,
    FinalizedVersionRange,
    SupportedVersionRange,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

FEATURES = FeatureMetadata(
    supported={"share.version": SupportedVersionRange(0, 2), "fruit.version": SupportedVersionRange(1, 4)},
    finalized={"share.version": FinalizedVersionRange(1, 1), "fruit.version": FinalizedVersionRange(3, 3)},
    finalized_epoch=17,
)
NAMES = ["fruit.version", "share.version"]


def answer(version: int, features: FeatureMetadata = FEATURES) -> bytes:
    end = ServerEnd(features=lambda: features)
    introduction = bytes.fromhex("00 02 6b 02 31") + (bytes.fromhex("00 ffffffff") if version >= 5 else b"") + b"\x00"
    flexible = introduction if version >= 3 else b""
    end.send(bytes.fromhex(f"0012 000{version} 00000007 ffff") + flexible)
    (found,) = end.answers
    return found[4:]


def decoded(version: int, body: bytes) -> Any:
    kind = load_payload_module(18, version, EntityType.response).ApiVersionsResponse
    entity, size = entity_reader(kind)(body, 0)
    assert size == len(body)
    return entity


@pytest.mark.parametrize("version", [3, 4])
def test_another_implementation_reads_the_features(version: int) -> None:
    found = decoded(version, answer(version))
    supported = {each.name: (each.min_version, each.max_version) for each in found.supported_features}
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in found.finalized_features}
    # Clients of version 3 refuse a lowest level of 0.
    assert supported == {"fruit.version": (1, 4), **({"share.version": (0, 2)} if version >= 4 else {})}
    assert finalized == {"fruit.version": (3, 3), "share.version": (1, 1)}
    assert found.finalized_features_epoch == 17


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_before_3_have_no_features(version: int) -> None:
    assert answer(version) == answer(version, versions.NO_FEATURES)


def test_the_answer_follows_the_features() -> None:
    known = [FEATURES]
    end = ServerEnd(features=lambda: known[-1])
    asked = bytes.fromhex("0012 0004 00000007 ffff 00 02 6b 02 31 00")
    end.send(asked)
    known.append(FeatureMetadata(finalized={"fruit.version": FinalizedVersionRange(4, 4)}, finalized_epoch=18))
    end.send(asked)
    end.send(asked)
    first, second, third = (decoded(4, each[4:]) for each in end.answers)
    assert (first.finalized_features_epoch, second.finalized_features_epoch) == (17, 18)
    assert second == third


def test_our_client_asks_for_the_features_on_a_connection_in_use() -> None:
    broker = ScriptedBroker()
    server = KafkaServer(broker, listener="PAIR", report=pytest.fail, features=lambda: FEATURES)
    transport, link = linked(server)
    replies: list[Any] = []
    for _ in range(2):
        link.submit(DescribeFeatures(), Caller(), replies.append)
        transport.run()
    assert replies == [DescribeFeaturesResult(features=FEATURES)] * 2
    (connection,) = server.connections.values()
    assert connection.software[0] == "barnabas"
    assert not broker.requests


def test_a_broker_without_features_says_so() -> None:
    transport, link = linked(KafkaServer(ScriptedBroker(), listener="PAIR", report=pytest.fail))
    replies: list[Any] = []
    link.submit(DescribeFeatures(), Caller(), replies.append)
    transport.run()
    assert replies == [DescribeFeaturesResult(features=FeatureMetadata())]


def test_an_older_broker_cannot_be_asked() -> None:
    class OldServer(KafkaServer):
        def api_versions(self, version: int, *, to_own_client: bool = False) -> bytes:
            return versions.response_body(version, [(18, 0, 2)])

    transport, link = linked(OldServer(ScriptedBroker(), listener="PAIR", report=pytest.fail))
    replies: list[Any] = []
    link.submit(DescribeFeatures(), Caller(), replies.append)
    transport.run()
    (error,) = replies
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
