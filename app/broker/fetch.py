"""Fetch: read record batches, at once or when enough is there (facts C6, D8)."""

from collections.abc import Callable, Sequence
from functools import partial

from ...core.cluster.topics import ReplicaId
from ...core.replica.isolation import FetchIsolation
from ...core.replica.partition import Partition
from ...core.replica.selection import ReplicaSelector
from ...ports.broker_api import Caller, Fetch, FetchResult, FetchResultPartition, Reply
from ...ports.errors import ApiError
from .leaders import Leaders
from .near import NearReplicas
from .replica_ids import refused_replica
from .state import BrokerState

_UNCOMMITTED = FetchIsolation.HIGH_WATERMARK
_ISOLATION = {0: _UNCOMMITTED, 1: FetchIsolation.TXN_COMMITTED}
"""By the number that the request has for it (facts C6)."""


class FetchService:
    """Asks the replicas for what consumers and followers want; `selector` tells who should rather ask elsewhere."""

    def __init__(self, state: BrokerState, selector: ReplicaSelector | None = None) -> None:
        self._state = state
        self._leaders = Leaders(state)
        self._read = state.replicas.read
        self._max_bytes = state.settings.static.fetch_max_bytes
        self._near = NearReplicas(state, selector) if selector is not None else None

    def handle(self, request: Fetch, caller: Caller, reply: Reply[FetchResult]) -> None:
        refused = refused_replica(request, caller, self._state.endpoints, self._state.image.brokers)
        if refused is not None:
            reply(refused)
            return
        max_bytes = min(request.max_bytes, self._max_bytes)

        def done(results: Sequence[FetchResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                reply(results)
                return
            told, nodes = self._leaders.told(results, caller)
            reply(FetchResult(partitions=told, nodes=nodes))

        self._read(
            request.partitions,
            done,
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            max_wait_ms=request.max_wait_ms,
            isolation=_ISOLATION.get(request.isolation_level, _UNCOMMITTED),
            allows_zstd=request.allows_zstd,
            reader=caller.connection,
            replica=ReplicaId(request.replica_id, request.replica_epoch) if request.replica_id >= 0 else None,
            anywhere=request.allows_follower,
            nearest=self._nearest(request, caller),
        )

    def _nearest(self, request: Fetch, caller: Caller) -> Callable[[Partition, int], int] | None:
        if self._near is None:
            return None
        reader = self._near.reader(request, caller)
        return None if reader is None else partial(self._near.nearest, reader)
