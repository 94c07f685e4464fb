"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics of clients that a broker collects (KIP-714)."""

from collections.abc import Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request

NO_INSTANCE = bytes(16)


@frozen(kw_only=True)
class GetTelemetrySubscriptions(Request["GetTelemetrySubscriptionsResult"]):
    """Ask which metrics to send. `client_instance_id` is NO_INSTANCE in a client's first request."""

    client_instance_id: bytes = NO_INSTANCE

    def failed(self, error: ApiError) -> "GetTelemetrySubscriptionsResult":
        return GetTelemetrySubscriptionsResult(client_instance_id=self.client_instance_id, error=error.code)


@frozen(kw_only=True)
class GetTelemetrySubscriptionsResult:
    """The subscription: `requested_metrics` empty = none. Compression types are the ids of codecs."""

    client_instance_id: bytes
    subscription_id: int = 0
    accepted_compression_types: Sequence[int] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class PushTelemetry(Request["PushTelemetryResult"]):
    """Send metrics of a subscription, in the form of OpenTelemetry."""

    client_instance_id: bytes
    subscription_id: int
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = field(default=b"", repr=False)

    def failed(self, error: ApiError) -> "PushTelemetryResult":
        return PushTelemetryResult(error=error.code)


@frozen(kw_only=True)
class PushTelemetryResult:
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0
