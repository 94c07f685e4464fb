"""The durable state of a share partition, and the fences of its changes."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples

from barnabas.core.share.share_group_offset import combine_state_batches
from barnabas.ports.broker_api.share_state import StateBatch


def batches_of(*rows: tuple[int, int, int, int]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*row) for row in rows)


def test_changes_divide_a_stored_batch_where_their_state_differs() -> None:
    stored = batches_of((0, 9, 0, 1))
    assert combine_state_batches(stored, batches_of((3, 4, 2, 1)), 0) == batches_of(
        (0, 2, 0, 1), (3, 4, 2, 1), (5, 9, 0, 1)
    )


def test_neighbours_with_equal_state_become_one_batch() -> None:
    stored = batches_of((0, 4, 2, 1), (10, 14, 2, 1))
    assert combine_state_batches(stored, batches_of((5, 9, 2, 1)), 0) == batches_of((0, 14, 2, 1))


def test_batches_below_the_start_offset_are_removed_and_one_around_it_is_cut() -> None:
    stored = batches_of((0, 4, 2, 1), (5, 9, 0, 1))
    assert combine_state_batches(stored, (), 7) == batches_of((7, 9, 0, 1))


def test_gaps_between_batches_remain_without_state() -> None:
    assert combine_state_batches((), batches_of((5, 6, 0, 1), (0, 1, 4, 2)), 0) == batches_of(
        (0, 1, 4, 2), (5, 6, 0, 1)
    )


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 10),
        st.sampled_from([0, 2, 3, 4]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@settings(max_examples=examples(300))
@given(BATCHES, BATCHES, st.integers(0, 20), st.permutations(range(8)))
def test_combined_batches_have_the_highest_state_of_each_offset_in_any_order(
    first: list[StateBatch], second: list[StateBatch], start_offset: int, order: list[int]
) -> None:
    once = combine_state_batches((), [*first, *second], start_offset)
    shuffled = [second[position] for position in order if position < len(second)]
    twice = combine_state_batches(combine_state_batches((), first, start_offset), [*shuffled, *second], start_offset)
    assert once == twice
    by_offset = {
        o: (b.delivery_count, b.delivery_state) for b in once for o in range(b.first_offset, b.last_offset + 1)
    }
    for offset in range(45):
        ranks = [
            (b.delivery_count, b.delivery_state) for b in [*first, *second] if b.first_offset <= offset <= b.last_offset
        ]
        assert by_offset.get(offset) == (max(ranks) if ranks and offset >= start_offset else None)
    for before, after in pairwise(once):
        assert before.last_offset < after.first_offset
        is_next = before.last_offset + 1 == after.first_offset
        assert not is_next or (before.delivery_count, before.delivery_state) != (
            after.delivery_count,
            after.delivery_state,
        )
