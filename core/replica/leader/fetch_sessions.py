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

_LOOK_AT_ALL_MS = 100.0
"""A fetch after this time looks at all partitions of its session; the others at those where something has happened."""

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

    __slots__ = ("entry", "followers", "is_answered", "partition", "place", "progress", "was_served")

    def __init__(self, entry: FetchPartition, *, is_answered: bool) -> None:
        self.entry = entry
        self.place = (entry.topic_id, entry.partition)
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

    def note_caught_up(self, reading: FollowerFetchParams) -> bool:
        """Count the progress of an in-sync follower that has just got the last records, and return True; False where
        more has to be looked at.

        A response would have a high watermark alone, or nothing. This is what most fetches of a busy partition say.
        """
        partition, progress, entry = self.partition, self.progress, self.entry
        if partition is None or progress is None or partition.followers is not self.followers or not self.is_answered:
            return False
        log = partition.log
        if (
            log.log_end_offset != entry.offset
            or log.epochs.latest != entry.last_fetched_epoch  # else the logs may differ
            or partition.leader_epoch != entry.current_leader_epoch
            or progress.sent_log_start != log.log_start_offset
            or not partition.is_in_sync(progress)
            or not reading.is_of(progress)
        ):
            return False
        reading.note(partition, progress, entry)
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
    """The leader's side of a session: the partitions that one follower fetches.

    Most partitions of most fetches are quiet: the follower has everything, and nothing has happened. A fetch looks only
    at the `restless` ones, so that it costs the same however many partitions the session has. Appends and other events
    arrive through the purgatory; for what none is known of, such as log starts, all are looked at ten times a second.
    """

    def __init__(
        self, session_id: int, replica: ReplicaId, entries: Sequence[FetchPartition], purgatory: Purgatory
    ) -> None:
        self.id = session_id
        self.replica = replica
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[TopicIdPartition, _CachedPartition] = {}
        self.restless: dict[TopicIdPartition, _CachedPartition] = {}
        """The partitions that were not quiet when they were looked at last, or where something has happened since."""
        self._looked_ms = float("-inf")
        self._is_due = True
        """True if the next response brings also high watermarks of partitions without records."""
        self._by_key: dict[Hashable, _CachedPartition] = {}
        self._purgatory = purgatory
        self._waiting: DelayedOperation | None = None
        self._reading: FollowerFetchParams | None = None
        self._woken_by: _CachedPartition | None = None
        self.update(entries, (), are_answered=True)

    def update(
        self, entries: Sequence[FetchPartition], forgotten: Sequence[TopicIdPartition], *, are_answered: bool = False
    ) -> None:
        """Update the partitions. `are_answered`: the response to this request contains all of them."""
        for place in forgotten:
            part = self.partitions.pop(place, None)
            if part is not None:
                self.restless.pop(place, None)
                self._stop_listening(part)
        for entry in entries:
            place = (entry.topic_id, entry.partition)
            part = self.partitions.get(place)
            if part is None:
                part = self.partitions[place] = _CachedPartition(entry, is_answered=are_answered)
                self._listen(part)
            elif part.entry.topic != entry.topic:  # the leader did not know the topic of the id before
                self._stop_listening(part)
                part.entry, part.was_served = entry, False
                self._listen(part)
            else:
                part.entry, part.was_served = entry, False
            self.restless[place] = part

    def to_look_at(self, now_ms: float) -> Sequence[_CachedPartition]:
        """Return the partitions that may have something new for a request at that time."""
        if now_ms - self._looked_ms < _LOOK_AT_ALL_MS:
            return tuple(self.restless.values())
        self._looked_ms = now_ms
        self._is_due = True
        return tuple(self.partitions.values())

    def to_answer(self) -> Sequence[_CachedPartition]:
        """Return the partitions to look at for the response to a request that has waited.

        High watermarks of others than the one with records come ten times a second, and where the wait ends without
        records.
        """
        woken_by, self._woken_by = self._woken_by, None
        if woken_by is not None and not self._is_due:
            return (woken_by,)
        self._is_due = False
        return tuple(self.restless.values())

    def wait(self, operation: DelayedOperation, reading: FollowerFetchParams, reader: Hashable, wait_ms: float) -> None:
        """Let a request wait until a partition has something that the follower must have at once."""
        self._waiting, self._reading, self._woken_by = operation, reading, None
        self._purgatory.watch(operation, (reader or self,), wait_ms)

    def end_wait(self) -> None:
        """Answer the request that waits, if one does."""
        waiting, self._waiting, self._reading = self._waiting, None, None
        if waiting is not None:
            self._purgatory.end(waiting)

    def close(self) -> None:
        """Stop listening; a request that waits is answered at its timeout."""
        for part in self.partitions.values():
            self._stop_listening(part)

    def _listen(self, part: _CachedPartition) -> None:
        key = (part.entry.topic, part.entry.partition)
        if key not in self._by_key:
            self._purgatory.add_listener(key, self._on_event)
        self._by_key[key] = part  # of a topic that was deleted and created again, the later one

    def _stop_listening(self, part: _CachedPartition) -> None:
        key = (part.entry.topic, part.entry.partition)
        if self._by_key.get(key) is part:
            del self._by_key[key]
            self._purgatory.remove_listener(key, self._on_event)

    def _on_event(self, key: Hashable) -> None:
        part = self._by_key.get(key)
        if part is None:
            return  # forgotten by what another listener has done
        self.restless[part.place] = part
        if self._reading is not None and part.has_urgent_news(self._reading):
            self._woken_by = part
            self.end_wait()


