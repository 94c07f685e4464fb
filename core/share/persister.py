"""The durable state of share partitions as leaders and group coordinators use it (Kafka's `Persister`)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...ports.broker_api.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    StateSummary,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from .share_group_offset import ShareGroupOffset

_ID_BYTES = 16


class SharePartitionKey(NamedTuple):
    """A partition of a topic in a share group."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Return the key of the share coordinator: the topic id is 22 characters of base64 (`Uuid.toString`)."""
        topic = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "SharePartitionKey":
        """Read what `str` returns. Raises `ValueError`."""
        group_id, topic, partition = text.rsplit(":", 2)
        key = cls(group_id, urlsafe_b64decode(topic + "=="), int(partition))
        if not group_id or len(key.topic_id) != _ID_BYTES or str(key) != text:
            raise ValueError(f"{text[:260]!r} is not the key of a share partition")
        return key


class Persister(Protocol):
    """Stores the state of share partitions. Owner thread only.

    Every method calls back exactly once, on the owner thread, at once or later, with one outcome for each partition of
    the request, in its order; none raises. Errors that may pass (no coordinator, a time-out) were retried for a bounded
    time before they are reported: then a write may have happened or not. A leader sends the writes of one share
    partition one after the other.
    """

    def initialize_state(
        self, request: InitializeShareGroupState, callback: Callable[[InitializeShareGroupStateResult], None]
    ) -> None:
        """Create or replace the state of partitions; called by the group coordinator."""
        ...

    def read_state(self, request: ReadShareGroupState, callback: Callable[[ReadShareGroupStateResult], None]) -> None:
        """Read the state of partitions, and fence earlier leaders; called by the leader of the partitions."""
        ...

    def write_state(
        self, request: WriteShareGroupState, callback: Callable[[WriteShareGroupStateResult], None]
    ) -> None:
        """Store changes; called by the leader of the partitions. With NONE they are durable."""
        ...

    def delete_state(
        self, request: DeleteShareGroupState, callback: Callable[[DeleteShareGroupStateResult], None]
    ) -> None:
        """Delete the state of partitions; called by the group coordinator."""
        ...

    def read_state_summary(
        self,
        request: ReadShareGroupStateSummary,
        callback: Callable[[ReadShareGroupStateSummaryResult], None],
    ) -> None:
        """Read the start offsets of partitions; called by the group coordinator."""
        ...


def summary_of(request: ReadPartition, current: ShareGroupOffset | None) -> StateSummary:
    """Return the start of a share partition; one without state has the defaults."""
    if current is None:
        return StateSummary(request.topic_id, request.partition)
    return StateSummary(
        request.topic_id,
        request.partition,
        state_epoch=current.state_epoch,
        leader_epoch=max(0, current.leader_epoch),
        start_offset=current.start_offset,
        delivery_complete_count=current.delivery_complete_count,
    )
