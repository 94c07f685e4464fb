"""Every API asked wrongly over a socket, in every version: the right code, and the connection continues."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.api_connection import ApiConnection
from support.error_paths import GOOD, OFFSETS, WRONG, Wrong, produce, records
from support.raw import frame
from support.raw_groups import RawMember, wait_for_groups

from barnabas import Admin, Broker
from barnabas.adapters.wire_kafka.table import BY_KEY, BY_REQUEST
from barnabas.ports.broker_api.cluster import DescribeConnections, DescribeLogDirs
from barnabas.ports.broker_api.groups import ListGroups, OffsetFetch
from barnabas.ports.broker_api.replicas import ListPartitionReassignments
from barnabas.ports.broker_api.share_partitions import DescribeSharePartitions
from barnabas.ports.broker_api.telemetry import GetTelemetrySubscriptions
from barnabas.ports.broker_api.transactions import ListTransactions
from barnabas.ports.error_codes import ErrorCode

WITHOUT_ERRORS = {
    DescribeConnections,
    DescribeLogDirs,
    DescribeSharePartitions,
    GetTelemetrySubscriptions,
    ListGroups,
    ListPartitionReassignments,
    ListTransactions,
    OffsetFetch,
}
"""APIs that nothing can be asked wrongly of."""
SETTINGS = {
    "t": {},
    "classic": {"message.format": "classic"},
    "small": {"max.message.bytes": "200"},
    "short": {"segment.bytes": "1000"},
    "recent": {"message.timestamp.before.max.ms": "3600000"},
    "checked": {"record.validation": "true"},
    "packed": {},
    "numbered": {},
    "mirror": {"mirror.source": "another cluster"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory",
        coordination="memory",
        auto_create_topics_enable=False,
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        transaction_partition_verification_enable=False,  # what is wrong here is said by others than coordinators
    ) as running:
        with Admin(running) as admin:
            for name, configs in SETTINGS.items():
                admin.create_topic(name, partitions=2, configs=configs)
        wait_for_groups(running.bootstrap)
        yield running


@pytest.fixture(scope="module")
def taken(broker: Broker) -> Iterator[RawMember]:
    """The one member of its group, which has its service whatever the others ask."""
    first = [
        produce("t", GOOD),
        produce("packed", records(b"a", codec="zstd")),
        produce("numbered", records(b"a", producer_id=7, producer_epoch=3, base_sequence=0)),
    ]
    with ApiConnection(broker.bootstrap) as connection:
        for each in first:
            (part,) = connection.ask(each("")).partitions
            assert part.error is ErrorCode.NONE
    member = RawMember(broker.bootstrap, "taken", "t")
    yield member
    member.leave()


@pytest.fixture
def connection(broker: Broker) -> Iterator[ApiConnection]:
    """One for all versions: none of the errors may close it."""
    with ApiConnection(broker.bootstrap) as opened:
        yield opened


def errors_in(result: Any) -> list[ErrorCode]:
    """Return every error code anywhere in a result, in its order."""
    if isinstance(result, ErrorCode):
        return [result] if result is not ErrorCode.NONE else []
    if isinstance(result, list | tuple):
        return [code for item in result for code in errors_in(item)]
    names = [attribute.name for attribute in getattr(type(result), "__attrs_attrs__", ())]
    return [code for name in names for code in errors_in(getattr(result, name))]


@pytest.mark.parametrize("wrong", [pytest.param(wrong, id=wrong.name) for wrong in WRONG])
def test_wrong_usage_is_refused_with_the_reason(taken: RawMember, connection: ApiConnection, wrong: Wrong) -> None:
    request = wrong.ask(taken.joined.member_id)
    api = BY_REQUEST[type(request)]
    low, high = api.versions
    least = max(low, wrong.since, 0 if api.least_version is None else api.least_version(request))
    most = min(high, wrong.until, high if api.most_version is None else api.most_version(request))
    asked = range(least, most + 1)
    found = {version: errors_in(connection.ask(wrong.ask(taken.joined.member_id), version)) for version in asked}
    assert found == {version: list(wrong.errors) for version in asked}
    assert found, "no version can say it"
    assert connection.exchange(frame(18, 0, b"")), "the connection stays open"
    taken.check()


def test_every_api_is_asked_wrongly() -> None:
    asked = {type(wrong.ask("")) for wrong in WRONG}
    offered = {api.request_type for api in BY_KEY.values()}
    assert offered - asked - WITHOUT_ERRORS == set()


def test_nothing_was_made_meanwhile(broker: Broker, taken: RawMember) -> None:
    with Admin(broker) as admin:
        assert set(admin.list_topics()) - {OFFSETS} == set(SETTINGS)
