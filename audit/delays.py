"""Histograms of delays, which can be added: four buckets for each doubling of the delay."""

from collections.abc import Iterable, Mapping

Delays = Mapping[int, int]
"""Bucket → number of messages."""


def bucket_of(delay_ms: int) -> int:
    """Return the bucket of a delay; a negative one (clocks differ) counts as 0."""
    if delay_ms < 4:
        return max(0, delay_ms)
    shift = delay_ms.bit_length() - 3
    return (shift + 1) * 4 + (delay_ms >> shift) - 4


def largest_of(bucket: int) -> int:
    """Return the largest delay of the bucket, in ms."""
    if bucket < 4:
        return bucket
    shift, rest = divmod(bucket - 4, 4)
    return ((rest + 5) << shift) - 1


def added(many: Iterable[Delays]) -> dict[int, int]:
    """Return the sum of histograms."""
    sums: dict[int, int] = {}
    for each in many:
        for bucket, count in each.items():
            sums[bucket] = sums.get(bucket, 0) + count
    return sums


def quantile(delays: Delays, share: float) -> int | None:
    """Return the quantile of the delays in ms, up to a bucket's width (19 % at most)."""
    wanted = share * sum(delays.values())
    reached = 0
    for bucket in sorted(delays):
        reached += delays[bucket]
        if reached >= wanted:
            return largest_of(bucket)
    return None
