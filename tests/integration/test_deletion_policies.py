"""docs/deletion-policies.md: its example works as written, and the built-in policies do over a socket what it says."""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster

QUICK: dict[str, Any] = {
    "storage": "memory",
    "coordination": "memory",
    "log_retention_check_interval_ms": 50,
    "log_cleaner_backoff_ms": 50,
    "offsets_topic_num_partitions": 1,
}
SEGMENT = {"segment.bytes": "1000", "file.delete.delay.ms": "0"}


@pytest.fixture
def newest(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The module of the page, where Python finds it."""
    page = (checkout / "docs" / "deletion-policies.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.strip().splitlines()) < 20
    (tmp_path / "newest.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "newest"
    sys.modules.pop("newest", None)


def test_the_policy_of_the_page(newest: str) -> None:
    with Broker(**QUICK, plugins=[newest]) as broker, Admin(broker) as admin, Producer(broker) as producer:
        admin.create_topic("t", configs={**SEGMENT, "deletion.policy": "newest:3", "retention.ms": "1"})
        for number in range(20):
            producer.send("t", b"%d" % number + b"x" * 400).result()
        wait_for(lambda: start_of(admin) >= 14)
        assert start_of(admin) <= 16, "of two or three messages each"
        with pytest.raises((ApiError, ConfigError), match="invalid literal"):
            admin.create_topic("u", configs={"deletion.policy": "newest:many"})


def test_segments_that_named_groups_have_read_go() -> None:
    with Broker(**QUICK) as broker, Admin(broker) as admin, Producer(broker) as producer:
        admin.create_topic("t", configs={**SEGMENT, "deletion.policy": "consumed:billing,audit", "retention.ms": "1"})
        for number in range(10):
            producer.send("t", b"%d" % number + b"x" * 400).result()
        for group, offset in (("billing", 10), ("audit", 4)):
            with Consumer(broker, group_id=group, enable_auto_commit=False) as consumer:
                consumer.assign("t", position=0)
                consumer.commit({("t", 0): offset})
        wait_for(lambda: start_of(admin) > 0)
        time.sleep(0.2)
        assert start_of(admin) in (3, 4), "what is behind the slower one stays"


def test_a_leader_asks_the_coordinator_of_the_group_wherever_it_is() -> None:
    quick = {key: value for key, value in QUICK.items() if key not in ("storage", "coordination")}
    with TestCluster(brokers=3, **quick) as cluster, cluster.admin() as admin:
        topic = cluster.create_topic(configs={**SEGMENT, "deletion.policy": "consumed:billing", "retention.ms": "1"})
        coordinator = admin.coordinator("billing").node_id
        cluster.wait_in_sync(topic)
        if cluster.leader(topic) == coordinator:
            cluster.move_leader(topic, 0, next(each for each in cluster.broker_ids if each != coordinator))
        for number in range(10):
            cluster.produce(topic, [b"%d" % number + b"x" * 400])
        with cluster.consumer(group_id="billing", enable_auto_commit=False) as consumer:
            consumer.assign(topic, position=0)
            consumer.commit({(topic, 0): 10})
        wait_for(lambda: start_of(admin, topic) == 10)


def test_messages_whose_time_is_over_go() -> None:
    with Broker(**QUICK) as broker, Admin(broker) as admin, Producer(broker) as producer:
        admin.create_topic("t", configs={**SEGMENT, "flush.messages": "1"})
        for number in range(10):
            headers = (("ttl-ms", b"1"),) if number % 2 else ()
            producer.send("t", b"%d" % number + b"x" * 300, headers=headers).result()
        # What is sealed and durable is looked at now, and not again for an hour.
        admin.alter_topic_configs("t", {"deletion.policy": "header-ttl:ttl-ms"})
        wait_for(lambda: values(broker)[:3] == [0, 2, 4])
        assert start_of(admin) == 0
        with pytest.raises(ApiError, match="whole segments only") as refused:
            admin.create_topic("u", configs={"message.format": "classic", "deletion.policy": "header-ttl:ttl-ms"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG


def start_of(admin: Admin, topic: str = "t") -> int:
    tp = TopicPartition(topic, 0)
    return int(admin.list_offsets({tp: "earliest"})[tp])


def values(broker: Broker) -> list[int]:
    with Consumer(broker) as consumer:
        consumer.assign("t", position=0)
        return [int((each.value or b"").rstrip(b"x")) for each in consumer.messages(stop_at_end=True)]
