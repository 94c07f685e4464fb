"""What a producer's machines are told, from its settings."""

from ...core.client.producer.accumulator import AccumulatorSettings
from ...core.client.producer.sender import SenderSettings
from .settings import ProducerSettings


def accumulating(chosen: ProducerSettings) -> AccumulatorSettings:
    return AccumulatorSettings(
        batch_size=chosen.batch_size,
        batch_messages=chosen.batch_num_messages,
        linger_ms=chosen.linger_ms,
        buffer_memory=chosen.buffer_memory,
        buffer_messages=chosen.queue_buffering_max_messages,
        delivery_timeout_ms=chosen.delivery_timeout_ms,
    )


def sending(chosen: ProducerSettings) -> SenderSettings:
    return SenderSettings(
        acks=chosen.acks,
        retries=chosen.retries,
        retry_backoff_ms=chosen.retry_backoff_ms,
        retry_backoff_max_ms=chosen.retry_backoff_max_ms,
        delivery_timeout_ms=chosen.delivery_timeout_ms,
        request_timeout_ms=chosen.request_timeout_ms,
        max_in_flight=chosen.max_in_flight_requests_per_connection,
        max_request_size=chosen.max_request_size,
    )
