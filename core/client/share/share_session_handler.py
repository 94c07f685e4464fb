"""A share session of the consumer with one leader (KIP-932; Kafka: `ShareSessionHandler`)."""

from collections.abc import Collection, Mapping

from attrs import field

from ....ports.broker_api.share_groups import (
    FINAL_SHARE_SESSION_EPOCH,
    INITIAL_SHARE_SESSION_EPOCH,
    ForgottenSharePartition,
    ShareAcknowledge,
    ShareAcknowledgePartition,
    ShareAcquireMode,
    ShareFetch,
    ShareFetchPartition,
    next_share_session_epoch,
)
from ....ports.errors import BarnabasError
from ....ports.values import define, frozen
from .acknowledgements import PartitionAcknowledgements, TopicIdPartition


@frozen(kw_only=True)
class ShareFetchSettings:
    """Sizes in bytes, times in ms."""

    group_id: str
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_poll_records: int = 500
    acquire_mode: int = ShareAcquireMode.BATCH_OPTIMIZED
    implicit: bool = True
    """Accept what the user has processed, without an `acknowledge` of its own."""
    check_crcs: bool = True
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000


@define(eq=False)
class ShareSessionHandler:
    """The session's epoch, its partitions at the leader, and the acknowledgements for it. One request at a time.

    A session ends with its connection, and after any error of a whole request: the leader then releases what the
    session had acquired. The consumer opens another one, in which nothing of that can be acknowledged.
    """

    node: int
    member_id: str
    settings: ShareFetchSettings
    epoch: int = INITIAL_SHARE_SESSION_EPOCH
    partitions: set[TopicIdPartition] = field(factory=set)
    pending: dict[TopicIdPartition, PartitionAcknowledgements] = field(factory=dict)
    """Acknowledgements that wait for the next request."""
    sent: dict[TopicIdPartition, PartitionAcknowledgements] = field(factory=dict)
    """Acknowledgements of the request in flight."""
    in_flight: bool = False
    flush: bool = False
    """True if the acknowledgements must not wait for the next fetch."""
    lost: BarnabasError | None = None
    """The reason why the session is over."""
    not_before_ms: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.epoch != INITIAL_SHARE_SESSION_EPOCH and self.lost is None

    @property
    def acknowledgements(self) -> list[PartitionAcknowledgements]:
        """All that have no result yet."""
        return [*self.pending.values(), *self.sent.values()]

    def fetch_request(self, wanted: Collection[TopicIdPartition]) -> ShareFetch:
        """Return a request for records of the `wanted` partitions, with all acknowledgements; they have no renewals."""
        acknowledged = self._take_pending()
        joining = [tip for tip in wanted if tip not in self.partitions or tip in acknowledged]
        settings = self.settings
        request = ShareFetch(
            group_id=settings.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            partitions=[
                ShareFetchPartition(*tip, acknowledged[tip].batches() if tip in acknowledged else ()) for tip in joining
            ],
            forgotten=[ForgottenSharePartition(*tip) for tip in sorted(self.partitions.difference(wanted))],
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=settings.acquire_mode,
        )
        self.partitions = set(wanted)
        self._begin()
        return request

    def acknowledge_request(self) -> ShareAcknowledge:
        """Return a request with all acknowledgements."""
        return self._acknowledge(self.epoch)

    def close_request(self) -> ShareAcknowledge:
        """Return the last request: the leader takes the acknowledgements, and releases all other records."""
        for acknowledgements in self.pending.values():
            acknowledgements.drop_renewals()
        return self._acknowledge(FINAL_SHARE_SESSION_EPOCH)

    def _acknowledge(self, epoch: int) -> ShareAcknowledge:
        acknowledged = self._take_pending()
        self._begin()
        return ShareAcknowledge(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            partitions=[ShareAcknowledgePartition(*tip, each.batches()) for tip, each in acknowledged.items()],
            is_renew_ack=any(each.has_renewals for each in acknowledged.values()),
        )

    def answered(self) -> None:
        """Note that the leader has taken the request."""
        self.epoch = next_share_session_epoch(self.epoch)

    def _begin(self) -> None:
        self.in_flight, self.flush = True, False

    def _take_pending(self) -> Mapping[TopicIdPartition, PartitionAcknowledgements]:
        self.sent, self.pending = self.pending, {}
        return self.sent
