"""Brokers with a listener of their own among themselves, and another for clients."""

from collections.abc import Iterator

import pytest
from attrs import evolve
from support.api_connection import ApiConnection
from support.waiting import wait_for

from barnabas import Admin, Producer
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing import TestCluster

LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=2, config=LISTENERS) as running:
        yield running


def _addresses(cluster: TestCluster, broker: int) -> list[str]:
    """For clients, and for brokers."""
    return [listener.removeprefix("kafka://") for listener in cluster.broker(broker).inner.listeners]


def test_inter_broker_listener_replicates_and_clients_see_their_own_addresses(cluster: TestCluster) -> None:
    clients, brokers = zip(*(_addresses(cluster, broker) for broker in (1, 2)), strict=True)
    with Admin(clients[0]) as admin, Producer(clients[0], acks="all") as producer:
        admin.create_topic("copied", replication_factor=2)
        producer.send("copied", b"x")
        producer.confirm(120)
    wait_for(lambda: cluster.in_sync("copied") == [1, 2])
    for observed in (clients, brokers):
        with ApiConnection(observed[0]) as connection:
            nodes = connection.ask(Metadata(topics=[])).brokers
        assert sorted(f"{node.host}:{node.port}" for node in nodes) == sorted(observed)


def test_replica_id_on_a_client_listener_is_refused(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.wait_for_leader(topic, 0)
    replica = next(broker for broker in cluster.broker_ids if broker != leader)
    here, there = _addresses(cluster, leader)
    image = cluster.broker(leader).image
    asked = FetchPartition(topic, 0, 0, 1000, topic_id=image.topic(topic).topic_id)
    epoch = image.brokers[replica].broker_epoch
    offset = ListOffsetsPartition(topic=topic, partition=0, timestamp=LATEST)
    question = OffsetForLeaderPartition(topic=topic, partition=0, leader_epoch=0)
    own_life = Fetch(partitions=[asked], replica_id=replica, replica_epoch=epoch, max_wait_ms=0)
    no_life = Fetch(partitions=[evolve(asked, topic=topic)], replica_id=replica, max_wait_ms=0)
    for request, version, allowed in (
        (own_life, 16, ErrorCode.NONE),
        (no_life, 4, ErrorCode.STALE_BROKER_EPOCH),
        (ListOffsets(partitions=[offset], replica_id=replica), 7, ErrorCode.NONE),
        (OffsetForLeaderEpoch(partitions=[question], replica_id=replica), 4, ErrorCode.NONE),
    ):
        found = []
        for address in (here, there):
            with ApiConnection(address) as connection:
                (part,) = connection.ask(request, version).partitions
            found.append(part.error)
        assert found == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, allowed], request
    assert cluster.in_sync(topic) == [1, 2]


def test_a_replica_that_is_none_and_a_life_that_is_not_registered(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.wait_for_leader(topic, 0)
    replica = next(broker for broker in cluster.broker_ids if broker != leader)
    image = cluster.broker(leader).image
    epoch, leaders = image.brokers[replica].broker_epoch, image.brokers[leader].broker_epoch
    end = 2**40
    ahead = FetchPartition(topic, 0, end, 1000, topic_id=image.topic(topic).topic_id)
    with ApiConnection(_addresses(cluster, leader)[1]) as connection:
        found = []
        for replica_id, replica_epoch in ((99, 1), (leader, leaders), (replica, epoch - 1), (replica, epoch + 1)):
            asked = Fetch(partitions=[ahead], replica_id=replica_id, replica_epoch=replica_epoch, max_wait_ms=0)
            (part,) = connection.ask(asked, 16).partitions
            found.append(part.error)
        (own,) = connection.ask(
            Fetch(partitions=[ahead], replica_id=replica, replica_epoch=epoch, max_wait_ms=0), 16
        ).partitions
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert found == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, stale, stale]
    assert own.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert own.diverging is not None, "a follower learns the leader's log end"
    cluster.produce(topic, ["x"], partition=0)
    assert [message.value for message in cluster.produced(topic)] == [b"x"]
    assert cluster.in_sync(topic) == [1, 2]
