"""Plugins that the broker uses, the well-behaved and the other ones."""

from collections.abc import Sequence

import pytest

from barnabas.core.log.config import LogConfig
from barnabas.core.log.retention import DeletionPolicy, SegmentInfo
from barnabas.plugins.specs import hookimpl
from barnabas.testing.manual_broker import ManualBroker


class Greedy:
    """Lets every segment go."""

    def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
        return len(segments)


class Failing:
    def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
        raise RuntimeError("this policy does not work")


class Policies:
    """A plugin."""

    @hookimpl
    def barnabas_deletion_policy(self, name: str) -> DeletionPolicy | None:
        policies: dict[str, DeletionPolicy] = {"greedy": Greedy(), "failing": Failing()}
        return policies.get(name)

    @hookimpl
    def barnabas_names(self, kind: str) -> Sequence[str]:
        return ["greedy", "failing"] if kind == "deletion_policy" else []


@pytest.fixture
def broker() -> ManualBroker:
    return ManualBroker(plugins=[Policies()], log_retention_check_interval_ms=1000)


def test_a_deletion_policy_of_a_plugin(broker: ManualBroker) -> None:
    broker.create("t", deletion_policy="greedy", segment_bytes="300", retention_ms="-1")
    for _ in range(5):
        broker.produce("t", b"x" * 150)
    broker.scheduler.advance(2000)
    assert broker.node.state.replicas.partitions[("t", 0)].log.log_start_offset >= 4


def test_a_deletion_policy_that_raises_is_reported_and_loses_nothing(broker: ManualBroker) -> None:
    broker.create("t", deletion_policy="failing", segment_bytes="300", retention_ms="1")
    broker.create("other", segment_bytes="300", retention_ms="1")
    for topic in ("t", "other"):
        for _ in range(5):
            broker.produce(topic, b"x" * 150)
    broker.scheduler.advance(5000)
    assert any("this policy does not work" in line for line in broker.reports)
    assert len(broker.values("t")) == 5
    assert broker.node.state.replicas.partitions[("other", 0)].log.log_start_offset > 0, "the others are not held up"
    assert broker.produce("t", b"more").base_offset == 5


def test_retention_by_age_moves_the_start(broker: ManualBroker) -> None:
    broker.create("t", segment_bytes="300", retention_ms="5000")
    for _ in range(5):
        broker.produce("t", b"x" * 150)
    broker.scheduler.advance(10_000)
    start = broker.node.state.replicas.partitions[("t", 0)].log.log_start_offset
    assert start > 0
    answer = broker.fetch("t", start).partitions[0]
    assert answer.log_start_offset == start
