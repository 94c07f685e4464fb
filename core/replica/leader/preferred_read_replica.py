"""Preferred read replicas (KIP-392): the leader asks the selector about each partition of a consumer's fetch."""

from collections.abc import Callable, Mapping

from ....ports.clock import Clock
from ...cluster.topics import BrokerRegistration
from ..partition.partition import Partition
from .replica_selector import NearReader, ReplicaSelector, ReplicaView

HERE = -1
"""The consumer should read from this broker."""


class PreferredReadReplicas:
    """Asks the replica selector. Owner thread only.

    rack: the rack of this broker. brokers: returns the live brokers. failed: is called with the error of a selector.
    """

    def __init__(
        self,
        selector: ReplicaSelector,
        rack: str | None,
        brokers: Callable[[], Mapping[int, BrokerRegistration]],
        clock: Clock,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._selector = selector
        self._rack = rack
        self._brokers = brokers
        self._clock = clock
        self._failed = failed

    def nearest(self, reader: NearReader, partition: Partition, offset: int) -> int:
        """Return the broker that the reader should read from at this offset; `HERE` for this one, which leads."""
        followers = partition.followers
        if followers is None:
            return HERE
        live, now_ms = self._brokers(), self._clock.monotonic_ms()
        own = partition.broker_id
        leader = ReplicaView(broker_id=own, rack=self._rack, log_end_offset=partition.log.log_end_offset, behind_ms=0.0)
        choice = [leader]
        for each in followers:
            broker = live.get(each.broker_id)
            if broker is not None and not broker.leaving and each.log_start <= offset <= each.log_end:
                behind_ms = max(0.0, now_ms - each.caught_up_ms)
                choice.append(
                    ReplicaView(
                        broker_id=each.broker_id, rack=broker.rack, log_end_offset=each.log_end, behind_ms=behind_ms
                    )
                )
        if len(choice) == 1:
            return HERE
        try:
            chosen = self._selector.select(partition.topic_partition, reader, leader, choice)
        except Exception as error:  # noqa: BLE001  a plugin's; the consumer can read here
            self._failed(error)
            return HERE
        return chosen if chosen != own and any(view.broker_id == chosen for view in choice) else HERE
