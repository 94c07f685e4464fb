"""The subscribed topics of a member, and the reaction of its group to changes."""

import pytest
from support.group_world import HEARTBEAT_MS, World

from barnabas.core.client.group.events import Assigned, Revoke
from barnabas.ports.broker_api.groups import JoinGroup
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, TopicMetadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

METADATA_MS = 2_000


def test_added_partitions_of_topic_trigger_rebalance() -> None:
    world = World(t=2, u=1)
    a, b = world.join("a", "t"), world.join("b", "t", "u")
    world.run_until_idle()
    joins = len(world.of(JoinGroup))
    world.topic("t", 4)
    world.pass_time(METADATA_MS + 3 * HEARTBEAT_MS)
    world.run_until_idle()
    assert len(world.of(JoinGroup)) == joins + 2
    assert len(a.reads) + len(b.reads) == 5


def test_a_topic_that_comes_later_is_read_then() -> None:
    world = World(t=1)
    a = world.join("a", "t", "later")
    world.run_until_idle()
    assert len(a.reads) == 1
    world.topic("later", 2)
    world.until(lambda: len(a.reads) == 3, 10_000)


def test_the_leader_watches_topics_of_others_too() -> None:
    world = World(t=1, u=1)
    a = world.join("a", "t")
    world.run_until_idle()
    b = world.join("b", "u")
    world.run_until_idle()
    world.topic("u", 3)
    world.pass_time(METADATA_MS + 3 * HEARTBEAT_MS)
    world.run_until_idle()
    assert (len(a.reads), len(b.reads)) == (1, 3)
    b.leave()
    world.pass_time(3 * HEARTBEAT_MS)
    world.run_until_idle()
    world.requests.clear()
    world.pass_time(2 * METADATA_MS)
    assert {topic for request in world.of(Metadata, "a") for topic in request.topics} == {"t"}


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"])
def test_a_pattern_takes_in_what_matches_now_and_later(kind: str) -> None:
    world = World(**{"logs": 1, "log-a": 2, "other": 1})
    a, b = (world.join(name, assignors=[kind]) for name in "ab")
    a.subscribe_matching("log-.*")
    b.subscribe_matching("log-.*")
    world.run_until_idle()
    assert a.membership.topics == {"log-a"}
    world.topic("log-b", 2)
    world.pass_time(METADATA_MS + 3 * HEARTBEAT_MS)
    world.run_until_idle()
    assert len(a.reads) == len(b.reads) == 2
    assert a.membership.topics == b.membership.topics == {"log-a", "log-b"}
    del world.cluster.topics["log-a"]
    world.pass_time(METADATA_MS + 3 * HEARTBEAT_MS)
    world.run_until_idle()
    assert {tp.topic for each in (a, b) for tp in each.reads} == {"log-b"}
    assert not a.errors


def test_a_pattern_may_match_nothing() -> None:
    world = World()
    a = world.join("a")
    a.subscribe_matching("x.*")
    world.run_until_idle()
    assert (a.reads, a.of(Revoke), len(a.of(Assigned))) == ({}, [], 1)
    assert all(request.topics is None for request in world.of(Metadata))
    a.subscribe("x")
    world.topic("x", 1)
    world.until(lambda: list(a.reads) == [TopicPartition("x", 0)], 10_000)
    assert world.of(Metadata)[-1].topics == ["x"]


@pytest.mark.parametrize("excluded", [True, False])
def test_internal_topics_match_only_if_wanted(excluded: bool) -> None:
    world = World(t=1)
    plain = world.cluster._metadata(Metadata(topics=None))
    internal = TopicMetadata(name="__t", internal=True, partitions=plain.topics[0].partitions)
    result = MetadataResult(
        brokers=plain.brokers, cluster_id="plain", controller_id=1, topics=[*plain.topics, internal]
    )
    world.scripts.append(lambda _, request: result if isinstance(request, Metadata) else None)
    a = world.join("a", exclude_internal_topics=excluded)
    a.subscribe_matching(".*")
    world.until(lambda: a.membership.settled)
    assert a.membership.topics == ({"t"} if excluded else {"t", "__t"})


def test_unauthorized_topic_is_reported_once() -> None:
    world = World(t=1)
    refused = TopicMetadata(name="secret", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def with_secret(_: object, request: object) -> object:
        if not isinstance(request, Metadata):
            return None
        plain = world.cluster._metadata(Metadata(topics=["t"]))
        return MetadataResult(
            brokers=plain.brokers, cluster_id="plain", controller_id=1, topics=[*plain.topics, refused]
        )

    world.scripts.append(with_secret)
    a = world.join("a", "t", "secret")
    world.pass_time(3 * METADATA_MS)
    (error,) = a.errors
    assert "TOPIC_AUTHORIZATION_FAILED: topic secret" in str(error)
    assert list(a.reads) == [TopicPartition("t", 0)]
