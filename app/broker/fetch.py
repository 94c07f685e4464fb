"""Fetch: read record batches, at once or when enough is there (facts C6, D8)."""

from collections.abc import Sequence

from attrs import evolve

from ...core.cluster.image import ClusterImage
from ...core.replica.isolation import FetchIsolation
from ...ports.broker_api import Caller, Fetch, FetchPartition, FetchResult, FetchResultPartition, Reply
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .leaders import Leaders
from .replica_ids import refused_replica
from .state import BrokerState

_UNCOMMITTED = FetchIsolation.HIGH_WATERMARK
_ISOLATION = {0: _UNCOMMITTED, 1: FetchIsolation.TXN_COMMITTED}
"""By the number that the request has for it (facts C6)."""


class FetchService:
    """Asks the replicas for what consumers want."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._leaders = Leaders(state)
        self._read = state.replicas.read
        self._max_bytes = state.settings.static.fetch_max_bytes

    def handle(self, request: Fetch, caller: Caller, reply: Reply[FetchResult]) -> None:
        refused = refused_replica(request, caller, self._state.endpoints)
        if refused is not None:
            reply(refused)
            return
        max_bytes = min(request.max_bytes, self._max_bytes)
        entries = request.partitions
        by_id = any(_goes_by_id(entry) for entry in entries)
        if by_id:
            image = self._state.image
            entries = [_named(entry, image) for entry in entries]

        def done(results: Sequence[FetchResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                reply(results)
                return
            told, nodes = self._leaders.told(results, caller)
            reply(FetchResult(partitions=[_told_by_id(each) for each in told] if by_id else told, nodes=nodes))

        self._read(
            entries,
            done,
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            max_wait_ms=request.max_wait_ms,
            isolation=_ISOLATION.get(request.isolation_level, _UNCOMMITTED),
            allows_zstd=request.allows_zstd,
            reader=caller.connection,
        )


def _goes_by_id(entry: FetchPartition | FetchResultPartition) -> bool:
    return not entry.topic and entry.topic_id != NO_TOPIC_ID


def _named(entry: FetchPartition, image: ClusterImage) -> FetchPartition:
    """With the name of its topic, if there is one of this id."""
    if not (_goes_by_id(entry) and image.has_id(entry.topic_id)):
        return entry
    return FetchPartition(
        image.topic_by_id(entry.topic_id).name,
        entry.partition,
        entry.offset,
        entry.max_bytes,
        entry.current_leader_epoch,
        entry.log_start_offset,
        entry.last_fetched_epoch,
        entry.topic_id,
    )


def _told_by_id(result: FetchResultPartition) -> FetchResultPartition:
    """Nobody has a topic without a name: its id is what is not known."""
    return evolve(result, error=ErrorCode.UNKNOWN_TOPIC_ID) if _goes_by_id(result) else result
