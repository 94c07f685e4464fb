"""The batches of a fetch that belong to aborted transactions."""

from struct import pack
from typing import Any

import pytest

from barnabas.core.client.consumer.fetch_position import ValidationContext, filter_aborted, validate_batches
from barnabas.core.message.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, assign_offset, write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.fetch import AbortedTransaction
from barnabas.ports.errors import ApiError

ABORT, COMMIT = 0, 1


class Log:
    """Batches one after the other."""

    def __init__(self) -> None:
        self.data = b""
        self.end = 0

    def add(self, count: int = 1, *, producer: int = -1, transactional: bool = True) -> "Log":
        messages = [Message(b"%d" % n) for n in range(self.end, self.end + count)]
        numbers: dict[str, Any] = {}
        if producer >= 0:
            numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        return self._append(encode_batch(messages, now_ms=0, transactional=transactional and producer >= 0, **numbers))

    def mark(self, producer: int, kind: int, key: bytes | None = None) -> "Log":
        marker = Message(pack(">hi", 0, 3), key=pack(">hh", 0, kind) if key is None else key)
        batch = encode_batch([marker], now_ms=0, producer_id=producer, producer_epoch=0, base_sequence=-1)
        batch[22] |= CONTROL_BIT | TRANSACTIONAL_BIT
        write_crc(batch, 0, len(batch))
        return self._append(batch)

    def _append(self, batch: bytearray) -> "Log":
        assign_offset(batch, self.end, 0)
        self.data += batch
        self.end = validate_batches(batch, self.end, ValidationContext(allows_gaps=True)).next_offset
        return self

    def visible(self, *aborted: tuple[int, int], start: int = 0) -> list[int]:
        """Base offsets of the batches that are handed out, markers among them."""
        chain = validate_batches(self.data, start, ValidationContext(allows_gaps=True))
        assert chain.fault is None
        observed = [AbortedTransaction(*each) for each in aborted]
        return [header.base_offset for _, header in filter_aborted(chain.batches, self.data, observed)]


def test_without_a_list_everything_is_visible() -> None:
    log = Log().add(producer=1).mark(1, COMMIT).add()
    assert log.visible() == [0, 1, 2]


def test_a_transaction_is_left_out_from_its_first_offset_to_its_marker() -> None:
    log = Log().add(2, producer=1).mark(1, COMMIT).add(2, producer=1).add(producer=1).mark(1, ABORT).add(producer=1)
    assert log.visible((1, 3)) == [0, 2, 6, 7]


def test_other_producers_and_records_without_transaction_pass() -> None:
    log = Log().add(producer=1).add(producer=2).add().add(producer=1, transactional=False).mark(1, ABORT)
    assert log.visible((1, 0)) == [1, 2, 3, 4]


def test_transactions_of_several_producers_overlap() -> None:
    log = Log().add(producer=1).add(producer=2).mark(1, ABORT).add(producer=1).mark(2, ABORT).add(producer=2)
    assert log.visible((2, 1), (1, 0)) == [2, 3, 4, 5]


def test_one_producer_aborts_twice() -> None:
    log = Log().add(producer=1).mark(1, ABORT).add(producer=1).mark(1, ABORT).add(producer=1).mark(1, COMMIT)
    assert log.visible((1, 2), (1, 0)) == [1, 3, 4, 5]


def test_a_transaction_that_began_before_what_was_fetched() -> None:
    log = Log()
    log.end = 100
    log.add(producer=7).mark(7, ABORT).add(producer=7)
    assert log.visible((7, 3), start=100) == [101, 102]


def test_a_marker_that_commits_ends_nothing_that_is_aborted_later() -> None:
    log = Log().add(producer=1).mark(1, COMMIT).add(producer=1).mark(1, ABORT)
    assert log.visible((1, 2)) == [0, 1, 3]


def test_malformed_transaction_marker_raises_api_error() -> None:
    log = Log().add(producer=1)
    before = len(log.data)
    log.mark(1, ABORT)
    broken = bytearray(log.data)
    broken[before + 61] = 0x03  # an odd length, which would be negative
    write_crc(broken, before, len(broken))
    log.data = bytes(broken)
    with pytest.raises(ApiError, match="the marker of a transaction at offset 1"):
        log.visible((1, 0))
