"""Topics and brokers with keys of Kafka 4 that have no effect here yet, by the admin client of librdkafka."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.confluent import AdminClient, ConfigResource
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Producer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.types import TopicPartition

OWN = {
    "min.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "unclean.leader.election.enable": "true",
    "preallocate": "true",
    "leader.replication.throttled.replicas": "0:1,1:1",
    "compression.zstd.level": "7",
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"log.cleaner.threads": 2, "num.network.threads": 9, "log.retention.check.interval.ms": 50}
    with Broker(storage="memory", config=settings) as running:
        yield running


@pytest.fixture(scope="module")
def confluent(broker: Broker) -> Any:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def described(confluent: Any, kind: str, name: str) -> Any:
    resource = ConfigResource(kind, name)
    return confluent.describe_configs([resource])[resource].result(PATIENCE_S)


def test_unused_topic_configs_are_stored_and_described(broker: Broker, confluent: Any) -> None:
    with Admin(broker) as admin:
        admin.create_topic("kept", configs=OWN)
        assert admin.topic_overrides("kept") == OWN
    observed = described(confluent, "topic", "kept")
    assert {name: observed[name].value for name in OWN} == OWN
    ratio = observed["min.cleanable.dirty.ratio"]
    assert not ratio.is_default
    assert {each.name: each.value for each in ratio.synonyms.values()} == {
        "min.cleanable.dirty.ratio": "0.01",
        "log.cleaner.min.cleanable.ratio": "0.5",
    }
    assert (observed["max.compaction.lag.ms"].value, observed["max.compaction.lag.ms"].is_default) == (
        str(2**63 - 1),
        True,
    )
    assert observed["follower.replication.throttled.replicas"].value == ""
    assert observed["message.timestamp.after.max.ms"].value == "3600000"


def test_unused_broker_configs_are_stored_described_and_altered(broker: Broker, confluent: Any) -> None:
    observed = described(confluent, "broker", "1")
    assert (observed["num.network.threads"].value, observed["log.cleaner.threads"].value) == ("9", "2")
    assert (observed["num.io.threads"].value, observed["num.io.threads"].is_default) == ("8", True)
    assert observed["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    with Admin(broker) as admin:
        admin.alter_configs(
            ResourceKind.BROKER, "1", {"num.io.threads": "16", "leader.replication.throttled.rate": "1000"}
        )
    observed = described(confluent, "broker", "1")
    assert (observed["num.io.threads"].value, observed["leader.replication.throttled.rate"].value) == ("16", "1000")


def test_an_empty_cleanup_policy_deletes_nothing(broker: Broker) -> None:
    ever, now = TopicPartition("for-ever", 0), TopicPartition("for-now", 0)
    with Admin(broker) as admin, Producer(broker) as producer:
        for name, policy in (("for-ever", ""), ("for-now", "delete")):
            admin.create_topic(name, configs={"cleanup.policy": policy, "retention.ms": "1", "segment.bytes": "200"})
            for _ in range(5):
                producer.send(name, b"x" * 60, timestamp_ms=1_000)
                producer.confirm(PATIENCE_S)
        assert admin.describe_topic_configs("for-ever")["cleanup.policy"] == ""
        wait_for(lambda: admin.list_offsets({now: "earliest"})[now] > 0)
        assert admin.list_offsets({ever: "earliest"})[ever] == 0
