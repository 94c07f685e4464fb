"""Consumers of a log that an unclean election has cut: they continue where both agree, or get an error (KIP-320)."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import wait_for

from barnabas import Consumer
from barnabas.core.client.errors import LogTruncated
from barnabas.testing import TestCluster

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def values(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def has_read() -> bool:
        found.extend(message.value or b"" for message in consumer.poll_many(count - len(found), 0.05))
        return len(found) >= count

    wait_for(has_read)
    return found


def loses_its_last_five(cluster: TestCluster, consumer: Consumer) -> str:
    """Ten messages are read; then who has only five of them leads, and writes three others."""
    topic = cluster.create_topic(replication_factor=2, configs=UNCLEAN)
    cluster.wait_in_sync(topic)
    consumer.assign(topic, position=0)
    cluster.produce(topic, values(0, 5))
    cluster.wait_in_sync(topic)
    has_all = cluster.wait_for_leader(topic)
    (has_five,) = set(cluster.replicas(topic)) - {has_all}
    wait_for(lambda: cluster.broker(has_five).inner.node.state.replicas.partitions[(topic, 0)].log.log_end_offset == 5)
    cluster.kill(has_five)
    wait_for(lambda: cluster.in_sync(topic) == [has_all])
    cluster.produce(topic, values(5, 10))
    assert read(consumer, 10) == values(0, 10)
    cluster.kill(has_all)
    cluster.start(has_five)
    assert cluster.wait_for_leader(topic, other_than=has_all) == has_five
    cluster.produce(topic, values(100, 103))
    return topic


@pytest.mark.slow
def test_with_a_reset_it_reads_on_where_the_logs_part(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    with cluster.consumer(auto_offset_reset="latest") as consumer:
        topic = loses_its_last_five(cluster, consumer)
        assert read(consumer, 3) == values(100, 103)
        assert consumer.position((topic, 0)) == 8
    assert f"{topic}-0 was read up to offset 10, and its log has lost what it had from 5 on" in caplog.text


@pytest.mark.slow
def test_truncation_without_reset_policy_raises_and_seek_resumes(cluster: TestCluster) -> None:
    with cluster.consumer(auto_offset_reset="none") as consumer:
        topic = loses_its_last_five(cluster, consumer)
        observed: list[Any] = []
        with pytest.raises(LogTruncated) as raised:
            wait_for(lambda: observed.extend(consumer.poll_many(timeout=0.05)))
        assert (raised.value.offset, raised.value.end_offset, observed) == (10, 5, [])
        consumer.seek((topic, 0), raised.value.end_offset)
        assert read(consumer, 3) == values(100, 103)


@pytest.mark.slow
def test_a_committed_position_is_checked_too(cluster: TestCluster) -> None:
    """The commit has the epoch of the last message read: a reader that begins there learns of the truncation."""
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "latest", "enable_auto_commit": False}
    with cluster.consumer(**settings) as consumer:
        topic = loses_its_last_five(cluster, consumer)
        consumer.commit()
        (position,) = consumer.committed().values()
        assert position is not None
        assert (position.offset, position.leader_epoch >= 0) == (10, True)
    with cluster.consumer(**settings) as consumer:
        consumer.assign(topic)
        assert read(consumer, 3) == values(100, 103)
