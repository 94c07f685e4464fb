"""The settings of a group coordinator, by Kafka's names; some may change while it runs."""

from ....ports.values import frozen

_MIB = 1024 * 1024


@frozen(kw_only=True)
class GroupCoordinatorConfig:
    """Times in milliseconds."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    """The longest text of one commit, in characters as Java counts them."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000
    """A join without a member id is dropped after this time: its client may have stopped waiting (facts C6)."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """The group protocols that are offered; see `offers_consumer_groups`."""

    # Consumer groups (KIP-848). What single groups may change is in `GroupConfig`.
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors by name, the default one first."""
    group_consumer_migration_policy: str = "bidirectional"
    """Whether a group may move from the classic protocol to the consumer one (upgrade) and back (downgrade); or
    "disabled"."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    """The time after which the patterns of members are matched with the topics again."""

    # Share groups (KIP-932).
    group_share_max_size: int = 200
    group_share_assignors: tuple[str, ...] = ("simple",)
    group_share_max_share_sessions: int = 2_000

    # Not settings of Kafka: what a flood of requests may take.
    member_metadata_max_bytes: int = _MIB
    """The largest metadata of one member, over all its protocols. A record has no room for more anyway."""
    group_record_max_bytes: int = 32 * _MIB
    """A larger group is not even offered to the log, which has a limit of its own (max.message.bytes)."""
    members_max_bytes: int = 512 * _MIB
    """The most memory for the members of all groups together; further members, and further assignments, are answered
    with COORDINATOR_NOT_AVAILABLE."""
    pending_ids_max: int = 100_000
    """Member ids that were given out and not used yet; the oldest are forgotten."""
    pending_bytes_max: int = 64 * _MIB
    """The most bytes of unused member ids and the names of their groups."""

    @property
    def offers_consumer_groups(self) -> bool:
        """True unless `group.coordinator.rebalance.protocols` leaves out the consumer protocol."""
        return "consumer" in self.group_coordinator_rebalance_protocols

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self.group_consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self.group_consumer_migration_policy in ("bidirectional", "downgrade")
