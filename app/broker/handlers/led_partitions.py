"""Partitions of an internal topic come and go with their leaders, and with them what their coordinator knows."""

from typing import Any, Protocol

from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.replica.partition.partition import Partition
from ..state.broker_state import BrokerState


class Coordinating(Protocol):
    """What a coordinator is told of the partitions of its topic."""

    @property
    def partition_count(self) -> int: ...
    @partition_count.setter
    def partition_count(self, count: int, /) -> None: ...

    def unload(self, partition: int, /) -> None: ...


def follow_leaders(
    state: BrokerState, topic: str, coordinator: Coordinating, loader: LogLoader[Any], log: CoordinatorLog
) -> None:
    """From now on a partition that comes to be led here is loaded; of one that is led here no more, whoever waits is
    told, and what is being read is dropped."""

    def led(partition: Partition) -> None:
        if partition.topic_partition.topic == topic:
            resigned(partition)  # it may have led it in an epoch before
            coordinator.partition_count = len(state.image.topics[topic].partitions)
            loader.load(partition)

    def resigned(partition: Partition) -> None:
        name, number = partition.topic_partition
        if name == topic:
            coordinator.unload(number)
            log.give_up(number)

    state.replicas.add_leadership_listener(led, resigned)
