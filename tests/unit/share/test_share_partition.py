"""The states of the records of one share partition (facts D4)."""

from collections.abc import Collection

import pytest

from barnabas.core.share.share_partition import (
    LogBatch,
    RecordState,
    SharePartition,
    SharePartitionSettings,
    StateWrite,
)
from barnabas.ports.broker_api.share_groups import AcknowledgementBatch, AcknowledgeType
from barnabas.ports.broker_api.share_state import NO_START_OFFSET, StateBatch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

ACCEPT, RELEASE, REJECT, GAP, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
    AcknowledgeType.RENEW,
)


def log(*ranges: tuple[int, int], hidden: Collection[int] = ()) -> list[LogBatch]:
    return [LogBatch(first, last, first in hidden, (number + 1) * 100) for number, (first, last) in enumerate(ranges)]


def acquire(
    share: SharePartition,
    member: str = "m",
    *,
    batches: list[LogBatch],
    max_records: int = 500,
    batch_size: int = 500,
    is_strict: bool = False,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    offset = share.next_fetch_offset()
    assert offset is not None
    acquired = share.acquire(
        member,
        offset,
        batches,
        max_records=max_records,
        batch_size=batch_size,
        is_strict=is_strict,
        now_ms=now_ms,
    )
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired.ranges]


def acknowledge(share: SharePartition, first: int, last: int, *types: int, member: str = "m", now_ms: int = 0) -> int:
    batch = AcknowledgementBatch(first, last, bytes(types))
    return share.acknowledge(member, [batch], allows_renew=True, now_ms=now_ms)


def store(share: SharePartition) -> StateWrite:
    write = share.take_write()
    assert write is not None
    share.complete_write(is_stored=True)
    return write


def test_records_acquired_by_one_member_are_not_given_to_another() -> None:
    share = SharePartition(0)
    assert acquire(share, "a", batches=log((0, 9))) == [(0, 9, 1)]
    assert share.next_fetch_offset() == 10
    assert acquire(share, "b", batches=log((10, 19))) == [(10, 19, 1)]


def test_accepted_records_move_the_start_offset_when_they_are_stored() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    assert acknowledge(share, 0, 3, ACCEPT, RELEASE, REJECT, ACCEPT) == 1
    assert share.start_offset == 0
    write = store(share)
    assert (write.start_offset, write.delivery_complete_count) == (1, 2)
    assert write.state_batches == (StateBatch(1, 1, 0, 1), StateBatch(2, 2, 4, 1), StateBatch(3, 3, 2, 1))
    assert share.start_offset == 1
    assert acquire(share, batches=log((0, 9))) == [(1, 1, 2)]


def test_acknowledgement_that_was_not_stored_leaves_the_records_with_the_member() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    acknowledge(share, 0, 9, ACCEPT)
    share.take_write()
    with pytest.raises(ApiError) as refused:
        acknowledge(share, 0, 9, ACCEPT)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    share.complete_write(is_stored=False)
    assert acknowledge(share, 0, 9, ACCEPT) == 2


def test_second_write_waits_for_the_first() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    assert acknowledge(share, 0, 4, ACCEPT) == 1
    first = share.take_write()
    assert first is not None
    assert acknowledge(share, 5, 9, ACCEPT) == 2
    assert share.take_write() is None
    share.complete_write(is_stored=True)
    assert (first.start_offset, share.start_offset) == (5, 5)
    assert store(share).start_offset == 10


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(0, 10, b"\x01")], ErrorCode.INVALID_REQUEST),
        ([(0, 4, b"\x01\x01")], ErrorCode.INVALID_REQUEST),
        ([(0, 4, b"")], ErrorCode.INVALID_REQUEST),
        ([(3, 2, b"\x01")], ErrorCode.INVALID_REQUEST),
        ([(3, 4, b"\x01"), (0, 1, b"\x01")], ErrorCode.INVALID_REQUEST),
        ([(0, 4, b"\x01"), (4, 5, b"\x01")], ErrorCode.INVALID_REQUEST),
        ([(0, 4, b"\x05")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_acknowledgement_is_refused_and_changes_nothing(
    batches: list[tuple[int, int, bytes]], code: ErrorCode
) -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    with pytest.raises(ApiError) as refused:
        share.acknowledge("m", [AcknowledgementBatch(*each) for each in batches], allows_renew=True, now_ms=0)
    assert refused.value.code is code
    assert share.take_write() is None


def test_renewal_is_refused_for_clients_that_do_not_know_it() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    with pytest.raises(ApiError) as refused:
        share.acknowledge("m", [AcknowledgementBatch(0, 9, bytes([RENEW]))], allows_renew=False, now_ms=0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_acknowledgement_by_another_member_is_refused() -> None:
    share = SharePartition(0)
    acquire(share, "a", batches=log((0, 9)))
    with pytest.raises(ApiError) as refused:
        acknowledge(share, 0, 9, ACCEPT, member="b")
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


def test_acknowledgement_below_the_start_offset_is_passed_over() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    acknowledge(share, 0, 4, ACCEPT)
    store(share)
    assert acknowledge(share, 0, 4, ACCEPT) == 0


def test_lapsed_lock_makes_records_available_with_their_count() -> None:
    share = SharePartition(0, settings=SharePartitionSettings(lock_duration_ms=100))
    acquire(share, batches=log((0, 9)), now_ms=0)
    assert share.next_deadline_ms == 100
    with pytest.raises(ApiError):
        acknowledge(share, 0, 9, ACCEPT, now_ms=100)
    assert share.release_lapsed(99) == 0
    assert share.release_lapsed(100) == 10
    assert store(share).state_batches == (StateBatch(0, 9, 0, 1),)
    assert acquire(share, batches=log((0, 9)), now_ms=100) == [(0, 9, 2)]


def test_renewed_lock_lasts_longer() -> None:
    share = SharePartition(0, settings=SharePartitionSettings(lock_duration_ms=100))
    acquire(share, batches=log((0, 9)), now_ms=0)
    assert acknowledge(share, 0, 4, RENEW, now_ms=50) == 0
    assert share.release_lapsed(100) == 5
    assert share.next_deadline_ms == 150
    assert acknowledge(share, 0, 4, ACCEPT, now_ms=149) == 1


def test_record_delivered_too_often_is_archived() -> None:
    share = SharePartition(0, settings=SharePartitionSettings(delivery_count_limit=2))
    for count in (1, 2):
        assert acquire(share, batches=log((0, 0))) == [(0, 0, count)]
        acknowledge(share, 0, 0, RELEASE)
        store(share)
    assert share.start_offset == 1
    assert share.next_fetch_offset() == 1


def test_rejected_record_is_archived() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 4)))
    acknowledge(share, 0, 4, REJECT)
    assert store(share).start_offset == 5


