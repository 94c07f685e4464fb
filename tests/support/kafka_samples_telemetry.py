"""Samples of the metrics of clients."""

from support.kafka_sample import ID_A, ID_B, Sample

from barnabas.ports.broker_api.telemetry import (
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResult,
    PushTelemetry,
    PushTelemetryResult,
)
from barnabas.ports.error_codes import ErrorCode

GET_TELEMETRY_SUBSCRIPTIONS = Sample(
    GetTelemetrySubscriptions(client_instance_id=ID_A),
    {"client_instance_id": ID_A},
    GetTelemetrySubscriptionsResult(
        client_instance_id=ID_B,
        subscription_id=9,
        accepted_compression_types=[4, 1],
        push_interval_ms=60_000,
        telemetry_max_bytes=12_345,
        delta_temporality=True,
        requested_metrics=["org.apache.kafka."],
        error=ErrorCode.INVALID_REQUEST,
        throttle_ms=51,
    ),
    {
        "throttle_time": 51,
        "error_code": 42,
        "client_instance_id": ID_B,
        "subscription_id": 9,
        "accepted_compression_types": [4, 1],
        "push_interval": 60_000,
        "telemetry_max_bytes": 12_345,
        "delta_temporality": True,
        "requested_metrics": ["org.apache.kafka."],
    },
)

PUSH_TELEMETRY = Sample(
    PushTelemetry(client_instance_id=ID_A, subscription_id=9, terminating=True, compression_type=4, metrics=b"otel"),
    {
        "client_instance_id": ID_A,
        "subscription_id": 9,
        "terminating": True,
        "compression_type": 4,
        "metrics": b"otel",
    },
    PushTelemetryResult(throttle_ms=52, error=ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    {"throttle_time": 52, "error_code": 117},
)
