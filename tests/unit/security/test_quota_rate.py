"""Sampled rates and token buckets, compared with a model that forgets nothing, and with figures of Apache Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.security.quotas.rate import QuotaWindows, SampledRate, SampledStat, TokenBucket

WINDOWS = QuotaWindows()
GAPS = st.one_of(st.integers(0, 50), st.integers(900, 1100), st.integers(0, 4000), st.integers(9_000, 13_000))
EVENTS = st.lists(st.tuples(GAPS, st.integers(0, 20_000)), min_size=1, max_size=60)


def modelled(events: list[tuple[int, int]], now_ms: int) -> tuple[float, float]:
    """Return the sum and the window of a rate, from all events ever."""
    groups: list[tuple[int, int, int]] = []  # start, last, total
    for at_ms, value in events:
        if not groups or at_ms - groups[-1][0] >= 1000:
            groups.append((at_ms, at_ms, value))
        else:
            start, _, total = groups[-1]
            groups[-1] = (start, at_ms, total + value)
    live = [group for group in groups[-12:] if now_ms - group[1] < 11_000]
    elapsed = now_ms - live[0][0] if live else 0
    window = elapsed if elapsed >= 10_000 else 10_000 + elapsed % 1000
    return sum(group[2] for group in live), window


@given(EVENTS, GAPS)
def test_rate_of_any_events_equals_the_model(events: list[tuple[int, int]], later_ms: int) -> None:
    rate, seen, now_ms = SampledRate(WINDOWS, 1000.0), [], 0
    for gap_ms, value in events:
        now_ms += gap_ms
        rate.record(value, now_ms)
        seen.append((now_ms, value))
        total, window = modelled(seen, now_ms)
        assert rate.throttle_ms(now_ms) == max(0, round(total - window))
    now_ms += later_ms
    total, window = modelled(seen, now_ms)
    assert rate.per_second(now_ms) == pytest.approx(total * 1000 / window)


@given(EVENTS)
def test_client_that_obeys_its_delays_stays_within_its_rate_in_the_long_run(events: list[tuple[int, int]]) -> None:
    rate, now_ms, used = SampledRate(WINDOWS, 1000.0), 0, 0
    for gap_ms, value in events:
        now_ms += gap_ms
        rate.record(value, now_ms)
        used += value
        now_ms += rate.throttle_ms(now_ms)
        assert used <= 1000.0 * (now_ms + 22_000) / 1000.0 + 1 + 1000 * len(events) / 60


def test_six_kilobytes_at_one_kilobyte_per_second_are_delayed_as_by_kafka() -> None:
    rate, now_ms, delays = SampledRate(WINDOWS, 1000.0), 0, []
    for _ in range(4):
        rate.record(6065, now_ms)
        delays.append(rate.throttle_ms(now_ms))
        now_ms += delays[-1] + 7
    assert delays[0] == 0
    assert delays[1] == pytest.approx(2119, abs=60)
    assert delays[2] == pytest.approx(8074, abs=60)
    assert delays[3] == pytest.approx(14102, abs=120)


def test_value_that_is_taken_back_no_longer_counts() -> None:
    rate = SampledRate(WINDOWS, 1.0)
    rate.record(500, 0)
    rate.record(-500, 3)
    assert rate.per_second(3) == 0
    assert rate.throttle_ms(3) == 0


def test_average_of_old_values_is_zero() -> None:
    stat = SampledStat(WINDOWS)
    stat.record(10, 0)
    stat.record(20, 1500)
    assert stat.average(1500) == 15
    assert stat.average(11_000) == 20
    assert stat.average(12_500) == 0


def test_token_bucket_refuses_as_kafka_with_eight_partitions_at_one_per_second() -> None:
    bucket = TokenBucket(WINDOWS, 1.0)
    assert bucket.tokens(5_000_000) == 11
    bucket.record(8, 5_000_000)
    assert bucket.throttle_ms(5_000_000) == 0
    bucket.record(8, 5_000_250)
    assert bucket.throttle_ms(5_000_507) == pytest.approx(4493)


@given(st.floats(0.1, 1000), st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 5000)), max_size=40))
def test_token_bucket_never_holds_more_than_its_windows(bound: float, events: list[tuple[int, float]]) -> None:
    bucket, now_ms, taken = TokenBucket(WINDOWS, bound), 0, 0.0
    for gap_ms, value in events:
        now_ms += gap_ms
        bucket.record(value, now_ms)
        taken += value
        assert bucket.tokens(now_ms) <= 11 * bound + 1e-6
        assert bucket.tokens(now_ms) >= -taken - 1e-6
        now_ms += bucket.throttle_ms(now_ms)
        assert bucket.tokens(now_ms) >= -bound / 1000 - 1e-6
