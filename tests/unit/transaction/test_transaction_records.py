"""The records of `__transaction_state`, byte by byte."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.coordinator.record_fields import UnknownVersion
from barnabas.core.coordinator.transaction.loading import TransactionLoading
from barnabas.core.coordinator.transaction.records import (
    StoredTransaction,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas.core.coordinator.transaction.states import TransactionState
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

ONGOING = StoredTransaction(
    producer_id=258,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset((TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("a", 2))),
    updated_ms=5,
    started_ms=4,
)
ONGOING_BYTES = bytes.fromhex(
    "0000"  # version 0
    "0000000000000102 0003 0000ea60 01"
    "00000002"  # two topics
    "0001 61 00000001 00000002"
    "0001 74 00000002 00000000 00000001"
    "0000000000000005 0000000000000004"
)


def test_a_transaction_as_kafka_writes_it() -> None:
    assert encode_key("orders") == b"\x00\x00\x00\x06orders"
    assert encode_value(ONGOING) == ONGOING_BYTES
    assert (decode_key(b"\x00\x00\x00\x06orders"), decode_value(ONGOING_BYTES)) == ("orders", ONGOING)


def test_an_id_without_a_transaction_has_null_for_its_partitions() -> None:
    empty = StoredTransaction(producer_id=1, producer_epoch=0, timeout_ms=2, updated_ms=3)
    value = encode_value(empty)
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert decode_value(value) == empty


def test_a_value_of_version_1_is_read() -> None:
    """Flexible: Kafka 4 writes it with tags for the second version of transactions."""
    value = bytes.fromhex(
        "0001 0000000000000102 0003 0000ea60 01"
        "03 0261 02 00000002 00 0274 03 00000000 00000001 00"
        "0000000000000005 0000000000000004"
        "01 03 01 02"  # a tag that we do not know
    )
    assert decode_value(value) == ONGOING
    null = bytes.fromhex("0001 0000000000000102 0003 0000ea60 00 00 0000000000000005 ffffffffffffffff 00")
    assert decode_value(null).partitions == frozenset()


def test_a_transaction_of_version_2_as_kafka_writes_it() -> None:
    value = bytes.fromhex(
        "0001 0000000000000102 0003 0000ea60 01"
        "03 0261 02 00000002 00 0274 03 00000000 00000001 00"
        "0000000000000005 0000000000000004"
        "03 00 08 0000000000000101 01 08 0000000000000103 02 02 0002"
    )
    stored = evolve(ONGOING, previous_producer_id=257, next_producer_id=259, client_transaction_version=2)
    assert encode_value(stored) == encode_value(stored, 1) == value
    assert decode_value(value) == stored


@given(
    st.builds(
        StoredTransaction,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 2**15 - 1),
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.sampled_from([each for each in TransactionState if each]),
        partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9),
        updated_ms=st.integers(0, 2**62),
        started_ms=st.integers(-1, 2**62),
        previous_producer_id=st.integers(-1, 2**63 - 1),
        next_producer_id=st.integers(-1, 2**63 - 1),
        client_transaction_version=st.integers(0, 2),
    ),
    st.integers(0, 2),
)
def test_transaction_record_is_read_as_written(stored: StoredTransaction, level: int) -> None:
    assert decode_value(encode_value(stored, level)) == stored


@given(st.binary(max_size=80))
def test_nonsense_is_refused_and_left_out(data: bytes) -> None:
    loading = TransactionLoading(1)
    for decode in (decode_key, decode_value):
        try:
            decode(data)
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION)
    loading.add(encode_key("x"), data)
    loading.add(data, encode_value(ONGOING))
    assert loading.stored.get("x") is None or loading.report() is None or "left out" in (loading.report() or "")


def test_unreadable_transaction_records_are_skipped_and_counted() -> None:
    loading = TransactionLoading(3)
    loading.add(encode_key("x"), ONGOING_BYTES)
    loading.add(None, b"")
    loading.add(b"\x00\x07\x00\x01a", ONGOING_BYTES)
    loading.add(encode_key("y"), ONGOING_BYTES[:-1])
    loading.add(encode_key("z"), ONGOING_BYTES.replace(b"\x60\x01", b"\x60\x09"))
    loading.add(encode_key("gone"), ONGOING_BYTES)
    loading.add(encode_key("gone"), None)
    assert loading.stored == {"x": ONGOING}
    report = loading.report() or ""
    assert report.startswith("__transaction_state-3: 4 records were left out")


def test_an_id_that_no_record_can_name() -> None:
    with pytest.raises(ApiError, match="32768 bytes"):
        encode_key("x" * 32768)
    with pytest.raises(UnknownVersion):
        decode_key(b"\x00\x01\x00\x01x")
