"""The keys of compaction (log.cleaner.*)."""

from ...ports.values import frozen
from .keys import DOUBLE_MAX, LONG_MAX, double_key, flag_key, int_key, long_key


@frozen(kw_only=True, slots=False)
class CleanerKeys:
    """A part of the table; see `BrokerConfig`."""

    log_cleaner_enable: bool = flag_key(
        "log.cleaner.enable", True, doc="Compact the logs of topics with cleanup.policy=compact, the broker's own too."
    )
    log_cleaner_threads: int = int_key(
        "log.cleaner.threads", 1, 0, doc="How many logs are compacted side by side; 0: none.", dynamic=True
    )
    log_cleaner_backoff_ms: int = long_key(
        "log.cleaner.backoff.ms",
        15_000,
        0,
        doc="How often to look for logs that are due, when there were none.",
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        -LONG_MAX - 1,
        doc="Memory for the keys of logs that are being compacted, 24 bytes each; 1 MiB a thread at least is taken.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = double_key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="How full that memory may be; 0.1 to 0.95 is taken.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = int_key(
        "log.cleaner.io.buffer.size", 524_288, 0, doc="Memory for reading what is compacted.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double_key(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="Bytes that compaction may read and write in a second, all in all.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = double_key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        0.0,
        1.0,
        doc="Compact a log when more than this share of it is not compacted yet.",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = long_key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        0,
        doc="Messages younger than this are not compacted.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = long_key(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        1,
        doc="Messages older than this are compacted, however few they are; segments are sealed at that age.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = long_key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        0,
        doc="How long a compacted log keeps messages without value, which delete their keys, once it is clean there.",
        dynamic=True,
    )
