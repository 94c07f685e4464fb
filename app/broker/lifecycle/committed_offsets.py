"""Committed offsets of consumer groups, for deletion policies that retain unread records."""

from collections.abc import Callable

from ....core.coordinator.group.coordinator import GroupCoordinator
from ....core.coordinator.table import partition_of
from ....ports.broker_api.envelope import Caller, Origin
from ....ports.broker_api.groups import OffsetFetch, OffsetFetchGroup, OffsetFetchResult
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ..handlers.internal_topics import OFFSETS_TOPIC
from ..state.broker_state import BrokerState

_ITSELF = Caller(client_id="deletion-policy", origin=Origin.BROKER)


class ReadByGroups:
    """Caches committed offsets for deletion policies. Owner thread only.

    An answer comes from the cache at once. It also starts a round of OffsetFetch requests to the groups' coordinators
    for everything that was asked for. The offset is unknown if the coordinator returns none.
    """

    def __init__(self) -> None:
        self._state: BrokerState | None = None
        self._coordinator: GroupCoordinator | None = None
        self._wanted: dict[str, dict[TopicPartition, None]] = {}
        self._known: dict[tuple[str, TopicPartition], int] = {}
        self._is_due = False

    def start(self, state: BrokerState, coordinator: GroupCoordinator) -> None:
        """Use this broker's coordinator, and those of other brokers, from now on."""
        self._state, self._coordinator = state, coordinator

    def committed(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group; None where it is unknown, or there is none."""
        self._wanted.setdefault(group_id, {})[partition] = None
        if self._state is not None and not self._is_due:
            self._is_due = True
            self._state.scheduler.call_soon(self._ask)
        return self._known.get((group_id, partition))

    def _ask(self) -> None:
        """Fetch all offsets that were wanted since the last round, and forget the others."""
        self._is_due = False
        wanted, self._wanted = self._wanted, {}
        still_wanted = {(group_id, partition) for group_id, partitions in wanted.items() for partition in partitions}
        self._known = {key: offset for key, offset in self._known.items() if key in still_wanted}
        for group_id, partitions in wanted.items():
            self._ask_about(group_id, list(partitions))

    def _ask_about(self, group_id: str, partitions: list[TopicPartition]) -> None:
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id=group_id, partitions=partitions)])

        def heard(result: object) -> None:
            for partition in partitions:
                self._known.pop((group_id, partition), None)
            if not isinstance(result, OffsetFetchResult):
                return
            for each in result.groups[0].partitions:
                if each.error is ErrorCode.NONE and each.offset >= 0:
                    self._known[group_id, TopicPartition(each.topic, each.partition)] = each.offset

        self._submit(self._coordinator_of(group_id), request, heard)

    def _submit(self, node: int | None, request: OffsetFetch, heard: Callable[[object], None]) -> None:
        state, coordinator = self._state, self._coordinator
        if state is not None and coordinator is not None and node == state.node_id:
            coordinator.fetch_offsets(request, _ITSELF, heard)
        elif state is not None and state.ask is not None and node is not None:
            state.ask(node, request, heard)
        else:
            heard(None)

    def _coordinator_of(self, group_id: str) -> int | None:
        """Return the broker that leads the group's partition of `__consumer_offsets`, or None."""
        image = None if self._state is None else self._state.image
        topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
        if image is None or topic is None:
            return None
        leader = image.state(TopicPartition(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))).leader
        return leader if leader >= 0 else None
