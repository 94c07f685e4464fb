"""Fetch sessions of followers (KIP-227): the leader caches the partitions, and both sides send only changes.

Without sessions, idle brokers would exchange every partition in full, twice a second.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ....ports.broker_api.fetch import Fetch, FetchPartition, FetchResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.storage import size_of
from ...cluster.topics import ReplicaId
from ..partition.followers import FollowerProgress, Followers
from ..partition.partition import Partition
from ..purgatory import DelayedOperation, Purgatory
from .fetch_params import FollowerFetchParams
from .reader import ReplicaReader

NO_SESSION = 0
NEW_SESSION_EPOCH = 0
FULL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

TopicIdPartition = tuple[bytes, int]
"""The id of a topic, and the number of a partition."""


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request in a session."""
    return epoch + 1 if epoch < EPOCH_MAX else 1


class FetchSessionResult(NamedTuple):
    """The response of a fetch. In a session `results` contain only partitions that have something new."""

    results: Sequence[FetchResultPartition]
    session_id: int = NO_SESSION
    error: ErrorCode = ErrorCode.NONE


OnFetchSessionResult = Callable[[FetchSessionResult | ApiError], None]


class _CachedPartition:
    """One partition of a session, with its last request and response."""

    __slots__ = ("entry", "followers", "is_answered", "partition", "progress", "was_served")

    def __init__(self, entry: FetchPartition, *, is_answered: bool) -> None:
        self.entry = entry
        self.is_answered = is_answered
        """False for a partition that was added to the session: the follower may not have applied an earlier response.
        """
        self.was_served = False
        """True if records were sent for this entry: the follower skips further responses for the offset."""
        self.partition: Partition | None = None
        self.followers: Followers | None = None
        self.progress: FollowerProgress | None = None

    def update(self, partition: Partition | None, replica: ReplicaId) -> None:
        """Store the partition after a read. Without errors the follower's progress is known then."""
        self.partition = partition
        self.followers = None if partition is None else partition.followers
        self.progress = None if self.followers is None else self.followers.known(replica)

    def is_quiet(self, reading: FollowerFetchParams) -> bool:
        """Note the fetch of an in-sync follower that has everything, and return True; else return False.

        This is what `has_news` and `is_unchanged` would say of almost all partitions in almost all fetches, in one go.
        """
        partition, progress, entry = self.partition, self.progress, self.entry
        if partition is None or progress is None or partition.followers is not self.followers:
            return False
        log, offset = partition.log, entry.offset
        if (
            log.log_end_offset != offset
            or progress.log_end != offset
            or progress.leader_end != offset
            or progress.sent_high_watermark != partition.high_watermark
            or partition.leader_epoch != entry.current_leader_epoch
            or progress.sent_log_start != log.log_start_offset
            or progress.log_start != entry.log_start_offset
            or not partition.is_in_sync(progress)
        ):
            return False
        progress.caught_up_ms = progress.fetched_ms = reading.now_ms
        return True

    def has_news(self, reading: FollowerFetchParams) -> bool:
        """Return True if a response would contain something new, or may contain it."""
        if self.has_urgent_news(reading):
            return True
        partition, progress = self.partition, self.progress
        return progress is None or partition is None or progress.sent_high_watermark != partition.high_watermark

    def has_urgent_news(self, reading: FollowerFetchParams) -> bool:
        """Return True if a response would contain, or may contain, what the follower must have at once."""
        partition, progress, entry = self.partition, self.progress, self.entry
        if partition is None or progress is None or partition.followers is not self.followers:
            return True
        log = partition.log
        if partition.leader_epoch != entry.current_leader_epoch or progress.sent_log_start != log.log_start_offset:
            return True
        if reading.hastens_high_watermark and progress.sent_high_watermark != partition.high_watermark:
            return True
        return log.log_end_offset != entry.offset and not reading.held_back(partition)

    def is_unchanged(self) -> bool:
        """Return True if the follower's progress is known, and only the time of its fetch has to be noted."""
        progress, entry, partition = self.progress, self.entry, self.partition
        return (
            progress is not None
            and partition is not None
            and progress.log_end == entry.offset
            and progress.leader_end == entry.offset
            and progress.log_start == entry.log_start_offset
            and partition.is_in_sync(progress)
        )


class _FetchSession:
    """The leader's side of a session: the partitions that one follower fetches."""

    def __init__(self, session_id: int, replica: ReplicaId, entries: Sequence[FetchPartition]) -> None:
        self.id = session_id
        self.replica = replica
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[TopicIdPartition, _CachedPartition] = {}
        self.update(entries, (), are_answered=True)

    def update(
        self, entries: Sequence[FetchPartition], forgotten: Sequence[TopicIdPartition], *, are_answered: bool = False
    ) -> None:
        """Update the partitions. `are_answered`: the response to this request contains all of them."""
        for place in forgotten:
            self.partitions.pop(place, None)
        for entry in entries:
            place = (entry.topic_id, entry.partition)
            part = self.partitions.get(place)
            if part is None:
                self.partitions[place] = _CachedPartition(entry, is_answered=are_answered)
            else:
                part.entry, part.was_served = entry, False


