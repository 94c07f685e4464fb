"""A share group whose brokers are a script of a `PlainCluster`: with the domain's own share partitions and sessions."""

from collections.abc import Callable
from typing import Any

import attrs
from support.plain_cluster import PlainCluster, id_of

from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.share.share_partition import LogBatch, SharePartition, SharePartitionSettings
from barnabas.core.share.share_session import ShareSession, ShareSessionCache
from barnabas.ports.broker_api.consumer_groups import TopicIdPartitions
from barnabas.ports.broker_api.groups import Coordinator, FindCoordinator, FindCoordinatorResult
from barnabas.ports.broker_api.share_groups import (
    FINAL_SHARE_SESSION_EPOCH,
    ShareAcknowledge,
    ShareAcknowledgeOutcome,
    ShareAcknowledgeResult,
    ShareFetch,
    ShareFetchResult,
    ShareFetchResultPartition,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

INTERVAL_MS = 5000


class ShareGroupScript:
    """Gives every member every partition of its topics, at its second heartbeat. Each broker has its sessions."""

    def __init__(
        self, cluster: PlainCluster, now_ms: Callable[[], float], *, lock_ms: int = 30_000, deliveries: int = 5
    ) -> None:
        self.cluster = cluster
        self.settings = SharePartitionSettings(lock_duration_ms=lock_ms, delivery_count_limit=deliveries)
        self.partitions: dict[TopicPartition, SharePartition] = {}
        self.sessions: dict[int, ShareSessionCache] = {}
        self.epochs: dict[str, int] = {}
        self.interval_ms = INTERVAL_MS
        self.errors: list[ErrorCode] = []
        """The errors of the next heartbeats."""
        self.acknowledge_errors: list[ErrorCode] = []
        """The errors of the next partitions with acknowledgements."""
        self.fetch_errors: dict[TopicPartition, ErrorCode] = {}
        self._now_ms = now_ms
        self._waiting: dict[int, tuple[ShareFetch, ShareSession]] = {}
        """The sessions of fetches: `ManualDriver` repeats one that found nothing."""
        cluster.script(self._answer)

    # --- for tests

    def fill(self, tp: TopicPartition, *batches: int) -> list[bytes]:
        """Append batches of these numbers of messages; return their values, which are their offsets."""
        values = []
        for count in batches:
            base = self.cluster.end(tp)
            values += [b"%d" % number for number in range(base, base + count)]
            self.cluster.append(tp, encode_batch([Message(value) for value in values[-count:]], now_ms=1000))
        return values

    def state(self, tp: TopicPartition) -> SharePartition:
        if tp not in self.partitions:
            self.partitions[tp] = SharePartition(0, settings=self.settings)
        return self.partitions[tp]

    def all_done(self, tp: TopicPartition) -> bool:
        """Return True if every record of the log is acknowledged or archived."""
        return self.state(tp).start_offset == self.cluster.end(tp)

    def drop_sessions(self, broker: int) -> None:
        """End the share sessions, as if the broker had lost its connections."""
        sessions = self.sessions.get(broker)
        if sessions is not None:
            for session in sessions.remove_connection(0):
                self._release(broker, session)

    def move(self, tp: TopicPartition, broker: int) -> None:
        """Another broker leads it: locks are gone, delivery counts are not."""
        state = self.state(tp)
        for member in self.epochs:
            state.release_acquired(member)
        self.cluster.leaders[tp] = broker
        self.cluster.epochs[tp] = self.cluster.epochs.get(tp, 0) + 1

    # --- the brokers

    def _answer(self, broker: int, request: Any) -> Any:
        if isinstance(request, FindCoordinator):
            found = [Coordinator(key=key, node_id=1, host="broker-1", port=9092) for key in request.keys]
            return FindCoordinatorResult(coordinators=found)
        if isinstance(request, ShareGroupHeartbeat):
            return self._heartbeat(request)
        try:
            if isinstance(request, ShareFetch):
                return self._fetch(broker, request)
            if isinstance(request, ShareAcknowledge):
                return self._acknowledge(broker, request)
        except ApiError as error:
            return request.failed(error)
        return None

    def _heartbeat(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        if self.errors:
            return ShareGroupHeartbeatResult(error=self.errors.pop(0), error_message="it is so")
        if request.member_epoch < 0:
            self.epochs.pop(request.member_id, None)
            return ShareGroupHeartbeatResult(member_id=request.member_id, member_epoch=-1)
        known = request.member_id in self.epochs
        if request.member_epoch and not known:
            return ShareGroupHeartbeatResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
        self.epochs.setdefault(request.member_id, 2)
        topics = self.cluster.topics
        return ShareGroupHeartbeatResult(
            member_id=request.member_id,
            member_epoch=2,
            heartbeat_interval_ms=self.interval_ms,
            assignment=[TopicIdPartitions(id_of(name), list(range(count))) for name, count in topics.items()]
            if request.member_epoch
            else [],
        )

    def _sessions_of(self, broker: int) -> ShareSessionCache:
        return self.sessions.setdefault(broker, ShareSessionCache(lambda: 100))

    def _fetch(self, broker: int, request: ShareFetch) -> ShareFetchResult:
        acknowledged = [each for each in request.partitions if each.acknowledgement_batches]
        _, session = self._waiting.get(id(request), (None, None))
        if session is not None and session.is_closed:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, "it was closed while the fetch waited")
        if session is None:
            epoch, first = request.share_session_epoch, bool(acknowledged)
            sessions = self._sessions_of(broker)
            session = sessions.session_for_fetch(
                request.group_id, request.member_id, epoch, 0, has_acknowledgements=first
            )
            self._waiting[id(request)] = request, session
        named = [attrs.evolve(each, topic=self._name(each.topic_id)) for each in request.partitions]
        session.update(named, request.forgotten)
        outcomes = {
            (each.topic_id, each.partition): self._apply(broker, session, each, each.acknowledgement_batches)
            for each in acknowledged
        }
        found = []
        left = request.max_records
        for (topic_id, number), topic in session.in_turn():
            tp = TopicPartition(topic, number)
            result = self._acquire(broker, session.member_id, tp, request, left)
            left -= sum(each.last_offset - each.first_offset + 1 for each in result.acquired_records)
            code = outcomes.pop((topic_id, number), None)
            if code is not None or result.acquired_records or result.error:
                found.append(
                    ShareFetchResultPartition(
                        topic_id,
                        number,
                        result.error,
                        acknowledge_error=code or ErrorCode.NONE,
                        records=result.records,
                        acquired_records=result.acquired_records,
                    )
                )
        found += [ShareFetchResultPartition(*key, acknowledge_error=code) for key, code in outcomes.items()]
        return ShareFetchResult(partitions=found, acquisition_lock_timeout_ms=self.settings.lock_duration_ms)

    def _acquire(
        self, broker: int, member: str, tp: TopicPartition, request: ShareFetch, left: int
    ) -> ShareFetchResultPartition:
        id_and_number = id_of(tp.topic), tp.partition
        error = self.fetch_errors.get(tp) or self.cluster._refusal(broker, tp)
        if error:
            return ShareFetchResultPartition(*id_and_number, error)
        state = self.state(tp)
        state.release_lapsed(self._now_ms())
        start = state.next_fetch_offset()
        if start is None or left <= 0:
            return ShareFetchResultPartition(*id_and_number)
        records, batches = b"", []
        for batch in self.cluster.logs.get(tp, ()):
            header = parse_header(batch)
            if header.next_offset > start:
                records += batch
                batches.append(LogBatch(header.base_offset, header.last_offset, False, len(records)))
        acquired = state.acquire(
            member,
            start,
            batches,
            max_records=left,
            batch_size=request.batch_size,
            is_strict=request.share_acquire_mode == 1,
            now_ms=self._now_ms(),
        )
        return ShareFetchResultPartition(
            *id_and_number, records=records[: acquired.end_position], acquired_records=acquired.ranges
        )

    def _acknowledge(self, broker: int, request: ShareAcknowledge) -> ShareAcknowledgeResult:
        epoch = request.share_session_epoch
        session = self._sessions_of(broker).session_for_acknowledge(request.group_id, request.member_id, epoch)
        outcomes = [
            ShareAcknowledgeOutcome(
                each.topic_id, each.partition, self._apply(broker, session, each, each.acknowledgement_batches)
            )
            for each in request.partitions
        ]
        if epoch == FINAL_SHARE_SESSION_EPOCH:
            self._release(broker, session)
        return ShareAcknowledgeResult(partitions=outcomes, acquisition_lock_timeout_ms=self.settings.lock_duration_ms)

    def _apply(self, broker: int, session: ShareSession, place: Any, batches: Any) -> ErrorCode:
        tp = TopicPartition(self._name(place.topic_id), place.partition)
        if self.acknowledge_errors and (error := self.acknowledge_errors.pop(0)):
            return error
        if refusal := self.cluster._refusal(broker, tp):
            return refusal
        state = self.state(tp)
        try:
            state.acknowledge(session.member_id, batches, allows_renew=True, now_ms=self._now_ms())
        except ApiError as error:
            return error.code
        while state.take_write() is not None:
            state.complete_write(is_stored=True)
        return ErrorCode.NONE

    def _release(self, broker: int, session: ShareSession) -> None:
        for tp, state in self.partitions.items():
            if self.cluster.leader(tp) == broker:
                state.release_acquired(session.member_id)

    def _name(self, topic_id: bytes) -> str:
        return topic_id.rstrip(b"\0").decode()
