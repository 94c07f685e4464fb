"""A broker that offers share groups with a scripted coordinator: each member gets all partitions of its topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.memory_persister import MemoryPersister

from barnabas.adapters.wire_kafka import share_groups
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.app.broker.lifecycle import broker_server
from barnabas.app.broker.service import BrokerService
from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.coordinator.group.group_config import GroupConfig, GroupConfigManager
from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.consumer_groups import TopicIdPartitions
from barnabas.ports.broker_api.envelope import Caller, Reply
from barnabas.ports.broker_api.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from barnabas.ports.broker_api.share_state import InitializePartition, InitializeShareGroupState


class ScriptedShareGroups:
    """Answers ShareGroupHeartbeat, and begins the state of the partitions that it assigns."""

    def __init__(self, config: GroupConfig) -> None:
        self.persister = MemoryPersister()
        self.configs = GroupConfigManager(config)
        self.state: BrokerState | None = None

    def service(self, state: BrokerState, selector: Any = None, authorization: Any = None) -> BrokerService:
        self.state = state
        service = BrokerService(state, selector, authorization, self.persister, self.configs)
        service._handlers[ShareGroupHeartbeat] = self.answer
        service._counters[ShareGroupHeartbeat] = state.metrics.counter("scripted_share_heartbeats_total", "Scripted.")
        return service

    def answer(self, request: ShareGroupHeartbeat, _caller: Caller, reply: Reply[ShareGroupHeartbeatResult]) -> None:
        assert self.state is not None
        assigned = []
        for name in request.subscribed_topic_names or ():
            topic = self.state.image.topics.get(name)
            if topic is not None:
                numbers = sorted(topic.partitions)
                self._initialize(request.group_id, topic.topic_id, numbers)
                assigned.append(TopicIdPartitions(topic.topic_id, numbers))
        epoch = 1 if request.member_epoch == 0 else request.member_epoch
        reply(
            ShareGroupHeartbeatResult(
                member_id=request.member_id,
                member_epoch=epoch,
                heartbeat_interval_ms=1000,
                assignment=assigned if request.subscribed_topic_names is not None else None,
            )
        )

    def _initialize(self, group_id: str, topic_id: bytes, numbers: list[int]) -> None:
        new = [each for each in numbers if SharePartitionKey(group_id, topic_id, each) not in self.persister.offsets]
        entries = [InitializePartition(topic_id, each, 1) for each in new]
        request = InitializeShareGroupState(group_id=group_id, partitions=entries)
        self.persister.initialize_state(request, lambda _: None)


@contextmanager
def scripted_share_groups(**config: Any) -> Iterator[ScriptedShareGroups]:
    """Let the brokers that start meanwhile offer share groups."""
    scripted = ScriptedShareGroups(GroupConfig(**config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_server, "BrokerService", scripted.service)
        for api in (share_groups.SHARE_GROUP_HEARTBEAT,):
            patch.setitem(BY_KEY, api.key, api)
        yield scripted
