"""The settings of single groups (resource type GROUP): Kafka's `GroupConfig` and `GroupConfigManager`."""

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ....ports.values import frozen

BY_DURATION = "by_duration:"
"""`share.auto.offset.reset` begins with this text where a new share group starts at a time ago, in ISO-8601."""


@frozen(kw_only=True)
class GroupConfig:
    """All settings of one group, by Kafka's names with `_` for `.`. Times in milliseconds.

    Every value is within the bounds of the broker (`group.consumer.min.*`, `group.share.max.*` and others).
    """

    # Consumer groups (KIP-848).
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """The least time from one target assignment of the group to the next."""

    # Share groups (KIP-932).
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_record_lock_duration_ms: int = 30_000
    """The time that a member may hold a record before it is available again."""
    share_delivery_count_limit: int = 5
    """A record that was delivered so often without an acknowledgement is archived."""
    share_partition_max_record_locks: int = 2_000
    """The most records of one partition in flight."""
    share_isolation_level: str = "read_uncommitted"
    """Or "read_committed"."""
    share_auto_offset_reset: str = "latest"
    """Or "earliest", or `BY_DURATION` and a duration; see `share_reset_age_ms`."""
    share_renew_acknowledge_enable: bool = True
    """Whether members may renew the lock of a record (acknowledge type 4)."""

    # Dead letters (KIP-1191).
    errors_deadletterqueue_topic_name: str = ""
    """The topic for archived records of a share group; empty: they are dropped."""
    errors_deadletterqueue_copy_record_enable: bool = False
    """Whether a dead letter has the key, value and headers of its record, and not only headers that name its origin."""

    @property
    def reads_committed(self) -> bool:
        """True if a share group gets records of committed transactions only."""
        return self.share_isolation_level == "read_committed"

    @property
    def share_reset_age_ms(self) -> int | None:
        """The age of the first records that a new share group gets; None: it begins at the earliest or latest offset.

        Raises `ValueError` for a duration that is none.
        """
        if not self.share_auto_offset_reset.startswith(BY_DURATION):
            return None
        return duration_ms(self.share_auto_offset_reset.removeprefix(BY_DURATION))


_DURATION = r"P(?=\d|T\d)(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,12})M)?(?:(\d{1,12}(?:\.\d{0,9})?)S)?)?"


def duration_ms(text: str) -> int:
    """Return an ISO-8601 duration as Java's `Duration.parse` reads it (PnDTnHnMn.nS), in milliseconds.

    Raises `ValueError`, also for a negative one.
    """
    match = re.fullmatch(_DURATION, text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a duration such as P7D, PT12H or P1DT2H30M")
    days, hours, minutes = (int(group or 0) for group in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(float(match[4] or 0) * 1000)


class GroupConfigManager:
    """The settings of every group: the broker's values, and over them what was set for the group. Owner thread only.

    `defaults` come from the broker's configuration. The broker calls `update_group_config` for each group with dynamic
    configs, at the start and after each change of them in the cluster.
    """

    def __init__(self, defaults: GroupConfig = GroupConfig()) -> None:  # noqa: B008  # immutable
        self.defaults = defaults
        self._configs: dict[str, GroupConfig] = {}

    def get(self, group_id: str) -> GroupConfig:
        """Return the settings of a group, which need not exist. Quick: ask again rather than keep the value."""
        return self._configs.get(group_id, self.defaults)

    def update_group_config(self, group_id: str, overrides: Mapping[str, Any]) -> None:
        """Replace what is set for a group: values by the names of `GroupConfig`'s fields; empty: nothing is set."""
        if overrides:
            self._configs[group_id] = evolve(self.defaults, **overrides)
        else:
            self._configs.pop(group_id, None)
