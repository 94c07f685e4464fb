"""Leadership: elections, reassignments, and requests to several brokers at once."""

from collections.abc import Iterator

import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas import Producer
from barnabas.testing import TestCluster


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def _leader(cluster: TestCluster, topic: str, partition: int = 0) -> int:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    return leader


def test_preferred_leaders_are_elected_when_asked(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3)
    cluster.wait_in_sync(topic)
    preferred = [cluster.replicas(topic, number)[0] for number in range(3)]
    for number in range(3):
        cluster.move_leader(topic, number, cluster.replicas(topic, number)[1])
    with cluster.admin() as admin:
        assert sorted(admin.elect_leaders([(topic, 0), (topic, 1)])) == [(topic, 0), (topic, 1)]
        cluster.wait_until(lambda: [cluster.leader(topic, n) for n in (0, 1)] == preferred[:2], "not elected")
        assert cluster.leader(topic, 2) == cluster.replicas(topic, 2)[1]
        assert admin.elect_leaders([(topic, 0)]) == []


def test_leaders_go_back_by_themselves_where_it_is_wanted() -> None:
    settings = {"auto.leader.rebalance.enable": True, "leader.imbalance.check.interval.seconds": 1}
    with TestCluster(3, settings) as cluster:
        topic = cluster.create_topic(partitions=3)
        cluster.wait_in_sync(topic)
        for number in range(3):
            cluster.move_leader(topic, number, cluster.replicas(topic, number)[1])
        cluster.wait_until(
            lambda: all(cluster.leader(topic, n) == cluster.replicas(topic, n)[0] for n in range(3)), "not rebalanced"
        )


def test_a_broker_that_stops_in_order_leads_nothing_before_it_goes(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=6)
    cluster.wait_in_sync(topic)
    epochs = [cluster.in_sync(topic, number) for number in range(6)]
    assert epochs == [[1, 2, 3]] * 6
    cluster.stop(1)
    assert all(cluster.leader(topic, number) in (2, 3) for number in range(6))  # at once: nothing to wait for
    cluster.produce(topic, ["a"], partition=0)


@pytest.mark.slow
def test_an_unclean_election_only_where_it_is_allowed(cluster: TestCluster) -> None:
    careful = cluster.create_topic("careful")
    reckless = cluster.create_topic("reckless", configs={"unclean.leader.election.enable": True})
    for topic in (careful, reckless):
        cluster.wait_in_sync(topic)
        cluster.move_leader(topic, 0, 1)
        cluster.produce(topic, ["on all"])
    cluster.kill(2)
    cluster.kill(3)
    for topic in (careful, reckless):
        wait_for(lambda: cluster.in_sync(topic) == [1])  # noqa: B023  # it is called here and now
        cluster.produce(topic, ["on one"])
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_until(lambda: cluster.leader(reckless) == 2, "no leader")
    assert cluster.leader(careful) is None
    cluster.assert_produced(reckless, ["on all"])
    cluster.start()
    for topic in (careful, reckless):
        cluster.wait_in_sync(topic)
    cluster.assert_produced(careful, ["on all", "on one"])
    cluster.assert_produced(reckless, ["on all"])


def test_replicas_are_moved_to_another_broker(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replication_factor=1)
    (first,) = cluster.replicas(topic)
    second = next(each for each in cluster.broker_ids if each != first)
    cluster.produce(topic, [f"{number}" for number in range(50)])
    with cluster.admin() as admin:
        admin.reassign_partitions({(topic, 0): [second]})
        cluster.wait_until(lambda: cluster.replicas(topic) == [second] and cluster.leader(topic) == second, "not moved")
        wait_for(lambda: not admin.list_reassignments())
    cluster.assert_produced(topic, [f"{number}" for number in range(50)])
    log_dir = cluster.broker(first).inner.node.state.logs.dirs[0]
    wait_for(lambda: f"{topic}-0" not in log_dir.folders())
    cluster.kill(first)
    cluster.produce(topic, ["later"])


def test_a_move_that_does_not_get_on_is_cancelled(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replication_factor=1)
    (first,) = cluster.replicas(topic)
    second = next(each for each in cluster.broker_ids if each != first)
    cluster.produce(topic, ["a"])
    cluster.partition(first, second)
    with cluster.admin() as admin:
        admin.reassign_partitions({(topic, 0): [second]})
        (ongoing,) = admin.list_reassignments()
        assert (list(ongoing.adding), list(ongoing.removing)) == ([second], [first])
        admin.reassign_partitions({(topic, 0): None})
        assert admin.list_reassignments() == []
    cluster.heal()
    assert cluster.replicas(topic) == [first]
    cluster.assert_produced(topic, ["a"])


def test_all_lose_power(cluster: TestCluster) -> None:
    """Flushed messages survive; a partition gets a leader although no replica has all messages."""
    topic = cluster.create_topic(configs={"flush.messages": 1})
    cluster.wait_in_sync(topic)
    cluster.produce(topic, ["a", "b"])
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id, power_cut=True)
    cluster.start()
    cluster.wait_for_leader(topic)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["a", "b"])


def test_topics_make_themselves_at_any_broker(cluster: TestCluster) -> None:
    for broker_id in cluster.broker_ids:
        topic = f"auto-{broker_id}"
        with Producer(cluster.broker(broker_id).bootstrap) as producer:
            producer.send(topic, b"a").result(PATIENCE_S)
        assert len(cluster.replicas(topic)) == 3
        cluster.assert_produced(topic, ["a"])


def test_groups_of_all_coordinators_are_listed(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.produce(topic, ["a"])
    groups = [f"group-{number}" for number in range(6)]
    for group in groups:
        with cluster.consumer(group_id=group) as consumer:
            consumer.subscribe([topic])
            assert consumer.poll(PATIENCE_S) is not None
            consumer.commit()
    with cluster.admin() as admin:
        assert sorted(group.group_id for group in admin.list_groups()) == groups
        for group in groups:
            assert [each.offset for each in admin.group_offsets(group).values()] == [1]
        cluster.kill(_leader(cluster, "__consumer_offsets"))
        cluster.wait_for_leader("__consumer_offsets")
        wait_for(lambda: sorted(group.group_id for group in admin.list_groups()) == groups)
        for group in groups:
            assert [each.offset for each in admin.group_offsets(group).values()] == [1]
