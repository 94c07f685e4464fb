"""The administrator's calls where brokers come and go, against a scripted cluster."""

from typing import Any

import pytest
from support.plain_cluster import PlainCluster, PlainConnector

from barnabas import Admin
from barnabas.ports.broker_api.groups import ListedGroup, ListGroups, ListGroupsResult
from barnabas.ports.broker_api.topics import CreatedTopic, CreateTopics, CreateTopicsResult, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.transport import TransportError

QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1}


@pytest.fixture
def cluster() -> PlainCluster:
    return PlainCluster(brokers=3, t=1)


def test_groups_of_a_broker_that_leaves_meanwhile_are_found_where_they_are_now(cluster: PlainCluster) -> None:
    """Also at brokers that were asked before it left."""
    groups = {1: ["a"], 2: ["b"], 3: ["c"]}

    def answer(node: int, request: Any) -> Any:
        if not isinstance(request, ListGroups):
            return None
        if node == 2:
            cluster.only = {1, 3}
            groups[1] = ["a", "b"]
            return TransportError("lost")
        listed = [ListedGroup(group_id=name, protocol_type="", state="Empty", group_type="") for name in groups[node]]
        return ListGroupsResult(groups=listed)

    cluster.script(answer)
    with Admin(PlainConnector(cluster), **QUICK) as admin:
        assert [group.group_id for group in admin.list_groups()] == ["a", "b", "c"]


def test_another_broker_serves_while_the_controller_is_unreachable(cluster: PlainCluster) -> None:
    def answer(node: int, request: Any) -> Any:
        if not isinstance(request, CreateTopics):
            return None
        if node == 1:
            return TransportError("lost")
        return CreateTopicsResult(topics=[CreatedTopic(name=new.name) for new in request.topics])

    cluster.script(answer)
    connector = PlainConnector(cluster)
    with Admin(connector, **QUICK) as admin:
        admin.describe_topics(["t"])
        connector.refused.add("broker-1")
        assert admin.create_topic("new").name == "new"
    assert [node for node, request in cluster.requests if isinstance(request, CreateTopics)][-1] == 2


def test_not_controller_response_makes_admin_retry_at_current_controller(cluster: PlainCluster) -> None:
    refused = [CreatedTopic(name="new", error=ErrorCode.NOT_CONTROLLER)]
    cluster.once(CreateTopics, CreateTopicsResult(topics=refused))
    cluster.script(
        lambda _, request: (
            CreateTopicsResult(topics=[CreatedTopic(name="new")])
            if isinstance(request, CreateTopics) and len(cluster.of(CreateTopics)) > 1
            else None
        )
    )
    with Admin(PlainConnector(cluster), **QUICK) as admin:
        assert admin.create_topics([NewTopic(name="new")])[0].error is ErrorCode.NONE
    assert len(cluster.of(CreateTopics)) == 2
