"""The findings of `barnabas log` in files."""

from struct import pack

from barnabas import Message
from barnabas.core.logtools.dump import examine_segment, index_entries
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_writer import encode_batch

BASE = 40


def segment(batches: int = 3, per_batch: int = 2) -> bytearray:
    content = bytearray()
    for number in range(batches):
        messages = [Message(value=b"%d" % i) for i in range(per_batch)]
        batch = encode_batch(messages, now_ms=1_700_000_000_000 + number)
        assign_offset(batch, BASE + number * per_batch, 5)
        content += batch
    return content


def test_a_sound_segment_has_no_problems() -> None:
    found = list(examine_segment(segment(), BASE))
    assert [f.header.base_offset for f in found if f.header] == [40, 42, 44]
    assert not any(f.problem for f in found)


def test_a_flipped_bit_in_the_records_is_a_crc_problem_and_the_rest_is_still_read() -> None:
    content = segment()
    size = len(content) // 3
    content[size + 65] ^= 1
    found = list(examine_segment(content, BASE))
    assert [bool(f.problem) for f in found] == [False, True, False]
    assert "CRC" in str(found[1].problem)


def test_a_truncated_tail_is_reported_with_its_position() -> None:
    content = segment()
    found = list(examine_segment(content[:-3], BASE))
    assert found[-1].position == len(content) // 3 * 2
    assert "is truncated after" in str(found[-1].problem)
    assert "the offsets from 44 on cannot be read" in str(found[-1].problem)


def test_garbage_ends_the_walk() -> None:
    found = list(examine_segment(bytes(segment()) + b"\0" * 100, BASE))
    assert found[-1].header is None
    assert "the offsets from 46 on cannot be read" in str(found[-1].problem)


def test_a_damaged_header_is_reported_with_its_offsets_and_later_batches_are_checked() -> None:
    content = segment()
    size = len(content) // 3
    content[size + 16] ^= 1
    found = list(examine_segment(content, BASE, BASE + 6))
    assert [f.header and f.header.base_offset for f in found] == [40, None, 44]
    assert [f.position for f in found] == [0, size, 2 * size]
    assert "the offsets 42 to 43 cannot be read" in str(found[1].problem)


def test_decreasing_offsets_are_reported() -> None:
    content = segment()
    assign_offset(memoryview(content)[len(content) // 3 * 2 :], 41, 5)
    assert "at least 44" in str(list(examine_segment(content, BASE))[-1].problem)


def test_index_entries_are_read_and_half_ones_left_out() -> None:
    assert index_entries(pack(">iiii", 3, 100, 5, 200) + b"\0", BASE) == [(43, 100), (45, 200)]