class FetchSessionManager:
    """One session for each follower, of its newest connection. Owner thread only."""

    def __init__(self, reads: ReplicaReader, purgatory: Purgatory) -> None:
        self._reads = reads
        self._purgatory = purgatory
        self._by_follower: dict[int, _FetchSession] = {}
        self._last_id = NO_SESSION

    def remove_all(self) -> None:
        """Forget all sessions: each follower begins another one with its next fetch."""
        for session in self._by_follower.values():
            session.close()
        self._by_follower.clear()

    def read(self, request: Fetch, done: OnFetchSessionResult, *, max_bytes: int, reader: Hashable) -> None:
        """Answer a fetch of a follower. `done` is called once, as that of `ReplicaReader.read`.

        A request that does not fit its session is answered with FETCH_SESSION_ID_NOT_FOUND or
        INVALID_FETCH_SESSION_EPOCH; the follower then begins another session.
        """
        begins = request.session_epoch == NEW_SESSION_EPOCH
        if request.session_epoch == FULL_EPOCH or (begins and request.min_bytes > 1):
            replica = ReplicaId(request.replica_id, request.replica_epoch)
            self._read_all(request, replica, NO_SESSION, done, max_bytes, reader)
        elif begins:
            replica = ReplicaId(request.replica_id, request.replica_epoch)
            self._last_id = next_epoch(self._last_id)
            if replica.broker_id in self._by_follower:
                self._by_follower[replica.broker_id].close()
            session = _FetchSession(self._last_id, replica, request.partitions, self._purgatory)
            self._by_follower[replica.broker_id] = session
            self._read_all(request, replica, session.id, done, max_bytes, reader)
        else:
            session_or_none = self._by_follower.get(request.replica_id)
            if session_or_none is None or session_or_none.id != request.session_id:
                done(FetchSessionResult((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            elif (
                session_or_none.epoch != request.session_epoch
                or session_or_none.replica.broker_epoch != request.replica_epoch
            ):
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
        session.end_wait()  # a newer request ends the one before it, whose response comes first
        session.epoch = next_epoch(session.epoch)
        session.update(request.partitions, request.forgotten)
        reading = self._reads.follower_reading(session.replica)
        may_wait = request.max_wait_ms > 0 and not reading.hastens_high_watermark
        news = self._news(session, session.to_look_at(reading.now_ms), reading, max_bytes, may_wait=may_wait)

        def answer(news: Sequence[tuple[_CachedPartition, FetchResultPartition]]) -> None:
            results = [result for _, result in news]
            self._reads.record_answers(results, reading, [result for part, result in news if part.was_served])
            for part, result in news:
                part.is_answered = True
                part.was_served = part.was_served or size_of(result.records) > 0
            done(FetchSessionResult(results, session.id))

        def finish() -> None:
            reading.again()
            answer(self._news(session, session.to_answer(), reading, max_bytes, may_wait=False))

        if request.max_wait_ms <= 0 or any(self._is_urgent(part, result, reading) for part, result in news):
            answer(news)
        else:
            waiting = DelayedOperation(finish, lambda: done(broker_failed()))
            session.wait(waiting, reading, reader, request.max_wait_ms)
        self._reads.check_changed(reading)

    def _news(
        self,
        session: _FetchSession,
        parts: Sequence[_CachedPartition],
        reading: FollowerFetchParams,
        max_bytes: int,
        *,
        may_wait: bool,
    ) -> list[tuple[_CachedPartition, FetchResultPartition]]:
        """Return those of these partitions that have something new, with their results; with `may_wait` a high
        watermark alone may be left out.
        """
        news: list[tuple[_CachedPartition, FetchResultPartition]] = []
        left, read, restless = max_bytes, self._reads.read_one, session.restless
        for part in parts:
            if part.is_quiet(reading):
                restless.pop(part.place, None)
                continue
            place = part.place
            restless[place] = part
            if may_wait and part.note_caught_up(reading):
                continue
            if not part.has_news(reading) and part.is_unchanged():
                assert part.progress is not None
                part.progress.seen(reading.now_ms)
                continue
            result = read(part.entry, left, reading, first=left == max_bytes)
            size = size_of(result.records)
            if size:
                left = max(0, left - size)
                for each in (session.partitions, restless):
                    each[place] = each.pop(place)  # the others come before it next time
            part.update(self._reads.partition_of(part.entry), session.replica)
            if self._has_changed(part, result):
                news.append((part, result))
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
