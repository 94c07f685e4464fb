"""Authorization of followers: only brokers may read above the high watermark, and advance it by their progress."""

from collections.abc import Mapping

from ....core.cluster.topics import BrokerRegistration
from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.epochs import OffsetForLeaderEpoch
from ....ports.broker_api.fetch import Fetch
from ....ports.broker_api.offsets import ListOffsets
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..state.endpoints import Endpoints


def refused_replica(
    request: Fetch | ListOffsets | OffsetForLeaderEpoch,
    caller: Caller,
    endpoints: Endpoints,
    brokers: Mapping[int, BrokerRegistration],
) -> ApiError | None:
    """Return the error for a caller that is not the replica which it names; None if it names none, or is that replica.

    Negative ids are those of consumers (-1) and of tools (-2), which read up to the same end as consumers.
    """
    if request.replica_id < 0:
        return None
    if not endpoints.is_from_broker(caller, brokers.get(request.replica_id)):
        text = f"replica {request.replica_id} came in on {caller.listener or 'no listener'}, which is not for brokers"
        return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{text}; see inter.broker.listener.name")
    return _refused_life(request, brokers) if isinstance(request, Fetch) else None


def _refused_life(request: Fetch, brokers: Mapping[int, BrokerRegistration]) -> ApiError | None:
    """Return the error for a follower whose broker epoch is not the registered one: its progress must not count."""
    broker = brokers.get(request.replica_id)
    if broker is None:
        return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {request.replica_id} is not registered")
    if broker.broker_epoch != request.replica_epoch:
        text = f"broker {request.replica_id} is registered with the epoch {broker.broker_epoch}"
        return ApiError(ErrorCode.STALE_BROKER_EPOCH, f"{text}, not {request.replica_epoch}")
    return None
