"""The keys of the background check of closed segments (log.scrub.*)."""

from ...ports.values import frozen
from .keys import long_key


@frozen(kw_only=True, slots=False)
class ScrubKeys:
    """A part of the table; see `BrokerConfig`."""

    log_scrub_interval_ms: int = long_key(
        "log.scrub.interval.ms",
        604_800_000,
        1,
        doc="Ours. How often each closed segment is read and compared with its checksums.",
        dynamic=True,
    )
    log_scrub_io_max_bytes_per_second: int = long_key(
        "log.scrub.io.max.bytes.per.second",
        1_048_576,
        0,
        doc="Ours. Bytes that this check reads in a second; requests come first. 0: only what a reader could not read.",
        dynamic=True,
    )
