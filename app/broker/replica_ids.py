"""Who may call itself a replica: only brokers may read past the high watermark, and move it by what they have."""

from ...ports.broker_api import Caller, Fetch, ListOffsets, OffsetForLeaderEpoch
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .endpoints import Endpoints


def refused_replica(
    request: Fetch | ListOffsets | OffsetForLeaderEpoch, caller: Caller, endpoints: Endpoints
) -> ApiError | None:
    """Why the caller is no replica although it says so; None: it does not say so, or it may.

    Negative ids are those of consumers (-1) and of tools (-2), which see what consumers see.
    """
    if request.replica_id < 0 or endpoints.is_from_broker(caller):
        return None
    text = f"replica {request.replica_id} came in on {caller.listener or 'no listener'}, which is not for brokers"
    return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{text}; see inter.broker.listener.name")
