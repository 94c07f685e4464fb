"""DescribeCluster (facts C6)."""

from ....ports.broker_api.cluster import DescribeCluster, DescribeClusterResult
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS
from ....ports.error_codes import ErrorCode
from ..state.broker_state import BrokerState

_BROKERS = 1


class ClusterService:
    """Returns the cluster id, the controller and the brokers."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeCluster, caller: Caller, reply: Reply[DescribeClusterResult]) -> None:
        state = self._state
        known = request.endpoint_type == _BROKERS
        asked = request.include_authorized_operations
        reply(
            DescribeClusterResult(
                cluster_id=state.cluster_id,
                controller_id=state.controller_id,
                brokers=state.endpoints.nodes_with_own(state.image.brokers, caller) if known else (),
                error=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
                error_message=None if known else "only brokers (endpoint type 1) are supported",
                endpoint_type=request.endpoint_type,
                authorized_operations=CLUSTER_OPERATIONS if asked and known else NO_AUTHORIZED_OPERATIONS,
            )
        )
