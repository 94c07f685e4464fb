"""Coordinators load and unload partitions of their internal topic with its leaderships."""

from typing import Any, Protocol

from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.replica.partition.partition import Partition
from ..state.broker_state import BrokerState


class Coordinating(Protocol):
    """A coordinator, as `follow_leaders` uses it."""

    @property
    def partition_count(self) -> int: ...
    @partition_count.setter
    def partition_count(self, count: int, /) -> None: ...

    def unload(self, partition: int, /) -> None: ...


def follow_leaders(
    state: BrokerState, topic: str, coordinator: Coordinating, loader: LogLoader[Any], log: CoordinatorLog
) -> None:
    """Load each partition that this broker begins to lead, and unload those that it leads no longer.

    At an unload, waiting requests are answered, and a running load is dropped.
    """

    def led(partition: Partition) -> None:
        # One that led it before leads it on when the leader epoch rises since a replica goes, with all that it knows.
        if partition.topic_partition.topic == topic and partition.led_since == partition.leader_epoch:
            resigned(partition)  # the broker may have led it in an earlier epoch
            coordinator.partition_count = len(state.image.topics[topic].partitions)
            loader.load(partition)

    def resigned(partition: Partition) -> None:
        name, number = partition.topic_partition
        if name == topic:
            coordinator.unload(number)
            log.give_up(number)

    state.replicas.add_leadership_listener(led, resigned)
