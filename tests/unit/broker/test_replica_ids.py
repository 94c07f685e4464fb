"""A replica id in a request counts on the listener of brokers only."""

from typing import Any

import pytest

from barnabas.ports.broker_api.envelope import Caller, Origin, Request
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

LISTENERS = "INTERNAL://broker:9092,EXTERNAL://broker:9093"
INSIDE = Caller(listener="kafka://broker:9092", connection=1)
OUTSIDE = Caller(listener="kafka://broker:9093", connection=1)
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _asking(replica_id: int) -> list[Request[Any]]:
    return [
        Fetch(partitions=[FetchPartition("t", 0, 0, 1000)], max_wait_ms=0, replica_id=replica_id),
        ListOffsets(partitions=[ListOffsetsPartition(topic="t", partition=0, timestamp=LATEST)], replica_id=replica_id),
        OffsetForLeaderEpoch(
            partitions=[OffsetForLeaderPartition(topic="t", partition=0, leader_epoch=0)], replica_id=replica_id
        ),
    ]


@pytest.fixture(params=["INTERNAL", "EXTERNAL"])
def broker(request: pytest.FixtureRequest) -> ManualBroker:
    broker = ManualBroker(
        **{
            "listeners": LISTENERS,
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": request.param,
        }
    )
    broker.create("t")
    return broker


def _errors(broker: ManualBroker, replica_id: int, caller: Caller) -> list[ErrorCode]:
    errors = []
    for request in _asking(replica_id):
        result: Any = broker.ask(request, caller)
        errors += [part.error for part in result.partitions]
    return errors


def test_only_on_the_listener_for_brokers(broker: ManualBroker) -> None:
    inside, outside = INSIDE, OUTSIDE
    if broker.node.state.settings.static.inter_broker_listener_name == "EXTERNAL":
        inside, outside = outside, inside
    for stranger in (outside, Caller(connection=1), Caller(listener="kafka://elsewhere:9092")):
        assert _errors(broker, 2, stranger) == [REFUSED] * 3
        assert _errors(broker, 0, stranger) == [REFUSED] * 3
        for consumer in (-1, -2, -7):
            assert _errors(broker, consumer, stranger) == [ErrorCode.NONE] * 3
    for known in (inside, Caller(origin=Origin.BROKER)):
        assert REFUSED not in _errors(broker, 2, known)
