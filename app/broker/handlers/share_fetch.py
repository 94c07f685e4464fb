"""ShareFetch and ShareAcknowledge: members of share groups acquire and acknowledge records (KIP-932, facts D3);
DescribeSharePartitions.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve

from ....core.cluster.features import SHARE_VERSION
from ....core.coordinator.group.group_config import GroupConfigManager
from ....core.replica.partition.fetch_isolation import FetchIsolation
from ....core.replica.partition.partition import Partition
from ....core.replica.purgatory import DelayedOperation
from ....core.share.persister import Persister, SharePartitionKey
from ....core.share.share_partition import NO_DEADLINE, RecordState, SharePartition
from ....core.share.share_partition_manager import LedSharePartition, SendLetters, SharePartitionManager
from ....core.share.share_session import SessionPartition, ShareSession, ShareSessionCache
from ....core.traffic.steps import Steps
from ....ports.broker_api.acls import ResourceType
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.fetch import CurrentLeader
from ....ports.broker_api.operations import Operation
from ....ports.broker_api.share_groups import (
    FINAL_SHARE_SESSION_EPOCH,
    INITIAL_SHARE_SESSION_EPOCH,
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledge,
    ShareAcknowledgeOutcome,
    ShareAcknowledgePartition,
    ShareAcknowledgeResult,
    ShareAcquireMode,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchResult,
    ShareFetchResultPartition,
)
from ....ports.broker_api.share_partitions import (
    DeliveredRecords,
    DescribeSharePartitions,
    DescribeSharePartitionsResult,
    HeldRecords,
    SharePartitionDescription,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.scheduler import Outcome
from ....ports.storage import StorageError, size_of
from ....ports.types import TopicPartition
from ..state.authorization import Authorization
from ..state.broker_state import BrokerState
from .leader_hints import Leaders
from .log_offsets import look_up

_DEAD_LETTERS = 2
"""The level of share.version with dead letters (KIP-1191)."""

NamedT = TypeVar("NamedT", ShareFetchPartition, ShareAcknowledgePartition)
Acknowledgements = dict[SessionPartition, ApiError | None]
"""The outcome of the acknowledgements for each partition that had some; None: they are stored."""


class ShareFetchService:
    """Serves the share partitions of the partitions that this broker leads. Owner thread only.

    `authorization` None: every caller may do everything.
    """

    def __init__(
        self,
        state: BrokerState,
        persister: Persister,
        configs: GroupConfigManager,
        authorization: Authorization | None,
        max_sessions: Callable[[], int],
        send_letters: SendLetters,
    ) -> None:
        self._state = state
        self._configs = configs
        self._authorization = authorization
        self._leaders = Leaders(state)
        self._purgatory = state.replicas.purgatory
        self._max_bytes = state.settings.static.fetch_max_bytes
        self.sessions = ShareSessionCache(max_sessions)
        self.share_partitions = SharePartitionManager(
            persister=persister,
            purgatory=self._purgatory,
            scheduler=state.scheduler,
            clock=state.clock,
            config_of=configs.get,
            find_offset=self._find_offset,
            metrics=state.metrics,
            report=state.report,
            send_letters=lambda: send_letters if state.image.features.level(SHARE_VERSION) >= _DEAD_LETTERS else None,
        )
        state.replicas.add_leadership_listener(lambda _partition: None, self.share_partitions.on_leadership_ended)
        state.add_disconnection_listener(self._disconnected)
        metrics = state.metrics
        metrics.gauge(
            "kafka_server_sharesessioncache_sharesessionscount", "Share sessions.", lambda: len(self.sessions)
        )
        metrics.gauge(
            "kafka_server_sharesessioncache_sharepartitionscount",
            "Partitions in share sessions.",
            lambda: self.sessions.partition_count,
        )
        self._acknowledged = {
            kind: metrics.counter(
                "kafka_server_sharegroupmetrics_recordacknowledgement_total",
                "Records acknowledged in share groups.",
                ack_type=kind.name.lower(),
            )
            for kind in AcknowledgeType
        }

    # --- ShareFetch

    def fetch(self, request: ShareFetch, caller: Caller, reply: Reply[ShareFetchResult]) -> None:
        """Store the acknowledgements of the request, then acquire records, at once or when there are some."""
        refused = self._not_enabled() or _refused_fetch(request)
        if refused is not None:
            reply(refused)
            return
        if any(not each.topic for each in request.partitions):  # of a client in this process, without a wire format
            request = evolve(request, partitions=self._named(request.partitions))
        connection = caller.connection
        if request.share_session_epoch == INITIAL_SHARE_SESSION_EPOCH and not self.sessions.has_group(request.group_id):
            self.share_partitions.read_again(request.group_id)
        try:
            session = self.sessions.session_for_fetch(
                request.group_id,
                request.member_id,
                request.share_session_epoch,
                connection,
                has_acknowledgements=any(each.acknowledgement_batches for each in request.partitions),
            )
        except ApiError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                self._state.scheduler.call_later(request.max_wait_ms, partial(reply, error))
            else:
                reply(error)
            return
        is_final = request.share_session_epoch == FINAL_SHARE_SESSION_EPOCH
        if not is_final:
            session.update(request.partitions, request.forgotten)

        def acknowledged(outcomes: Acknowledgements) -> None:
            fetch = _PendingFetch(self, request, caller, session, outcomes, reply)
            if is_final:
                self._release_all(session)
            if is_final or request.is_renew_ack or request.max_records <= 0 or session.is_closed:
                fetch.answer()
            else:
                fetch.begin()

        self._acknowledge_all(request, caller, request.partitions, acknowledged)

    def _named(self, partitions: Sequence[NamedT]) -> list[NamedT]:
        """Return the partitions with the names of their topics; without one where no topic has the id."""
        return [evolve(each, topic=self._state.topic_name(each.topic_id)) for each in partitions]

    def _not_enabled(self) -> ApiError | None:
        if self._state.image.features.level(SHARE_VERSION) >= 1:
            return None
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, "The share group protocol is not enabled (share.version).")

    # --- ShareAcknowledge

    def acknowledge(self, request: ShareAcknowledge, caller: Caller, reply: Reply[ShareAcknowledgeResult]) -> None:
        """Store the acknowledgements; the final epoch also releases the other records of the member."""
        refused = self._not_enabled()
        if refused is not None:
            reply(refused)
            return
        if any(not each.topic for each in request.partitions):
            request = evolve(request, partitions=self._named(request.partitions))
        try:
            session = self.sessions.session_for_acknowledge(
                request.group_id, request.member_id, request.share_session_epoch
            )
        except ApiError as error:
            reply(error)
            return

        def acknowledged(outcomes: Acknowledgements) -> None:
            if request.share_session_epoch == FINAL_SHARE_SESSION_EPOCH:
                self._release_all(session)
            leaders: list[CurrentLeader] = []
            results = []
            for each in request.partitions:
                error = outcomes.get((each.topic_id, each.partition))
                leader = None if error is None else self._leaders.current_leader(error.code, each.topic, each.partition)
                if leader is not None:
                    leaders.append(leader)
                results.append(
                    ShareAcknowledgeOutcome(
                        each.topic_id,
                        each.partition,
                        ErrorCode.NONE if error is None else error.code,
                        None if error is None else error.message,
                        leader,
                    )
                )
            reply(
                ShareAcknowledgeResult(
                    partitions=results,
                    acquisition_lock_timeout_ms=self.lock_duration_ms(request.group_id),
                    nodes=self.nodes(leaders, caller),
                )
            )

        self._acknowledge_all(request, caller, request.partitions, acknowledged)

    # --- DescribeSharePartitions

    def describe(
        self, request: DescribeSharePartitions, caller: Caller, reply: Reply[DescribeSharePartitionsResult]
    ) -> None:
        """Describe what the group has in flight in the partitions of topics that the caller may describe."""

        def all_of_them() -> Steps[DescribeSharePartitionsResult]:
            now_ms = self._state.clock.monotonic_ms()
            found = []
            for key, led in list(self.share_partitions.share_partitions.items()):
                if key.group_id == request.group_id and led.share is not None:
                    tp = led.partition.topic_partition
                    if self._may_describe(caller, tp.topic):
                        found.append(describe_share_partition(tp, led.share, now_ms))
                yield None
            found.sort(key=lambda each: (each.topic, each.partition))
            return DescribeSharePartitionsResult(partitions=found)

        self._state.answer_in_steps("DescribeSharePartitions", all_of_them(), caller, reply)

    def _may_describe(self, caller: Caller, topic: str) -> bool:
        return self._authorization is None or self._authorization.allows(
            caller, Operation.DESCRIBE, ResourceType.TOPIC, topic, request="DescribeSharePartitions"
        )

    def _acknowledge_all(
        self,
        request: ShareFetch | ShareAcknowledge,
        caller: Caller,
        partitions: Sequence[ShareFetchPartition] | Sequence[ShareAcknowledgePartition],
        then: Callable[[Acknowledgements], None],
    ) -> None:
        """Apply the acknowledgements of each partition, and call `then` with all outcomes when they are stored."""
        outcomes: Acknowledgements = {}
        entries = [each for each in partitions if each.acknowledgement_batches]
        left = len(entries)
        if not left:
            then(outcomes)
            return

        def done(entry: ShareFetchPartition | ShareAcknowledgePartition, error: ApiError | None) -> None:
            nonlocal left
            outcomes[entry.topic_id, entry.partition] = error
            if error is None:
                self._count(entry.acknowledgement_batches)
            left -= 1
            if left == 0:
                then(outcomes)

        config = self._configs.get(request.group_id)
        for entry in entries:
            try:
                partition = self.find_partition(caller, entry.topic_id, entry.topic, entry.partition)
                led = self.share_partitions.known(request.group_id, partition)
                if led is None:
                    text = f"Group {request.group_id[:260]} fetches nothing from {partition.topic_partition} here."
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                if not config.share_renew_acknowledge_enable and _has_renewals(entry.acknowledgement_batches):
                    text = "share.renew.acknowledge.enable of the group is false."
                    raise ApiError(ErrorCode.INVALID_REQUEST, text)
            except ApiError as error:
                done(entry, error)
                continue
            self.share_partitions.acknowledge(
                led,
                request.member_id,
                entry.acknowledgement_batches,
                partial(done, entry),
                allows_renew=request.allows_renew,
            )

    def _count(self, batches: Iterable[AcknowledgementBatch]) -> None:
        for each in batches:
            types, size = each.acknowledge_types, each.last_offset - each.first_offset + 1
            for kind, counter in self._acknowledged.items():
                number = types.count(kind)
                if number:
                    counter.add(size if len(types) == 1 else number)

    # --- what both need

    def find_partition(self, caller: Caller, topic_id: bytes, topic: str, number: int) -> Partition:
        """Return a partition that this broker leads, and that the caller may read. Raises `ApiError`."""
        if not topic:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
        if self._authorization is not None and not self._authorization.allows(
            caller, Operation.READ, ResourceType.TOPIC, topic, request="ShareFetch"
        ):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        partition = self._state.replicas.led(topic, number)
        if partition.topic_id != topic_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{topic}-{number} belongs to another topic of that name.")
        return partition

    def lock_duration_ms(self, group_id: str) -> int:
        return self._configs.get(group_id).share_record_lock_duration_ms

    def current_leader(self, error: ErrorCode, topic: str, partition: int) -> CurrentLeader | None:
        return self._leaders.current_leader(error, topic, partition)

    def nodes(self, leaders: Iterable[CurrentLeader], caller: Caller) -> Sequence[BrokerNode]:
        return self._leaders.nodes(leaders, caller)

    def max_bytes(self, request: ShareFetch, caller: Caller) -> int:
        max_bytes = min(request.max_bytes, self._max_bytes)
        quotas = self._state.quotas
        return quotas.fetch_max_bytes(caller, max_bytes) if quotas.is_enabled else max_bytes

    def wait(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        self._purgatory.watch(operation, keys, timeout_ms)

    def count_bytes(self, topic: str, size: int) -> None:
        self._state.replicas.stats.of(topic).bytes_out.add(size)

    def failed(self, what: str, error: BaseException) -> None:
        self._state.failed(what, error)

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        self._state.replicas.storage_failed(key, error)

    def _release_all(self, session: ShareSession) -> None:
        """Release what the member of a closed session has acquired, also of partitions that it has forgotten."""
        for key, led in list(self.share_partitions.share_partitions.items()):
            if key.group_id == session.group_id:
                self.share_partitions.release_acquired(led, session.member_id)

    def _disconnected(self, connection: int) -> None:
        for session in self.sessions.remove_connection(connection):
            self._release_all(session)

    def _find_offset(
        self,
        partition: Partition,
        timestamp: int,
        isolation: FetchIsolation,
        done: Callable[[int | ApiError], None],
    ) -> None:
        def found(outcome: Outcome[int]) -> None:
            error = outcome.error
            if error is None:
                done(outcome.get())
            elif isinstance(error, ApiError):
                done(error)
            else:
                self._state.failed(f"finding the first offset of a share group in {partition.topic_partition}", error)
                done(broker_failed())

        def steps() -> Steps[int]:
            result = yield from look_up(partition, timestamp, isolation)
            return int(result.offset)

        self._state.steps.run(steps(), found)


def describe_share_partition(tp: TopicPartition, share: SharePartition, now_ms: float) -> SharePartitionDescription:
    """Count the records of a share partition by their states, deliveries and members."""
    by_state = dict.fromkeys(RecordState, 0)
    deliveries: dict[int, int] = {}
    held: dict[str, tuple[int, float]] = {}
    for batch in share.batches:
        if batch.state is RecordState.AVAILABLE and not batch.delivery_count:
            continue  # between two others, never delivered
        by_state[batch.state] += batch.size
        if batch.state in (RecordState.AVAILABLE, RecordState.ACQUIRED):
            deliveries[batch.delivery_count] = deliveries.get(batch.delivery_count, 0) + batch.size
        if batch.state is RecordState.ACQUIRED:
            records, deadline_ms = held.get(batch.member_id, (0, NO_DEADLINE))
            held[batch.member_id] = records + batch.size, min(deadline_ms, batch.deadline_ms)
    return SharePartitionDescription(
        topic=tp.topic,
        partition=tp.partition,
        start_offset=share.start_offset,
        acquired=by_state[RecordState.ACQUIRED],
        available=by_state[RecordState.AVAILABLE],
        acknowledged=by_state[RecordState.ACKNOWLEDGED],
        archived=by_state[RecordState.ARCHIVED] + by_state[RecordState.ARCHIVING],
        deliveries=[DeliveredRecords(count, deliveries[count]) for count in sorted(deliveries)],
        holders=[
            HeldRecords(member_id, records, 0 if deadline_ms == NO_DEADLINE else max(0, int(deadline_ms - now_ms)))
            for member_id, (records, deadline_ms) in sorted(held.items())
        ],
    )


class _PendingFetch:
    """One ShareFetch from its acknowledgements to its answer."""

    def __init__(
        self,
        service: ShareFetchService,
        request: ShareFetch,
        caller: Caller,
        session: ShareSession,
        outcomes: Acknowledgements,
        reply: Reply[ShareFetchResult],
    ) -> None:
        self._service = service
        self._request = request
        self._caller = caller
        self._session = session
        self._outcomes = outcomes
        self._reply = reply
        self._partitions = session.in_turn()
        self._results: dict[SessionPartition, ShareFetchResultPartition] = {}
        self._has_errors = False
        self._has_records = False
        self._is_acquiring = False

    def begin(self) -> None:
        """Acquire records now, or wait for them."""
        request = self._request
        if self.acquire(request.min_bytes) or request.max_wait_ms <= 0 or not self._partitions:
            self.answer()
            return
        keys: dict[Hashable, None] = {}
        for (topic_id, number), topic in self._partitions:
            keys[TopicPartition(topic, number)] = None
            keys[SharePartitionKey(request.group_id, topic_id, number)] = None
        if self._caller.connection:
            keys[self._caller.connection] = None
        self._service.wait(DelayedShareFetch(self), keys, request.max_wait_ms)

    def finish(self) -> None:
        """Answer after a wait, with what there is."""
        if not (self._has_records or self._has_errors or self._session.is_closed):
            self.acquire(0)
        self.answer()

    def fail(self) -> None:
        self._reply(broker_failed())

    def acquire(self, min_bytes: int) -> bool:
        """Acquire records if there are enough; return True if the request need not wait any longer."""
        if self._session.is_closed:
            return True
        if self._is_acquiring:  # a write of this call has made records available
            return False
        self._is_acquiring = True
        try:
            return self._acquire(min_bytes)
        finally:
            self._is_acquiring = False

    def _acquire(self, min_bytes: int) -> bool:
        service, request = self._service, self._request
        max_bytes = service.max_bytes(request, self._caller)
        led = self._led_partitions()
        if self._has_errors:
            min_bytes = 0
        if min_bytes > 1:
            ready = 0
            for _, _, each in led:
                ready += service.share_partitions.ready_bytes(each, max_bytes)
            if ready < min(min_bytes, max_bytes):
                return False
        left_bytes, left_records = max_bytes, request.max_records
        for key, topic, each in led:
            if left_records <= 0 or (self._has_records and left_bytes <= 0):
                break
            try:
                records, ranges, count = service.share_partitions.acquire(
                    each,
                    request.member_id,
                    max_bytes=left_bytes,
                    max_records=left_records,
                    batch_size=max(1, request.batch_size),
                    is_strict=request.share_acquire_mode == ShareAcquireMode.RECORD_LIMIT,
                    is_first=not self._has_records,
                )
            except ApiError as error:
                self._refuse(key, topic, error)
                continue
            except StorageError as error:
                service.storage_failed(TopicPartition(topic, key[1]), error)
                self._refuse(key, topic, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "The log cannot be read."))
                continue
            if ranges:
                self._has_records = True
                left_bytes -= size_of(records)
                left_records -= count
                service.count_bytes(topic, size_of(records))
                self._results[key] = ShareFetchResultPartition(key[0], key[1], records=records, acquired_records=ranges)
        return self._has_records or self._has_errors

    def _led_partitions(self) -> list[tuple[SessionPartition, str, LedSharePartition]]:
        service, request = self._service, self._request
        found = []
        for key, topic in self._partitions:
            try:
                partition = service.find_partition(self._caller, key[0], topic, key[1])
                led = service.share_partitions.get(request.group_id, partition)
            except ApiError as error:
                self._refuse(key, topic, error)
                continue
            if led is not None:
                found.append((key, topic, led))
        return found

    def _refuse(self, key: SessionPartition, topic: str, error: ApiError) -> None:
        self._has_errors = True
        self._results[key] = ShareFetchResultPartition(
            key[0],
            key[1],
            error.code,
            error.message,
            current_leader=self._service.current_leader(error.code, topic, key[1]),
        )

    def answer(self) -> None:
        service, request = self._service, self._request
        results = [*self._results.values()]
        acknowledged = [self._acknowledged(key, error) for key, error in self._outcomes.items()]
        if acknowledged:
            results = [each for each in results if (each.topic_id, each.partition) not in self._outcomes]
            results += acknowledged
        leaders = [each.current_leader for each in results if each.current_leader is not None]
        self._reply(
            ShareFetchResult(
                partitions=results,
                acquisition_lock_timeout_ms=service.lock_duration_ms(request.group_id),
                nodes=service.nodes(leaders, self._caller) if leaders else (),
            )
        )

    def _acknowledged(self, key: SessionPartition, error: ApiError | None) -> ShareFetchResultPartition:
        """Return the result of a partition with the outcome of its acknowledgements."""
        result = self._results.get(key) or ShareFetchResultPartition(key[0], key[1])
        if error is None:
            return result
        topic = self._session.partitions.get(key, "")
        return ShareFetchResultPartition(
            key[0],
            key[1],
            result.error,
            result.error_message,
            error.code,
            error.message,
            result.current_leader or self._service.current_leader(error.code, topic, key[1]),
            result.records,
            result.acquired_records,
        )


class DelayedShareFetch(DelayedOperation):
    """A ShareFetch that waits for records, or for others to release some."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: _PendingFetch) -> None:
        super().__init__(fetch.finish, fetch.fail)
        self._fetch = fetch

    def check(self, key: Hashable) -> bool:  # noqa: ARG002
        return self._fetch.acquire(self._fetch._request.min_bytes)


def _refused_fetch(request: ShareFetch) -> ApiError | None:
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        text = "A ShareFetch with IsRenewAck must have 0 as MaxBytes, MinBytes, MaxRecords and MaxWaitMs."
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    return None


def _has_renewals(batches: Iterable[AcknowledgementBatch]) -> bool:
    return any(AcknowledgeType.RENEW in each.acknowledge_types for each in batches)
