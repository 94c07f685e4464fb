"""Consumers are sent to a replica near them (KIP-392)."""

from ...core.replica.partition import Partition
from ...core.replica.selection import NearReader, ReplicaSelector, ReplicaView
from ...ports.broker_api import Caller, Fetch
from .state import BrokerState

CONSUMER = -1
HERE = -1
"""Read where you are."""


class NearReplicas:
    """Asks the selector for the partitions that this broker leads. Owner thread only."""

    def __init__(self, state: BrokerState, selector: ReplicaSelector) -> None:
        self._state = state
        self._selector = selector

    def reader(self, request: Fetch, caller: Caller) -> NearReader | None:
        """Who may be sent elsewhere: a consumer that says where it is, and knows what to make of the answer."""
        if request.replica_id != CONSUMER or not (request.rack_id and request.allows_follower):
            return None
        return NearReader(
            rack=request.rack_id,
            client_id=caller.client_id,
            host=caller.host,
            listener=caller.listener,
            principal=caller.principal,
        )

    def nearest(self, reader: NearReader, partition: Partition, offset: int) -> int:
        """The broker that the reader should read from at this offset; `HERE` for this one."""
        followers = partition.followers
        if followers is None:
            return HERE
        state = self._state
        live, now_ms = state.image.brokers, state.clock.monotonic_ms()
        own = self._state.node_id
        leader = ReplicaView(
            broker_id=own,
            rack=state.settings.static.broker_rack,
            log_end_offset=partition.log.log_end_offset,
            behind_ms=0.0,
        )
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
            state.failed("replica.selector.class", error)
            return HERE
        return chosen if chosen != own and any(view.broker_id == chosen for view in choice) else HERE
