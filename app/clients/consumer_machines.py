"""What a consumer's machines are told, from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.client.consumer.fetch_state import FetcherSettings
from ...core.client.group.events import GroupSettings
from ...ports.errors import ConfigError
from .settings import ConsumerSettings

if TYPE_CHECKING:
    from ...core.client.group.assignor import Assignor
    from ...plugins.host import PluginHost


def assignors_of(chosen: ConsumerSettings, host: PluginHost) -> list[Assignor]:
    """By their names, and objects as they are. Raises `ConfigError`."""
    found: list[Assignor] = []
    for each in chosen.partition_assignment_strategy:
        if not isinstance(each, str):
            missing = [name for name in ("name", "cooperative", "user_data", "assign") if not hasattr(each, name)]
            if missing:
                raise ConfigError(f"partition.assignment.strategy: {each!r:.100} has no {missing[0]}, see Assignor")
        found.append(host.rebalance_strategy(each) if isinstance(each, str) else each)
    return found


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