class _DelayedSessionFetch(DelayedOperation):
    """A request of a session that waits until a partition has something that the follower must have at once."""

    __slots__ = ("_by_key", "_reading")

    def __init__(
        self,
        by_key: dict[Hashable, _CachedPartition],
        reading: FollowerFetchParams,
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self._by_key = by_key
        self._reading = reading

    def check(self, key: Hashable) -> bool:
        part = self._by_key.get(key)
        return part is not None and part.has_urgent_news(self._reading)


class FetchSessionManager:
    """One session for each follower, of its newest connection. Owner thread only."""

    def __init__(self, reads: ReplicaReader, purgatory: Purgatory) -> None:
        self._reads = reads
        self._purgatory = purgatory
        self._by_follower: dict[int, _FetchSession] = {}
        self._last_id = NO_SESSION

    def remove_all(self) -> None:
        """Forget all sessions: each follower begins another one with its next fetch."""
        self._by_follower.clear()

    def read(self, request: Fetch, done: OnFetchSessionResult, *, max_bytes: int, reader: Hashable) -> None:
        """Answer a fetch of a follower. `done` is called once, as that of `ReplicaReader.read`.

        A request that does not fit its session is answered with FETCH_SESSION_ID_NOT_FOUND or
        INVALID_FETCH_SESSION_EPOCH; the follower then begins another session.
        """
        replica = ReplicaId(request.replica_id, request.replica_epoch)
        begins = request.session_epoch == NEW_SESSION_EPOCH
        if request.session_epoch == FULL_EPOCH or (begins and request.min_bytes > 1):
            self._read_all(request, replica, NO_SESSION, done, max_bytes, reader)
        elif begins:
            self._last_id = next_epoch(self._last_id)
            self._by_follower[replica.broker_id] = session = _FetchSession(self._last_id, replica, request.partitions)
            self._read_all(request, replica, session.id, done, max_bytes, reader)
        else:
            session_or_none = self._by_follower.get(replica.broker_id)
            if session_or_none is None or session_or_none.id != request.session_id:
                done(FetchSessionResult((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            elif session_or_none.epoch != request.session_epoch or session_or_none.replica != replica:
                done(FetchSessionResult((), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            else:
                self._read_incremental(session_or_none, request, done, max_bytes, reader)

    def _read_all(
        self,
        request: Fetch,
        replica: ReplicaId,
        session_id: int,
        done: OnFetchSessionResult,
        max_bytes: int,
        reader: Hashable,
    ) -> None:
        def on_read(results: Sequence[FetchResultPartition] | ApiError) -> None:
            done(results if isinstance(results, ApiError) else FetchSessionResult(results, session_id))

        self._reads.read(
            request.partitions,
            on_read,
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            max_wait_ms=request.max_wait_ms,
            reader=reader,
            replica=replica,
        )

    def _read_incremental(
        self, session: _FetchSession, request: Fetch, done: OnFetchSessionResult, max_bytes: int, reader: Hashable
    ) -> None:
        self._purgatory.finish_all(session)  # a newer request ends the one before it, whose response comes first
        session.epoch = next_epoch(session.epoch)
        session.update(request.partitions, request.forgotten)
        reading = self._reads.follower_reading(session.replica)
        news = self._news(session, reading, max_bytes)

        def answer(news: Sequence[tuple[_CachedPartition, FetchResultPartition]]) -> None:
            results = [result for _, result in news]
            self._reads.record_answers(results, reading, [result for part, result in news if part.was_served])
            for part, result in news:
                part.is_answered = True
                part.was_served = part.was_served or size_of(result.records) > 0
            done(FetchSessionResult(results, session.id))

        def finish() -> None:
            reading.again()
            answer(self._news(session, reading, max_bytes))

        if request.max_wait_ms <= 0 or any(self._is_urgent(part, result, reading) for part, result in news):
            answer(news)
        else:
            by_key: dict[Hashable, _CachedPartition] = {
                (part.entry.topic, part.entry.partition): part for part in session.partitions.values()
            }
            waiting = _DelayedSessionFetch(by_key, reading, finish, lambda: done(broker_failed()))
            keys = (*by_key, session, reader) if reader else (*by_key, session)
            self._purgatory.watch(waiting, keys, request.max_wait_ms)
        self._reads.check_changed(reading)

    def _news(
        self, session: _FetchSession, reading: FollowerFetchParams, max_bytes: int
    ) -> list[tuple[_CachedPartition, FetchResultPartition]]:
        """Return the partitions that have something new, with their results."""
        news: list[tuple[_CachedPartition, FetchResultPartition]] = []
        served: list[TopicIdPartition] = []
        left, read = max_bytes, self._reads.read_one
        for place, part in session.partitions.items():
            if part.is_quiet(reading):
                continue
            if not part.has_news(reading) and part.is_unchanged():
                assert part.progress is not None
                part.progress.seen(reading.now_ms)
                continue
            result = read(part.entry, left, reading, first=left == max_bytes)
            size = size_of(result.records)
            if size:
                left = max(0, left - size)
                served.append(place)
            part.update(self._reads.partition_of(part.entry), session.replica)
            if self._has_changed(part, result):
                news.append((part, result))
        for place in served:
            session.partitions[place] = session.partitions.pop(place)  # the others come before it next time
        return news

    def _is_urgent(self, part: _CachedPartition, result: FetchResultPartition, reading: FollowerFetchParams) -> bool:
        """Return True if a result, which is new, is to be sent at once; a high watermark alone may wait."""
        return reading.hastens_high_watermark or self._has_changed(part, result, by_high_watermark=False)

    def _has_changed(
        self, part: _CachedPartition, result: FetchResultPartition, *, by_high_watermark: bool = True
    ) -> bool:
        progress = part.progress
        if (
            result.error is not ErrorCode.NONE
            or result.diverging is not None
            or progress is None
            or not part.is_answered
        ):
            return True
        if size_of(result.records) or (by_high_watermark and progress.sent_high_watermark != result.high_watermark):
            return True
        return progress.sent_log_start != result.log_start_offset
