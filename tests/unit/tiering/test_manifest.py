"""The manifest of a partition: its changes, its lineage, and what expires."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.tiering.manifest import (
    CorruptManifest,
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    claim,
    decode_manifest,
    drop_deleted,
    encode_manifest,
    epochs_between,
    expired_start,
    finish_copy,
    give_up_dead_branches,
    raise_log_start,
    start_copy,
)
from barnabas.core.tiering.remote_log_manager import merged_lineage

TOPIC = TieredTopic(name="t", topic_id=b"i" * 16, partitions=1, configs={"a": "b"})
FINISHED = SegmentState.COPY_FINISHED


def segment(
    base: int, end: int, *epochs: tuple[int, int], state: SegmentState = FINISHED, time: int = 0
) -> RemoteSegment:
    return RemoteSegment(
        segment_id=f"{base}-{end}",
        base_offset=base,
        next_offset=end,
        size=100,
        max_timestamp=time,
        epochs=epochs or ((0, base),),
        leader_epoch=0,
        state=state,
    )


def manifest(*segments: RemoteSegment, epochs: tuple[tuple[int, int], ...] = ((0, 0),), log_start: int = 0) -> Manifest:
    return Manifest(topic=TOPIC, partition=0, leader_epoch=1, log_start=log_start, epochs=epochs, segments=segments)


def test_encoded_manifest_is_decoded_to_the_same() -> None:
    whole = manifest(segment(0, 10), segment(10, 20, state=SegmentState.COPY_STARTED), epochs=((0, 0), (3, 10)))
    assert decode_manifest(encode_manifest(whole)) == whole


@given(st.binary(max_size=200))
def test_garbage_is_a_corrupt_manifest(content: bytes) -> None:
    with pytest.raises(CorruptManifest):
        decode_manifest(content)


def test_cut_manifest_is_corrupt() -> None:
    content = encode_manifest(manifest(segment(0, 10)))
    for end in range(len(content)):
        with pytest.raises(CorruptManifest):
            decode_manifest(content[:end])


def test_only_finished_segments_of_the_lineage_are_readable() -> None:
    whole = manifest(
        segment(0, 10),
        segment(10, 20, state=SegmentState.COPY_STARTED),
        segment(20, 30, state=SegmentState.DELETE_STARTED),
        segment(30, 40, (0, 30), (1, 35)),
        segment(30, 40, (2, 30)),
        epochs=((0, 0), (2, 30)),
    )
    assert [each.epochs for each in whole.readable] == [((0, 0),), ((2, 30),)]
    assert whole.find(5) is whole.segments[0]
    assert whole.find(15) is None
    assert whole.find(35) is whole.segments[4]
    assert (whole.covered_to(0), whole.covered_to(10), whole.covered_to(33)) == (10, 10, 40)
    assert (whole.first_readable(10), whole.first_readable(40)) == (30, None)


def test_overlapping_segments_cover_together() -> None:
    whole = manifest(segment(0, 100), segment(60, 80), segment(90, 120))
    assert whole.covered_to(0) == 120
    found = whole.find(95)
    assert found is not None and found.next_offset == 120
    inside = whole.find(85)
    assert inside is not None and inside.base_offset == 0


def test_claim_gives_up_unfinished_copies_and_keeps_the_rest() -> None:
    stored = manifest(segment(0, 10), segment(10, 20, state=SegmentState.COPY_STARTED))
    mine = claim(stored, TOPIC, 0, leader_epoch=7, log_start=3, log_end=30, epochs=[(0, 0), (7, 20)])
    assert [each.state for each in mine.segments] == [FINISHED, SegmentState.DELETE_STARTED]
    assert (mine.leader_epoch, mine.log_start, mine.epochs) == (7, 3, ((0, 3), (7, 20)))


def test_claim_of_a_log_that_ends_below_the_start_gives_up_all_segments() -> None:
    stored = raise_log_start(manifest(segment(0, 10), segment(10, 20)), 12)
    mine = claim(stored, TOPIC, 0, leader_epoch=7, log_start=3, log_end=8, epochs=[(0, 0), (7, 8)])
    assert {each.state for each in mine.segments} == {SegmentState.DELETE_STARTED}
    assert (mine.log_start, mine.epochs) == (8, ((7, 8),))


def test_expiry_by_size_counts_records_once_that_were_copied_twice() -> None:
    once = manifest(segment(0, 10), segment(10, 20))
    twice = manifest(segment(0, 10), segment(0, 10), segment(10, 20))
    for retained in (0, 50, 100, 150, 200):
        starts = {
            expired_start(each, now_ms=0, retention_ms=-1, retention_bytes=retained, bytes_not_copied=0)
            for each in (once, twice)
        }
        assert starts == {20 if retained == 0 else 10 if retained <= 100 else 0}


def test_copy_is_readable_once_it_is_finished_and_not_after_its_deletion_began() -> None:
    new = segment(0, 10, state=SegmentState.COPY_STARTED)
    started = start_copy(manifest(), new)
    assert not started.readable
    finished = finish_copy(started, new.segment_id, [(0, 0)])
    assert finished.covered_to(0) == 10
    assert finish_copy(finished, new.segment_id, [(0, 0)]) == finished
    raised = raise_log_start(finished, 10)
    assert (raised.readable, raised.log_start) == ((), 10)
    assert finish_copy(raised, new.segment_id, raised.epochs) == raised
    assert drop_deleted(raised, [new.segment_id]).segments == ()
    assert drop_deleted(finished, [new.segment_id]) == finished


def test_second_copy_gives_up_one_that_was_not_finished() -> None:
    first, second = (segment(0, end, state=SegmentState.COPY_STARTED) for end in (10, 12))
    states = {each.segment_id: each.state for each in start_copy(start_copy(manifest(), first), second).segments}
    assert states == {"0-10": SegmentState.DELETE_STARTED, "0-12": SegmentState.COPY_STARTED}


def test_dead_branches_are_given_up() -> None:
    whole = manifest(segment(0, 10, (1, 0)), segment(10, 20, (4, 10)), epochs=((4, 0),), log_start=0)
    assert [each.state for each in give_up_dead_branches(whole).segments] == [SegmentState.DELETE_STARTED, FINISHED]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "not_copied", "start"),
    [
        (-1, -1, 0, 0),
        (50, -1, 0, 20),
        (-1, 250, 0, 10),
        (-1, 250, 100, 20),
        (-1, 0, 0, 40),
        (0, -1, 0, 40),
        (99, 99, 0, 30),
    ],
)
def test_oldest_segments_expire_first(retention_ms: int, retention_bytes: int, not_copied: int, start: int) -> None:
    whole = manifest(*(segment(base, base + 10, time=base) for base in (0, 10, 20, 30)))
    whole = evolve(whole, segments=tuple(evolve(each, max_timestamp=each.base_offset * 3) for each in whole.segments))
    found = expired_start(
        whole, now_ms=100, retention_ms=retention_ms, retention_bytes=retention_bytes, bytes_not_copied=not_copied
    )
    assert found == start


def test_nothing_expires_behind_a_gap() -> None:
    whole = manifest(segment(0, 10), segment(20, 30))
    assert expired_start(whole, now_ms=100, retention_ms=0, retention_bytes=-1, bytes_not_copied=0) == 10


def test_lineage_before_the_log_comes_from_the_manifest() -> None:
    assert merged_lineage([(0, 0), (2, 50), (3, 90)], [(4, 60), (5, 100)]) == ((0, 0), (2, 50), (4, 60), (5, 100))
    assert merged_lineage([(0, 0), (2, 50)], [(2, 60)]) == ((0, 0), (2, 50))
    assert merged_lineage([(0, 0)], []) == ((0, 0),)
    assert merged_lineage([], [(1, 5)]) == ((1, 5),)


def test_epochs_between_two_offsets() -> None:
    epochs = [(0, 0), (1, 10), (3, 20)]
    assert epochs_between(epochs, 5, 15) == ((0, 5), (1, 10))
    assert epochs_between(epochs, 10, 20) == ((1, 10),)
    assert epochs_between(epochs, 25, 30) == ((3, 25),)
    assert epochs_between([(1, 10)], 0, 15) == ((1, 10),)