def test_poisonous_records_come_in_halves_and_last_alone() -> None:
    share = SharePartition(0)
    sizes = []
    for _ in range(5):
        [(first, last, _)] = acquire(share, batches=log((0, 99)))
        sizes.append((first, last - first + 1))
        acknowledge(share, first, last, RELEASE)
        store(share)
    assert sizes == [(0, 100), (0, 100), (0, 100), (0, 50), (0, 1)]


def test_soft_limit_gives_whole_batches_and_strict_limit_does_not() -> None:
    batches = log((0, 9), (10, 19), (20, 29))
    assert acquire(SharePartition(0), batches=batches, max_records=15, batch_size=100) == [(0, 19, 1)]
    assert acquire(SharePartition(0), batches=batches, max_records=15, is_strict=True) == [(0, 14, 1)]


def test_batch_size_splits_the_acquired_ranges() -> None:
    batches = log((0, 9), (10, 19), (20, 29))
    assert acquire(SharePartition(0), batches=batches, batch_size=15) == [(0, 19, 1), (20, 29, 1)]


def test_full_share_partition_gives_no_new_records() -> None:
    share = SharePartition(0, settings=SharePartitionSettings(max_in_flight_records=10))
    acquire(share, batches=log((0, 9)))
    assert share.next_fetch_offset() is None
    acknowledge(share, 0, 0, ACCEPT)
    store(share)
    assert share.next_fetch_offset() == 10
    assert acquire(share, batches=log((10, 19)), is_strict=True) == [(10, 10, 1)]


def test_gaps_and_hidden_batches_are_archived() -> None:
    share = SharePartition(0)
    acquired = acquire(share, batches=log((2, 4), (5, 5), (8, 9), hidden={5}))
    assert acquired == [(2, 4, 1), (8, 9, 1)]
    assert share.start_offset == 2
    acknowledge(share, 2, 4, ACCEPT)
    assert store(share).start_offset == 8


def test_deleted_records_move_the_start_offset() -> None:
    share = SharePartition(0)
    acquire(share, batches=log((0, 9)))
    share.on_log_start_changed(4)
    assert (share.start_offset, share.in_flight_count) == (4, 6)
    assert acknowledge(share, 0, 9, ACCEPT) == 1
    assert store(share).start_offset == 10
    share.on_log_start_changed(50)
    assert (share.start_offset, share.next_fetch_offset()) == (50, 50)


def test_stored_state_continues_with_gaps_available() -> None:
    batches = [StateBatch(10, 11, RecordState.ACKNOWLEDGED, 1), StateBatch(14, 15, RecordState.AVAILABLE, 3)]
    share = SharePartition(10, batches)
    assert share.start_offset == 12
    assert acquire(share, batches=log((12, 13))) == [(12, 13, 1)]
    assert acquire(share, batches=log((14, 20))) == [(14, 14, 4)]


def test_first_start_offset_is_stored() -> None:
    share = SharePartition(7, stored_start_offset=NO_START_OFFSET)
    assert store(share).start_offset == 7
    assert share.take_write() is None


def test_released_records_of_a_gone_member_are_available() -> None:
    share = SharePartition(0)
    acquire(share, "a", batches=log((0, 9)))
    acquire(share, "b", batches=log((10, 19)))
    assert share.release_acquired("a") == 10
    assert share.next_fetch_offset() == 0
    assert acquire(share, "b", batches=log((0, 9))) == [(0, 9, 2)]


def test_count_of_a_lapsed_lock_is_stored_by_the_write_after_one_that_failed() -> None:
    share = SharePartition(0, settings=SharePartitionSettings(lock_duration_ms=100))
    acquire(share, batches=log((0, 9)))
    share.release_lapsed(100)
    assert share.take_write() is not None
    share.complete_write(is_stored=False)
    assert store(share).state_batches == (StateBatch(0, 9, 0, 1),)
