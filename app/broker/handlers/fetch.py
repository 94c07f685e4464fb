"""Fetch: read record batches, at once or when there are enough bytes (facts C6, D8)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ....core.cluster.topics import BrokerRegistration
from ....core.replica.leader.fetch_params import FindPreferredReadReplica
from ....core.replica.leader.fetch_sessions import FetchSessionResult
from ....core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView
from ....core.replica.partition.fetch_isolation import FetchIsolation
from ....core.replica.partition.partition import Partition
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.epochs import CONSUMER
from ....ports.broker_api.fetch import Fetch, FetchResult, FetchResultPartition
from ....ports.clock import Clock
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState
from .leader_hints import Leaders
from .replica_authorization import refused_replica

_UNCOMMITTED = FetchIsolation.HIGH_WATERMARK
_ISOLATION = {0: _UNCOMMITTED, 1: FetchIsolation.TXN_COMMITTED}
"""The isolation levels by their number in the request (facts C6)."""


class FetchService:
    """Reads from the replicas for consumers and followers; `selector` names preferred read replicas."""

    def __init__(self, state: BrokerState, selector: ReplicaSelector | None = None) -> None:
        self._state = state
        self._leaders = Leaders(state)
        self._read = state.replicas.read
        self._max_bytes = state.settings.static.fetch_max_bytes
        self._quotas = state.quotas
        self._near = None if selector is None else _near_replicas(state, selector)

    def handle(self, request: Fetch, caller: Caller, reply: Reply[FetchResult]) -> None:
        # Conditions in place of `min` and `max`, which cost ten times as much, since every fetch passes here.
        max_bytes = request.max_bytes if request.max_bytes < self._max_bytes else self._max_bytes
        if request.replica_id >= 0:
            self._answer_follower(request, caller, reply, max_bytes)
            return
        if self._quotas.is_enabled:
            max_bytes = self._quotas.fetch_max_bytes(caller, max_bytes)

        def done(results: Sequence[FetchResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                reply(results)
                return
            partitions, nodes = self._leaders.add_leaders(results, caller)
            reply(FetchResult(partitions=partitions, nodes=nodes))

        self._read(
            request.partitions,
            done,
            max_bytes=max_bytes,
            min_bytes=request.min_bytes if request.min_bytes < max_bytes else max_bytes,
            max_wait_ms=request.max_wait_ms,
            isolation=_ISOLATION.get(request.isolation_level, _UNCOMMITTED),
            allows_zstd=request.allows_zstd,
            reader=caller.connection,
            anywhere=request.allows_follower,
            nearest=None if self._near is None else _nearest(self._near, request, caller),
        )

    def _answer_follower(self, request: Fetch, caller: Caller, reply: Reply[FetchResult], max_bytes: int) -> None:
        refused = refused_replica(request, caller, self._state.endpoints, self._state.image.brokers)
        if refused is not None:
            reply(refused)
            return

        def done(answer: FetchSessionResult | ApiError) -> None:
            if isinstance(answer, ApiError):
                reply(answer)
                return
            partitions, nodes = self._leaders.add_leaders(answer.results, caller)
            reply(FetchResult(partitions=partitions, nodes=nodes, session_id=answer.session_id, error=answer.error))

        self._state.replicas.read_in_session(request, done, max_bytes=max_bytes, reader=caller.connection)


# Preferred read replicas (KIP-392): the leader asks the selector about each partition of a consumer's fetch.

HERE = -1
"""The consumer should read from this broker."""
_RETURN_MS = 30_000.0
"""A consumer that comes back within this time for the same offset has read nothing there: it reads from the leader."""
_SENT_MAX = 10_000
"""Number of consumers and partitions to remember for this."""


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
        self._sent: dict[tuple[NearReader, TopicPartition], tuple[int, int, float]] = {}
        """By reader and partition: the offset, the broker it was sent to, and until when it may come back."""

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
        if chosen == own or all(view.broker_id != chosen for view in choice):
            return HERE
        return HERE if self._has_returned((reader, partition.topic_partition), offset, chosen, now_ms) else chosen

    def _has_returned(self, who: tuple[NearReader, TopicPartition], offset: int, chosen: int, now_ms: float) -> bool:
        """Return True if the reader was just sent to the chosen broker at this offset, which may be damaged there."""
        sent = self._sent.pop(who, None)
        if sent is not None and sent[:2] == (offset, chosen) and now_ms < sent[2]:
            self._sent[who] = sent
            return True
        self._sent[who] = offset, chosen, now_ms + _RETURN_MS
        if len(self._sent) > _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        return False


def _near_replicas(state: BrokerState, selector: ReplicaSelector) -> PreferredReadReplicas:
    rack = state.settings.static.broker_rack
    return PreferredReadReplicas(
        selector,
        rack,
        lambda: state.image.brokers,
        state.clock,
        lambda error: state.failed("replica.selector.class", error),
    )


def _nearest(near: PreferredReadReplicas, request: Fetch, caller: Caller) -> FindPreferredReadReplica | None:
    """Return the selection of a read replica for a consumer that names its rack and supports KIP-392, else None."""
    if request.replica_id != CONSUMER or not (request.rack_id and request.allows_follower):
        return None
    reader = NearReader(
        rack=request.rack_id,
        client_id=caller.client_id,
        host=caller.host,
        listener=caller.listener,
        principal=caller.principal,
    )
    return partial(near.nearest, reader)
