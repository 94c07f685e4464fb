"""Numbers as ranges, against plain counting."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit import ranges
from barnabas.audit.delays import bucket_of, largest_of, quantile
from barnabas.audit.ranges import Range

many = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def spelled_out(numbers: list[Range]) -> Counter[int]:
    return Counter(number for first, last in numbers for number in range(first, last + 1))


@given(many)
def test_compact_ranges_are_the_same_multitude_and_few(numbers: list[Range]) -> None:
    compact = ranges.compact(numbers)
    assert spelled_out(compact) == spelled_out(numbers)
    assert ranges.total(compact) == ranges.total(numbers)
    assert ranges.distinct(numbers) == len(spelled_out(numbers))
    assert ranges.compact(compact) == compact


def test_ranges_that_touch_become_one() -> None:
    assert ranges.compact([(5, 9), (0, 4), (3, 4), (20, 20)]) == [(0, 9), (20, 20), (3, 4)]


@given(many, many)
def test_differences_are_those_of_counting(above: list[Range], below: list[Range]) -> None:
    here, there = spelled_out(below), spelled_out(above)
    found = ranges.difference(above, below)
    assert spelled_out(found.missing) == Counter(there.keys() - here.keys())
    assert spelled_out(found.extra) == Counter(here.keys() - there.keys())
    too_many = {number: copies - max(1, there[number]) for number, copies in here.items()}
    doubled = {n: copies for first, last, copies in found.doubled for n in range(first, last + 1)}
    assert doubled == {number: copies for number, copies in too_many.items() if copies > 0}


@given(st.integers(-5, 10**12))
def test_a_delay_is_known_up_to_a_bucket(delay_ms: int) -> None:
    bucket = bucket_of(delay_ms)
    assert max(0, delay_ms) <= largest_of(bucket) <= max(3, delay_ms * 1.25)
    assert bucket <= bucket_of(delay_ms + 1) <= bucket + 1


@given(st.lists(st.integers(0, 100_000), min_size=1), st.sampled_from([0.5, 0.99]))
def test_quantiles_of_delays_are_bounded(delays: list[int], share: float) -> None:
    found = quantile(Counter(map(bucket_of, delays)), share)
    assert found is not None
    assert sum(delay <= found for delay in delays) >= share * len(delays)
    assert sum(delay <= found * 0.79 - 1 for delay in delays) < max(1, share * len(delays))
    assert quantile({}, share) is None
