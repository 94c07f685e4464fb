"""Checks that hold in all tests of groups."""

from collections.abc import Iterator

import pytest

from barnabas.core.coordinator.group.consumer_group import ConsumerGroup
from barnabas.core.coordinator.group.effects import Answer
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from barnabas.ports.broker_api.envelope import Caller

NOW = 0


@pytest.fixture(autouse=True)
def steady_heartbeats_are_compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each heartbeat that is answered in the short way go the long way, too: it must come to the same."""
    short_way = ConsumerGroup.steady_heartbeat

    def both_ways(
        group: ConsumerGroup, request: ConsumerGroupHeartbeat, caller: Caller, now_ms: float
    ) -> ConsumerGroupHeartbeatResult | None:
        due_ms = group.next_due_ms
        result = short_way(group, request, caller, now_ms)
        if result is None:
            assert group.next_due_ms == due_ms
        else:
            (answer,) = group.heartbeat(request, caller, lambda _: None, now_ms, NOW)
            assert isinstance(answer, Answer)
            assert answer.result == result
        return result

    monkeypatch.setattr(ConsumerGroup, "steady_heartbeat", both_ways)
    yield
