"""What the machines of producers and consumers are told, from the settings of their client."""

from ....core.client.consumer.subscription_state import FetcherSettings
from ....core.client.group.events import GroupSettings
from ....core.client.producer.record_accumulator import AccumulatorSettings
from ....core.client.producer.sender import SenderSettings
from ....core.client.producer.transaction_manager import TransactionSettings
from .settings import ConsumerSettings, ProducerSettings


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
        transactional_id=chosen.transactional_id,
    )


def transacting(chosen: ProducerSettings) -> TransactionSettings | None:
    """None: the producer is not transactional."""
    if chosen.transactional_id is None:
        return None
    return TransactionSettings(
        transactional_id=chosen.transactional_id,
        timeout_ms=chosen.transaction_timeout_ms,
        retry_backoff_ms=chosen.retry_backoff_ms,
        retry_backoff_max_ms=chosen.retry_backoff_max_ms,
    )


def membership_of(chosen: ConsumerSettings) -> GroupSettings:
    return GroupSettings(
        group_id=chosen.group_id,
        group_instance_id=chosen.group_instance_id or None,
        client_rack=chosen.client_rack or None,
        session_timeout_ms=chosen.session_timeout_ms,
        heartbeat_interval_ms=chosen.heartbeat_interval_ms,
        max_poll_interval_ms=chosen.max_poll_interval_ms,
        exclude_internal_topics=chosen.exclude_internal_topics,
        retry_backoff_ms=chosen.retry_backoff_ms,
        retry_backoff_max_ms=chosen.retry_backoff_max_ms,
    )


def fetching(chosen: ConsumerSettings) -> FetcherSettings:
    return FetcherSettings(
        min_bytes=chosen.fetch_min_bytes,
        max_wait_ms=chosen.fetch_max_wait_ms,
        max_bytes=chosen.fetch_max_bytes,
        max_partition_bytes=chosen.max_partition_fetch_bytes,
        isolation_level=chosen.isolation_level,
        reset=chosen.auto_offset_reset,
        check_crc=chosen.check_crcs,
        skip_damaged=chosen.skip_damaged,
        rack=chosen.client_rack,
        near_ms=chosen.metadata_max_age_ms,
        retry_backoff_ms=chosen.retry_backoff_ms,
        retry_backoff_max_ms=chosen.retry_backoff_max_ms,
    )
