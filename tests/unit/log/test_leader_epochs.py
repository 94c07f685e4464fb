"""The leader-epoch cache (facts B4)."""

import pytest

from barnabas.core.log.leader_epoch_cache import LeaderEpochCache


def test_assign_adds_epochs_and_drops_conflicting_ones() -> None:
    epochs = LeaderEpochCache()
    assert epochs.latest == -1
    epochs.assign(-1, 5)
    assert epochs.entries == []
    epochs.assign(0, 0)
    epochs.assign(0, 10)
    epochs.assign(2, 10)
    epochs.assign(2, 12)
    assert epochs.entries == [(0, 0), (2, 10)]
    assert epochs.latest == 2


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (3, 15, [(0, 0), (2, 10), (3, 15)]),
        (3, 10, [(0, 0), (3, 10)]),
        (3, 5, [(0, 0), (3, 5)]),
        (3, 0, [(3, 0)]),
        (1, 20, [(0, 0), (1, 20)]),
        (2, 4, [(0, 0), (2, 4)]),
    ],
)
def test_assign_drops_what_contradicts(epoch: int, start: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochCache([(0, 0), (2, 10)])
    assert not epochs.changed
    epochs.assign(epoch, start)
    assert epochs.entries == expected
    assert epochs.changed


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (1, 10)), (3, (3, 10_000)), (4, (-1, -1))],
)
def test_end_offset_of_an_epoch_is_the_start_of_the_next(asked: int, expected: tuple[int, int]) -> None:
    epochs = LeaderEpochCache([(0, 0), (1, 5), (3, 10)])
    assert epochs.end_offset_for(asked, 10_000) == expected


def test_end_offset_of_an_epoch_before_all_and_without_any() -> None:
    assert LeaderEpochCache([(3, 7), (5, 9)]).end_offset_for(1, 20) == (1, 7)
    assert LeaderEpochCache().end_offset_for(0, 20) == (-1, -1)


def test_epoch_at_an_offset_is_the_latest_started_one() -> None:
    epochs = LeaderEpochCache([(1, 5), (3, 10)])
    assert [epochs.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(99, [(0, 0), (1, 5), (3, 10)]), (10, [(0, 0), (1, 5)]), (6, [(0, 0), (1, 5)]), (5, [(0, 0)]), (0, [])],
)
def test_truncate_from_the_end(offset: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochCache([(0, 0), (1, 5), (3, 10)])
    epochs.truncate_from_end(offset)
    assert epochs.entries == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [(0, 0), (1, 5), (3, 10)]),
        (3, [(0, 3), (1, 5), (3, 10)]),
        (5, [(1, 5), (3, 10)]),
        (7, [(1, 7), (3, 10)]),
        (50, [(3, 50)]),
    ],
)
def test_truncate_from_the_start(offset: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochCache([(0, 0), (1, 5), (3, 10)])
    epochs.truncate_from_start(offset)
    assert epochs.entries == expected
