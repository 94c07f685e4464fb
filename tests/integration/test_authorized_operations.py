"""Answers list the authorized operations if the request asks for them, in every version that can."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.kafka_frames import request_frame, result_of
from support.raw import RawConnection

from barnabas import Admin, Broker
from barnabas.ports.broker_api.cluster import DescribeCluster
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import DescribeGroups
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NO_AUTHORIZED_OPERATIONS,
    TOPIC_OPERATIONS,
)
from barnabas.ports.error_codes import ErrorCode

METADATA, DESCRIBE_GROUPS, DESCRIBE_CLUSTER = 3, 15, 60


@pytest.fixture(scope="module")
def connection() -> Iterator[RawConnection]:
    with Broker(storage="memory", auto_create_topics_enable=False) as broker, Admin(broker) as admin:
        admin.create_topic("t")
        admin.alter_group_offsets("g", {("t", 0): 0})
        with RawConnection(broker.bootstrap) as opened:
            yield opened


def ask(connection: RawConnection, key: int, version: int, request: Request[Any]) -> Any:
    frame = request_frame(key, version, 7, request)
    return result_of(key, version, connection.exchange(len(frame).to_bytes(4, "big") + frame))


@pytest.mark.parametrize("version", range(8, 13))
@pytest.mark.parametrize("asked", [True, False])
def test_metadata_returns_authorized_operations_on_request(
    connection: RawConnection, version: int, asked: bool
) -> None:
    request = Metadata(
        topics=["t", "nowhere"],
        include_topic_authorized_operations=asked,
        include_cluster_authorized_operations=asked,
    )
    observed = ask(connection, METADATA, version, request)
    for topic in observed.topics:
        wanted = asked and topic.name == "t"
        assert topic.authorized_operations == (TOPIC_OPERATIONS if wanted else NO_AUTHORIZED_OPERATIONS)
    assert [topic.error for topic in observed.topics] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    wanted = asked and version <= 10
    assert observed.authorized_operations == (CLUSTER_OPERATIONS if wanted else NO_AUTHORIZED_OPERATIONS)


@pytest.mark.parametrize("version", range(2))
def test_describe_cluster_returns_authorized_operations_on_request(connection: RawConnection, version: int) -> None:
    observed = ask(connection, DESCRIBE_CLUSTER, version, DescribeCluster(include_authorized_operations=True))
    assert observed.authorized_operations == CLUSTER_OPERATIONS
    unasked = ask(connection, DESCRIBE_CLUSTER, version, DescribeCluster())
    assert unasked.authorized_operations == NO_AUTHORIZED_OPERATIONS


@pytest.mark.parametrize("version", range(3, 6))
def test_describe_groups_returns_authorized_operations_on_request(connection: RawConnection, version: int) -> None:
    for asked, observed in ((True, GROUP_OPERATIONS), (False, NO_AUTHORIZED_OPERATIONS)):
        request = DescribeGroups(group_ids=["g"], include_authorized_operations=asked)
        (group,) = ask(connection, DESCRIBE_GROUPS, version, request).groups
        assert (group.error, group.state, group.authorized_operations) == (ErrorCode.NONE, "Empty", observed)


def test_the_bits_are_kafkas() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (0b110111111000, 0b110101001000, 0b1111110100000)
