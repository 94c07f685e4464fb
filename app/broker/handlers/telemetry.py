"""Metrics of clients (KIP-714), answered as a broker of Kafka without a plug-in for them: it subscribes to none, and
drops what a client sends all the same."""

from ....core.cluster.brokers import random_uuid
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.telemetry import (
    NO_INSTANCE,
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResult,
    PushTelemetry,
    PushTelemetryResult,
)
from ....ports.error_codes import ErrorCode
from ..state.broker_state import BrokerState

SUBSCRIPTION_ID = 1
"""The id of the subscription to no metrics."""
COMPRESSION_TYPES = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy; 0 is none."""
PUSH_INTERVAL_MS = 300_000
TELEMETRY_MAX_BYTES = 1_048_576
"""`telemetry.max.bytes`"""


class TelemetryService:
    """Answers clients that ask which metrics to send, whatever ApiVersions says."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def subscriptions(
        self, request: GetTelemetrySubscriptions, _caller: Caller, reply: Reply[GetTelemetrySubscriptionsResult]
    ) -> None:
        instance = request.client_instance_id
        reply(
            GetTelemetrySubscriptionsResult(
                client_instance_id=random_uuid(self._state.entropy) if instance == NO_INSTANCE else instance,
                subscription_id=SUBSCRIPTION_ID,
                accepted_compression_types=COMPRESSION_TYPES,
                push_interval_ms=PUSH_INTERVAL_MS,
                telemetry_max_bytes=TELEMETRY_MAX_BYTES,
                delta_temporality=True,
            )
        )

    def push(self, request: PushTelemetry, _caller: Caller, reply: Reply[PushTelemetryResult]) -> None:
        reply(PushTelemetryResult(error=_why_refused(request)))


def _why_refused(request: PushTelemetry) -> ErrorCode:
    if request.client_instance_id == NO_INSTANCE:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != SUBSCRIPTION_ID:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (0, *COMPRESSION_TYPES):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > TELEMETRY_MAX_BYTES:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE
