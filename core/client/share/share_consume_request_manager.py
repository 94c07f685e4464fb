"""Fetches and acknowledgements of a share consumer (KIP-932; Kafka: `ShareConsumeRequestManager`).

A `ShareInFlightBatch` has the records of one partition that one fetch has acquired.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from ....ports.broker_api.share_groups import (
    AcknowledgeType,
    AcquiredRecords,
    ShareAcknowledge,
    ShareAcknowledgeResult,
    ShareFetchResult,
    ShareFetchResultPartition,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define
from ...message.batch_header import BatchHeader, is_crc_valid
from ...message.batch_reader import decode_batch, whole_batches
from ...message.codec import Codecs
from ...message.corrupt_record import CorruptRecord, is_damage
from ...message.message import ShareMessage
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import topic_error
from .acknowledgements import PartitionAcknowledgements, TopicIdPartition
from .share_session_handler import ShareFetchSettings, ShareSessionHandler

if TYPE_CHECKING:
    from .share_session_handler import ShareSessionHandler


_OFFSET_OF = attrgetter("offset")


class ShareInFlightBatch:
    """Record batches with acquired records among them. One thread reads it."""

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        session: "ShareSessionHandler",
        records: bytes,
        acquired: Sequence[AcquiredRecords],
        *,
        codecs: Codecs,
        lock_until_ms: float,
        check_crc: bool = True,
    ) -> None:
        self.tp = tp
        self.tip = (topic_id, tp.partition)
        self.session = session
        """The share session that has acquired the records: only there can they be acknowledged."""
        self.acquired = acquired
        self.lock_until_ms = lock_until_ms
        """The time at which the leader releases what is not acknowledged by then."""
        self.has_lapsed = False
        """True when the locks are gone, so that the rest of these records must not be handed out."""
        self.messages: list[ShareMessage] = []
        """The messages that were decoded so far."""
        self.handed_out = 0
        """The number of messages that the user has got. Its thread alone changes it."""
        self.processed = 0
        """The number of messages that the user has finished with. Its thread alone changes it."""
        self.accepted = 0
        """The number of messages that are accepted, in implicit mode. Changed under the lock."""
        self.unusable: deque[tuple[int, int]] = deque()
        """(offset, acknowledge type) of records that the user does not get: gaps, and what cannot be decoded."""
        self.size = len(records)
        self._records = records
        self._codecs = codecs
        self._check_crc = check_crc
        self._seen = acquired[0].first_offset if acquired else 0
        self._read_to = 0
        """Bytes of the record batches that were read."""
        self._chunks = self._read()

    @property
    def count(self) -> int:
        """The number of acquired records."""
        return sum(each.last_offset - each.first_offset + 1 for each in self.acquired)

    def decode_more(self) -> bool:
        """Add the acquired messages of the next record batch to `messages`; return False if there is none.

        Raises `CorruptRecord`, and rejects the records of that batch; `ApiError` for a codec that is missing, and
        releases them. The next call continues with the batch after it.
        """
        try:
            found = next(self._chunks, None)
        except ApiError:
            self._chunks = self._read()
            raise
        self.messages += found or ()
        return found is not None

    def take_finished(self) -> list[int]:
        """Return the offsets of the messages with which the user has finished since the last call. Lock held."""
        start, self.accepted = self.accepted, max(self.accepted, self.processed)
        return [message.offset for message in self.messages[start : self.accepted]]

    def _read(self) -> Iterator[list[ShareMessage]]:
        for position, header in whole_batches(self._records):
            if position < self._read_to:
                continue
            self._read_to = position + header.size
            if header.next_offset <= self._seen:
                self._verify_header(position, header, ())
                continue
            ranges = self._acquired_within(header)
            self._skip_to(max(self._seen, header.base_offset))
            self._seen = header.next_offset
            if not ranges:
                continue
            if header.control:
                self._verify_header(position, header, ranges)
                self._reject(ranges, AcknowledgeType.GAP)
                continue
            messages = self._decode(position, header, ranges)
            found = self._acquired_of(messages, ranges[0])
            for acquired in ranges[1:]:
                found += self._acquired_of(messages, acquired)
            if found:
                yield found
        if self.acquired:
            self._skip_to(self.acquired[-1].last_offset + 1)

    def _verify_header(self, position: int, header: BatchHeader, ranges: Sequence[AcquiredRecords]) -> None:
        """Verify the header of a batch whose records are not handed out: damage may have made it a control batch, or
        one that ends before. Raises `CorruptRecord`."""
        if self._check_crc and not is_crc_valid(self._records, header, position):
            self._reject(ranges, AcknowledgeType.REJECT)
            text = f"the CRC-32C of the batch at offset {header.base_offset} does not match its content"
            raise CorruptRecord(*self.tp, ranges[0].first_offset if ranges else self._seen, text)

    def _decode(self, position: int, header: BatchHeader, ranges: Sequence[AcquiredRecords]) -> list[ShareMessage]:
        """Return all messages of the batch, with the delivery count of the first range."""
        try:
            messages = decode_batch(
                memoryview(self._records)[position : position + header.size],
                self._codecs,
                topic=self.tp.topic,
                partition=self.tp.partition,
                check_crc=self._check_crc,
                header=header,
                delivery_count=ranges[0].delivery_count,
            )
            return cast("list[ShareMessage]", messages)
        except ApiError as error:
            damaged = is_damage(error)
            self._reject(ranges, AcknowledgeType.REJECT if damaged else AcknowledgeType.RELEASE)
            if damaged:
                raise CorruptRecord(*self.tp, ranges[0].first_offset, error.message) from error
            raise

    def _acquired_within(self, header: BatchHeader) -> list[AcquiredRecords]:
        """Return the acquired ranges, cut to the offsets of the batch."""
        first, last = header.base_offset, header.last_offset
        return [
            AcquiredRecords(max(first, each.first_offset), min(last, each.last_offset), each.delivery_count)
            for each in self.acquired
            if each.first_offset <= last and each.last_offset >= first
        ]

    def _acquired_of(self, messages: list[ShareMessage], acquired: AcquiredRecords) -> list[ShareMessage]:
        first, last, count = acquired.first_offset, acquired.last_offset, acquired.delivery_count
        if not messages or messages[0].offset < first or messages[-1].offset > last:
            start = bisect_left(messages, first, key=_OFFSET_OF)
            messages = messages[start : bisect_left(messages, last + 1, key=_OFFSET_OF)]
        if len(messages) < last - first + 1:
            present = {each.offset for each in messages}
            self.unusable.extend(
                (offset, AcknowledgeType.GAP) for offset in range(first, last + 1) if offset not in present
            )
        if not messages or messages[0].delivery_count == count:
            return messages
        return [each._replace(delivery_count=count) for each in messages]

    def _skip_to(self, offset: int) -> None:
        """Acknowledge the acquired offsets before `offset`, for which there is no batch, as gaps."""
        if self._seen < offset:
            for each in self.acquired:
                last = min(each.last_offset, offset - 1)
                self._reject([AcquiredRecords(max(self._seen, each.first_offset), last, 0)], AcknowledgeType.GAP)
            self._seen = offset

    def _reject(self, ranges: Sequence[AcquiredRecords], kind: int) -> None:
        self.unusable.extend(
            (offset, kind) for each in ranges for offset in range(each.first_offset, each.last_offset + 1)
        )


ACKNOWLEDGE_WITHIN_MS = 1000.0
"""The longest time that an acknowledgement waits for a fetch that could carry it. Kafka's consumer sends it with its
next poll, however late that is; then the locks of what a slow user has finished may lapse."""
ACKNOWLEDGE_RETRIES = 5

CommitResults = Mapping[TopicPartition, BarnabasError | None]
"""Partition → None, or the error of its acknowledgements."""


@define
class ShareConsumeMetrics:
    """Counters of a share consumer; latencies in ms."""

    fetches: int = 0
    fetch_latency_ms: float = 0.0
    fetch_latency_max_ms: float = 0.0
    throttle_ms: float = 0.0
    fetched_bytes: int = 0
    fetched_records: int = 0
    acknowledgements: int = 0
    acknowledgement_errors: int = 0


class ShareConsumeRequestManager:
    """Acquires records of the assigned partitions while the user waits for some, and acknowledges them.

    Used under one lock. Each leader has one share session, and at most one request in flight. A fetch takes the
    acknowledgements along that are waiting; without a fetch they are sent by a request of their own: renewals and
    commits at once, others within `ACKNOWLEDGE_WITHIN_MS`.
    """

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        settings: ShareFetchSettings,
        codecs: Codecs,
        member_id: str,
        notify: Callable[[], None],
    ) -> None:
        """`notify` is called when there is something for the user's thread, also in `poll`."""
        self._view = view
        self._entropy = entropy
        self._settings = settings
        self._codecs = codecs
        self._member_id = member_id
        self._notify = notify
        self.assigned: dict[TopicIdPartition, TopicPartition] = {}
        self.wants = False
        """True while the user waits for records."""
        self.ready: deque[ShareInFlightBatch] = deque()
        """Batches that the user has not begun to read."""
        self.reading: list[ShareInFlightBatch] = []
        """Batches that the user reads now."""
        self.failures: deque[BarnabasError] = deque()
        """Errors for the user, each to be raised once."""
        self.results: deque[tuple[TopicPartition, frozenset[int], BarnabasError | None]] = deque()
        """The results of acknowledgements, for the user's callback."""
        self.acquisition_lock_timeout_ms: int | None = None
        self.metrics = ShareConsumeMetrics()
        self._sessions: dict[int, ShareSessionHandler] = {}
        self._failed: dict[TopicIdPartition, tuple[int, float]] = {}
        """Partition → the number of its errors in a row, and the time before which it is not fetched."""
        self._lost_sessions = 0
        self._finish: Callable[[], None] | None = None

    # --- called by the user's thread

    def assign(self, partitions: Mapping[TopicIdPartition, TopicPartition]) -> None:
        """Fetch from these partitions, and no others. What was acquired of others stays with the user."""
        self.assigned = dict(partitions)
        self._failed = {tip: each for tip, each in self._failed.items() if tip in partitions}
        self._view.add_topics(sorted({tp.topic for tp in partitions.values()}))

    def next_batch(self, now_ms: float) -> ShareInFlightBatch | None:
        """Return the next batch with locks that are still held, or None if there is none."""
        while self.ready:
            batch = self.ready.popleft()
            if not batch.has_lapsed and now_ms < batch.lock_until_ms:
                self.reading.append(batch)
                return batch
        return None

    def finish_batch(self, batch: ShareInFlightBatch, now_ms: float) -> None:
        """Note that the user has read the whole batch."""
        self._collect(batch, now_ms)
        if batch in self.reading:
            self.reading.remove(batch)

    def acknowledge(self, batch: ShareInFlightBatch, offsets: Iterable[int], kind: int, now_ms: float) -> None:
        """Acknowledge records of a batch; the result comes in `results`."""
        session, tip = batch.session, batch.tip
        if session.lost is not None:
            lost = PartitionAcknowledgements(batch.tp)
            lost.add(offsets, kind)
            self._complete(lost, session.lost)
            return
        pending = session.pending.get(tip)
        if pending is None:
            pending = session.pending[tip] = PartitionAcknowledgements(batch.tp, since_ms=now_ms)
        pending.add(offsets, kind)
        session.flush = session.flush or kind == AcknowledgeType.RENEW

    def commit(self, done: Callable[[CommitResults], None], now_ms: float) -> None:
        """Send all acknowledgements at once; `done` is called when all have their results."""
        self.collect(now_ms)
        waiting = [each for session in self._sessions.values() for each in session.acknowledgements]
        results: dict[TopicPartition, BarnabasError | None] = {}
        for session in self._sessions.values():
            session.flush = session.flush or bool(session.pending)

        def completed(acknowledgements: PartitionAcknowledgements, error: BarnabasError | None) -> None:
            waiting.remove(acknowledgements)
            if acknowledgements.offsets:
                results[acknowledgements.tp] = error or results.get(acknowledgements.tp)
            if not waiting:
                done(results)

        for each in list(waiting):
            each.listeners.append(completed)
        if not waiting:
            done(results)

    def finish(self, done: Callable[[], None], now_ms: float) -> None:
        """Send all acknowledgements, and close the sessions, which releases all other records."""
        self.collect(now_ms)
        self.ready.clear()
        self.reading.clear()
        self.wants = False
        self._finish = done

    def fail_all(self, error: BarnabasError) -> None:
        """Give up all acknowledgements without a result."""
        for session in list(self._sessions.values()):
            self._lose(session, error)

    # --- called by the driver

    def poll(self, now_ms: float) -> Poll:
        wake = self.collect(now_ms)
        if self._finish is not None and not self._sessions:
            done, self._finish = self._finish, None
            done()
        wanted: dict[int, list[TopicIdPartition]] = {}
        if self._finish is None and self.wants and not self.ready:
            wake = min(wake, self._leaders(now_ms, wanted))
        sends: list[Send] = []
        for node in {*self._sessions, *wanted}:
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = ShareSessionHandler(node, self._member_id, self._settings)
            if session.in_flight:
                continue
            if now_ms < session.not_before_ms and self._finish is None:
                wake = min(wake, session.not_before_ms)
                continue
            send, session_wake_ms = self._next_request(session, wanted.get(node, ()), now_ms)
            wake = min(wake, session_wake_ms)
            if send is not None:
                sends.append(send)
        if self._finish is not None and not self._sessions:
            wake = now_ms
        return Poll(sends, wake)

    def collect(self, now_ms: float) -> float:
        """Take the acknowledgements of the user's thread, and note which locks are gone; return when to look again."""
        wake = NEVER
        for batch in [*self.reading, *self.ready]:
            if now_ms >= batch.lock_until_ms:
                batch.has_lapsed = True
            else:
                wake = min(wake, batch.lock_until_ms)
        for batch in self.reading:
            self._collect(batch, now_ms)
            wake = min(wake, now_ms + ACKNOWLEDGE_WITHIN_MS)
        return wake

    def _collect(self, batch: ShareInFlightBatch, now_ms: float) -> None:
        if self._settings.implicit and batch.processed > batch.accepted:
            self.acknowledge(batch, batch.take_finished(), AcknowledgeType.ACCEPT, now_ms)
        while batch.unusable:
            offset, kind = batch.unusable.popleft()
            self.acknowledge(batch, (offset,), kind, now_ms)

    def _leaders(self, now_ms: float, wanted: dict[int, list[TopicIdPartition]]) -> float:
        """Add the assigned partitions to fetch from by their leaders; return when the next one may be fetched."""
        wake = NEVER
        for tip, tp in self.assigned.items():
            _, not_before_ms = self._failed.get(tip, (0, 0.0))
            if now_ms < not_before_ms:
                wake = min(wake, not_before_ms)
                continue
            node = self._view.leader(*tp)
            if node is not None:
                wanted.setdefault(node, []).append(tip)
                continue
            error = self._view.topic_errors.get(tp.topic)
            if error is not None and not error.retriable:
                self._fail(tip, topic_error(error, tp.topic), now_ms)
            self._view.request_refresh()
        return wake

    def _next_request(
        self, session: ShareSessionHandler, wanted: Iterable[TopicIdPartition], now_ms: float
    ) -> tuple[Send | None, float]:
        """Return the request that this session needs now, or when it may need one."""
        if self._finish is not None:
            if session.is_open:
                return self._acknowledge_send(session, session.close_request(), closes=True), NEVER
            self._lose(session, BarnabasError("the share session is closed"))
            return None, NEVER
        wanted = list(wanted)
        if session.pending:
            due_ms = min(each.since_ms for each in session.pending.values()) + ACKNOWLEDGE_WITHIN_MS
            fits = bool(wanted) and session.pending.keys() <= set(wanted)
            fits = fits and not any(each.has_renewals for each in session.pending.values())
            if not fits and (session.flush or bool(wanted) or now_ms >= due_ms):
                return self._acknowledge_send(session, session.acknowledge_request()), NEVER
            if not wanted:
                return None, due_ms
        if not wanted:
            return None, NEVER
        request = session.fetch_request(wanted)
        self.metrics.fetches += 1
        return Send(session.node, request, partial(self._on_fetched, session, now_ms)), NEVER

    def _acknowledge_send(
        self, session: ShareSessionHandler, request: ShareAcknowledge, *, closes: bool = False
    ) -> Send:
        return Send(session.node, request, partial(self._on_acknowledged, session, closes))

    # --- responses

    def _on_fetched(self, session: ShareSessionHandler, sent_ms: float, result: Any, now_ms: float) -> None:
        session.in_flight = False
        if not self._is_successful(session, result, ShareFetchResult, now_ms):
            return
        metrics = self.metrics
        metrics.fetch_latency_ms += now_ms - sent_ms
        metrics.fetch_latency_max_ms = max(metrics.fetch_latency_max_ms, now_ms - sent_ms)
        metrics.throttle_ms += result.throttle_ms
        session.answered()
        self._lost_sessions = 0
        if result.acquisition_lock_timeout_ms > 0:
            self.acquisition_lock_timeout_ms = result.acquisition_lock_timeout_ms
        lock_until_ms = sent_ms + result.acquisition_lock_timeout_ms if result.acquisition_lock_timeout_ms else NEVER
        sent, session.sent = session.sent, {}
        for each in result.partitions:
            tip = (each.topic_id, each.partition)
            acknowledgements = sent.pop(tip, None)
            if acknowledgements is not None:
                message = each.acknowledge_error_message
                self._acknowledged(session, tip, acknowledgements, each.acknowledge_error, message, now_ms)
            tp = self.assigned.get(tip)
            if tp is not None:
                self._view.update_leader(tp, each.current_leader, result.nodes)
            tp = tp or (None if acknowledgements is None else acknowledgements.tp)
            if tp is not None:
                self._add_acquired(session, tp, each, lock_until_ms, now_ms)
        self._without_result(sent)
        if self.ready:
            self._notify()

    def _add_acquired(
        self,
        session: ShareSessionHandler,
        tp: TopicPartition,
        found: ShareFetchResultPartition,
        lock_until_ms: float,
        now_ms: float,
    ) -> None:
        tip = (found.topic_id, found.partition)
        if found.error is not ErrorCode.NONE:
            text = f"share fetch of {tp}" + (f": {found.error_message}" if found.error_message else "")
            self._fail(tip, ApiError(found.error, text), now_ms)
            return
        self._failed.pop(tip, None)
        if found.acquired_records:
            # The broker in this process answers with a region of a file, others with bytes.
            records = found.records
            content = bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
            batch = ShareInFlightBatch(
                tp,
                found.topic_id,
                session,
                content,
                found.acquired_records,
                codecs=self._codecs,
                lock_until_ms=lock_until_ms,
                check_crc=self._settings.check_crcs,
            )
            self.metrics.fetched_bytes += batch.size
            self.metrics.fetched_records += batch.count
            self.ready.append(batch)

    def _on_acknowledged(self, session: ShareSessionHandler, closes: bool, result: Any, now_ms: float) -> None:
        session.in_flight = False
        if not self._is_successful(session, result, ShareAcknowledgeResult, now_ms):
            return
        session.answered()
        sent, session.sent = session.sent, {}
        for each in result.partitions:
            acknowledgements = sent.pop((each.topic_id, each.partition), None)
            if acknowledgements is None:
                continue
            self._view.update_leader(acknowledgements.tp, each.current_leader, result.nodes)
            tip = (each.topic_id, each.partition)
            self._acknowledged(session, tip, acknowledgements, each.error, each.error_message, now_ms)
        self._without_result(sent)
        if closes:
            self._lose(session, BarnabasError("the share session is closed"))

    def _without_result(self, rest: Mapping[TopicIdPartition, PartitionAcknowledgements]) -> None:
        for acknowledgements in rest.values():
            text = f"the leader of {acknowledgements.tp} returned no result for acknowledgements"
            self._complete(acknowledgements, ApiError(ErrorCode.INVALID_RECORD_STATE, text))

    def _is_successful(self, session: ShareSessionHandler, result: Any, kind: type, now_ms: float) -> bool:
        """Return True for a response without an error; otherwise end the session."""
        if isinstance(result, kind) and result.error is ErrorCode.NONE:  # type: ignore[attr-defined]  # both have it
            return session.lost is None
        error = result
        if not isinstance(result, BarnabasError):
            error = ApiError(result.error, result.error_message or "share session")
        self._lose(session, error)
        if isinstance(error, ApiError) and not error.retriable:
            self._surface(_explained(error, self._settings.group_id))
        self._lost_sessions += 1
        self._view.request_refresh()
        if self._finish is None:
            fresh = ShareSessionHandler(session.node, self._member_id, self._settings)
            fresh.not_before_ms = now_ms + self._backoff_ms(self._lost_sessions)
            self._sessions[session.node] = fresh
        return False

    def _acknowledged(
        self,
        session: ShareSessionHandler,
        tip: TopicIdPartition,
        sent: PartitionAcknowledgements,
        code: ErrorCode,
        message: str | None,
        now_ms: float,
    ) -> None:
        if code is ErrorCode.NONE:
            self._complete(sent, None)
            return
        if code.refresh_metadata:
            self._view.request_refresh()
        elif code.retriable and sent.failures < ACKNOWLEDGE_RETRIES and self._finish is None:
            sent.failures += 1
            later = session.pending.setdefault(tip, sent)
            if later is not sent:
                later.prepend(sent.types)
                later.listeners += [partial(_on_behalf, listener, sent) for listener in sent.listeners]
                later.failures = sent.failures
            session.not_before_ms = now_ms + self._backoff_ms(sent.failures)
            session.flush = True
            return
        self._complete(sent, _refusal(code, message, sent.tp))

    # --- implementation

    def _complete(self, acknowledgements: PartitionAcknowledgements, error: BarnabasError | None) -> None:
        offsets = acknowledgements.offsets
        self.metrics.acknowledgements += len(acknowledgements.types)
        if error is not None:
            self.metrics.acknowledgement_errors += len(acknowledgements.types)
        if offsets:
            self.results.append((acknowledgements.tp, offsets, error))
            self._notify()
        for listener in acknowledgements.listeners:
            listener(acknowledgements, error)

    def _lose(self, session: ShareSessionHandler, error: BarnabasError) -> None:
        """End a session: its locks are gone, and with them the records that the user has not read."""
        text = f"the share session with broker {session.node} ended, and its locks with it: {error}"
        session.lost = ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, text)
        if self._sessions.get(session.node) is session:
            del self._sessions[session.node]
        self.ready = deque(batch for batch in self.ready if batch.session is not session)
        for batch in self.reading:
            batch.has_lapsed = batch.has_lapsed or batch.session is session
        for each in session.acknowledgements:
            self._complete(each, session.lost)
        session.pending, session.sent = {}, {}

    def _fail(self, tip: TopicIdPartition, error: ApiError, now_ms: float) -> None:
        if error.code.refresh_metadata:
            self._view.request_refresh()
        count, _ = self._failed.get(tip, (0, 0.0))
        self._failed[tip] = (count + 1, now_ms + self._backoff_ms(count + 1))
        if not error.retriable:
            self._surface(error)

    def _surface(self, error: BarnabasError) -> None:
        if not any(str(each) == str(error) for each in self.failures):
            self.failures.append(error)
        self._notify()

    def _backoff_ms(self, failures: int) -> float:
        settings = self._settings
        return backoff_ms(failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction())


def _on_behalf(
    listener: Callable[[PartitionAcknowledgements, BarnabasError | None], None],
    sent: PartitionAcknowledgements,
    _merged: PartitionAcknowledgements,
    error: BarnabasError | None,
) -> None:
    listener(sent, error)


def _refusal(code: ErrorCode, message: str | None, tp: TopicPartition) -> ApiError:
    texts = {
        ErrorCode.INVALID_RECORD_STATE: "the acquisition locks of the records have timed out (see "
        "share.record.lock.duration.ms of the group, and acknowledge with renew); they are delivered again",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker is the leader now and delivers the records again",
        ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted",
    }
    text = texts.get(code, message or code.name)
    return ApiError(code, f"acknowledgements for {tp}: {text}")


def _explained(error: ApiError, group: str) -> ApiError:
    if error.code is ErrorCode.UNSUPPORTED_VERSION:
        text = (
            "the broker does not offer this request of share groups (KIP-932): Apache Kafka has it from 4.2 on, "
            "renewals and share.acquire.mode=record_limit included"
        )
        return ApiError(error.code, f"{text}: {error.message}")
    if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return ApiError(error.code, f"group {group}: the user may not read it (ACL: READ of GROUP)")
    return error
