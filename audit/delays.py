"""How late messages were counted, as a histogram that can be added up: four buckets for each doubling of the delay."""

from collections.abc import Iterable, Mapping

Delays = Mapping[int, int]
"""Bucket → how many messages."""


def bucket_of(delay_ms: int) -> int:
    """The bucket of a delay; a negative one (clocks differ) counts as none."""
    if delay_ms < 4:
        return max(0, delay_ms)
    shift = delay_ms.bit_length() - 3
    return (shift + 1) * 4 + (delay_ms >> shift) - 4


def largest_of(bucket: int) -> int:
    """The largest delay of the bucket, in ms."""
    if bucket < 4:
        return bucket
    shift, rest = divmod(bucket - 4, 4)
    return ((rest + 5) << shift) - 1


def added(many: Iterable[Delays]) -> dict[int, int]:
    """The histogram of all of them."""
    sums: dict[int, int] = {}
    for each in many:
        for bucket, count in each.items():
            sums[bucket] = sums.get(bucket, 0) + count
    return sums


def quantile(delays: Delays, share: float) -> int | None:
    """The delay in ms that so great a share of the messages does not exceed, up to a bucket's width (19 % at most)."""
    wanted = share * sum(delays.values())
    reached = 0
    for bucket in sorted(delays):
        reached += delays[bucket]
        if reached >= wanted:
            return largest_of(bucket)
    return None
