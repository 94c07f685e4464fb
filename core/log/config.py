"""The configuration of one log (facts B6). `app.config` has its Kafka keys."""

from attrs import field
from attrs.validators import ge, in_, le

from ...ports.values import frozen

LONG_MAX = 2**63 - 1


@frozen(kw_only=True)
class LogConfig:
    """The immutable log configuration of a topic; a change replaces it as a whole."""

    segment_bytes: int = field(default=1_073_741_824, validator=ge(14))
    segment_ms: int = field(default=604_800_000, validator=ge(1))
    segment_jitter_ms: int = field(default=0, validator=ge(0))
    segment_index_bytes: int = field(default=10_485_760, validator=ge(12))
    index_interval_bytes: int = field(default=4096, validator=ge(0))
    retention_ms: int = field(default=604_800_000, validator=ge(-1))
    """-1: without limit."""
    retention_bytes: int = field(default=-1, validator=ge(-1))
    """Per partition; -1: without limit."""
    max_message_bytes: int = field(default=1_048_588, validator=ge(0))
    """Maximum size of a record batch with its header; in a classic log, of the payload of an outer message."""
    flush_messages: int = field(default=LONG_MAX, validator=ge(1))
    flush_ms: int = field(default=LONG_MAX, validator=ge(0))
    file_delete_delay_ms: int = field(default=60_000, validator=ge(0))
    delete_retention_ms: int = field(default=86_400_000, validator=ge(0))
    """A compacted log retains tombstones and the markers of empty transactions for this time after a cleaning."""
    min_cleanable_dirty_ratio: float = field(default=0.5, validator=[ge(0), le(1)])
    min_compaction_lag_ms: int = field(default=0, validator=ge(0))
    """Messages that are younger are not compacted."""
    max_compaction_lag_ms: int = field(default=LONG_MAX, validator=ge(1))
    """Messages that are older are compacted, whatever the dirty ratio; a segment of this age is rolled."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """A subset of "delete" and "compact"."""
    deletion_policy: str = "kafka"
    """Name of the deletion-policy plugin; parameters for it behind a colon."""
    compression_type: str = "producer"
    """"producer" keeps what the producer chose; a codec's name, or "uncompressed", makes the broker recompress."""
    message_timestamp_type: str = field(default="CreateTime", validator=in_(("CreateTime", "LogAppendTime")))
    message_timestamp_before_max_ms: int = field(default=LONG_MAX, validator=ge(0))
    message_timestamp_after_max_ms: int = field(default=3_600_000, validator=ge(0))
    min_insync_replicas: int = field(default=1, validator=ge(1))
    unclean_leader_election_enable: bool = False
    """Whether a replica that was not in sync may lead when no other is left."""
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    """`PARTITION:BROKER`: replicas to whose followers the leader limits replication; `*`: all of them."""
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    """`PARTITION:BROKER`: replicas that limit their fetches; `*`: all of them."""
    message_format: str = field(default="v2", validator=in_(("v2", "classic")))
    """Format of a new log; an existing log retains the format of its files."""
    errors_deadletterqueue_group_enable: bool = False
    """Whether share groups may write dead letters here (KIP-1191)."""
    mirror_source: str = ""
    """The cluster of which the topic is a mirror: only MirrorRecords appends to it; empty: of none."""
    remote_storage_enable: bool = False
    """Whether closed segments go to remote storage (KIP-405)."""
    remote_storage_source: str = ""
    """The folder in remote storage of a topic of another cluster, whose records are read here; empty: of none."""
    local_retention_ms: int = field(default=-2, validator=ge(-2))
    """The time for which a tiered log keeps segments that are in remote storage; -2: that of retention_ms."""
    local_retention_bytes: int = field(default=-2, validator=ge(-2))
    """-2: as retention_bytes."""
    remote_log_copy_disable: bool = False
    """Whether nothing more is copied; what is in remote storage stays readable."""
    remote_log_delete_on_disable: bool = False
    """Whether remote_storage_enable may be taken back, which deletes what is in remote storage."""
    remote_copy_lag_ms: int = field(default=0, validator=ge(-2))
    """Segments are copied when their newest record is older (KIP-1241)."""
    remote_copy_lag_bytes: int = field(default=0, validator=ge(-2))
    """Segments are copied when as many bytes follow them."""
    record_validation: bool = False
    """Open every record on append, not only on compacted topics."""

    # Derived values, computed once because every append reads them.
    compacted: bool = field(init=False, repr=False, eq=False)
    opens_records: bool = field(init=False, repr=False, eq=False)
    """True if the records of a batch may have to be opened on append."""
    roll_ms: int = field(init=False, repr=False, eq=False)
    """Maximum age of the active segment."""

    tiered: bool = field(init=False, repr=False, eq=False)
    """True if segments may be in remote storage only."""

    @tiered.default
    def _is_tiered(self) -> bool:
        is_remote = self.remote_storage_enable or bool(self.remote_storage_source)
        return is_remote and self.message_format == "v2" and "compact" not in self.cleanup_policy

    @property
    def copies(self) -> bool:
        """True if closed segments are copied to remote storage."""
        return self.tiered and not (self.remote_log_copy_disable or self.remote_storage_source)

    @compacted.default
    def _is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @opens_records.default
    def _opens_records(self) -> bool:
        return self.compacted or self.record_validation or self.compression_type != "producer"

    @roll_ms.default
    def _rolls_after_ms(self) -> int:
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms
