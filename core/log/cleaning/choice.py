"""Which logs are to be cleaned, and how dirty they are (facts B5)."""

from itertools import pairwise

from ....ports.values import frozen
from ....ports.words import Offset
from ..config import LONG_MAX
from ..log import Log
from ..segment import NO_TIMESTAMP, Segment


@frozen(kw_only=True)
class Dirt:
    """What a look at a compacted log has found."""

    log: Log
    first_dirty: Offset
    upto: Offset
    """The first segment that may not be cleaned yet begins here."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For so long, the oldest dirty message has been older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """The dirty part of what could be cleaned."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        config = self.log.config
        return self.cleanable_bytes > 0 and (self.ratio > config.min_cleanable_dirty_ratio or self.overdue_ms > 0)


def look_at(log: Log, cleaned_to: Offset, decided_to: Offset, now_ms: int) -> Dirt:
    """`cleaned_to`: as of the checkpoint; from `decided_to` on, a message may still turn out not to count (high
    watermark, open transactions). Raises `StorageError`, `ApiError`."""
    segments = [segment for segment in log.segments if isinstance(segment, Segment)]
    config, start = log.config, log.log_start_offset
    first_dirty = cleaned_to if start <= cleaned_to <= log.log_end_offset else start
    undecided = log.transactions.first_undecided_on_disk  # what it has replaced stays until its marker is durable
    bound = min(decided_to, log.recovery_point, LONG_MAX if undecided is None else undecided)
    lag = config.min_compaction_lag_ms
    upto, oldest = segments[-1].base_offset, LONG_MAX
    clean = cleanable = 0
    for segment, following in pairwise(segments):
        next_base, dirty = following.base_offset, following.base_offset > first_dirty
        if next_base > bound or (lag > 0 and dirty and _newest(segment) > now_ms - lag):
            upto = segment.base_offset
            break
        if dirty:
            cleanable += segment.size
            first = segment.first_timestamp if config.max_compaction_lag_ms < LONG_MAX else NO_TIMESTAMP
            oldest = min(oldest, first) if first > 0 else oldest
        else:
            clean += segment.size
    overdue = now_ms - oldest - config.max_compaction_lag_ms if oldest < LONG_MAX else 0
    return Dirt(
        log=log,
        first_dirty=min(first_dirty, upto),
        upto=upto,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        overdue_ms=max(0, overdue),
    )


def _newest(segment: Segment) -> int:
    """The largest timestamp in it, or when it was written where it has none."""
    largest = segment.largest_timestamp
    return largest if largest > 0 else segment.modified_ms
