"""View of the coordination tree of a world, independent of sessions: for checks, and for faults with a limit."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

from ..adapters.coord_memory import MemoryTree
from ..core.cluster import layout
from ..core.cluster.topic_store import states_paths
from ..core.cluster.topics import BrokerRegistration, PartitionState, Topic
from ..ports.coordination import NoNode

DECODED_MAX = 512
"""Nodes seldom change from one look to the next, and what is decoded is immutable."""


@lru_cache(DECODED_MAX)
def _decode_topic(name: str, data: bytes) -> tuple[Topic, bool]:
    return layout.decode_topic(name, data, {})


@lru_cache(DECODED_MAX)
def _decode_states(data: bytes) -> Mapping[int, PartitionState]:
    return layout.decode_states(data)[1]


@lru_cache(DECODED_MAX)
def _decode_broker(name: str, data: bytes) -> BrokerRegistration:
    decode: Callable[[str, bytes], BrokerRegistration] = layout.decode_broker
    return decode(name, data)


class TreeView:
    """Reads the nodes of the current generation as they are now."""

    def __init__(self, tree: MemoryTree) -> None:
        self._nodes = tree.nodes

    def topics(self) -> dict[str, Topic]:
        """Return the topics without those that are being deleted, and without their configs."""
        found = {}
        for name in self._children(layout.TOPICS):
            topic, deleting = _decode_topic(name, self._nodes.get(layout.topic_path(name)).data)
            if not deleting:
                found[name] = topic
        return found

    def states(self, topic: str) -> Mapping[int, PartitionState]:
        """Return the states of a topic's partitions; empty if none are stored."""
        try:
            found, _ = _decode_topic(topic, self._nodes.get(layout.topic_path(topic)).data)
        except NoNode:
            return {}
        states: dict[int, PartitionState] = {}
        for path in states_paths(found):
            with suppress(NoNode):
                states |= _decode_states(self._nodes.get(path).data)
        return states

    def brokers(self) -> dict[int, BrokerRegistration]:
        """Return the registered brokers by id."""
        return {
            int(name): _decode_broker(name, self._nodes.get(f"{layout.BROKER_IDS}/{name}").data)
            for name in self._children(layout.BROKER_IDS)
            if name.isdecimal()
        }

    def controller(self) -> int:
        """Return the broker that elects leaders; -1 if there is none."""
        try:
            return layout.decode_controller(self._nodes.get(layout.CONTROLLER).data).broker_id
        except NoNode:
            return -1

    def in_sync_everywhere(self, broker_id: int) -> bool:
        """True if this broker, in its present life, is in the ISR of every partition that it is a replica of."""
        broker = self.brokers().get(broker_id)
        if broker is None:
            return False
        for name, topic in self.topics().items():
            states = self.states(name)
            for number, replicas in topic.partitions.items():
                state = states.get(number)
                if state is None or broker_id not in replicas:
                    continue
                if broker_id not in state.isr or state.broker_epochs.get(broker_id) != broker.broker_epoch:
                    return False
        return True

    def _children(self, path: str) -> list[str]:
        try:
            return self._nodes.children(path)
        except NoNode:
            return []
