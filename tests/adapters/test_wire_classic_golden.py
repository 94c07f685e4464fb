"""Bytes written by hand from the description of the protocol (facts A1), both ends against them."""

from struct import pack
from typing import Any

import pytest
from support.classic_wire import ClassicClientEnd, ClassicServerEnd
from support.kafka_pair import MemoryRegion, normal

from barnabas.ports.broker_api.classic import (
    RANDOM_PARTITION,
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResult,
)
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.offsets import LATEST
from barnabas.ports.error_codes import ErrorCode

HELLO = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")
"""A message set of one message (facts A2)."""

PRODUCE = "0000 0004 74657374 00000000 0000000f 0000000b 01 00 3610a686 68656c6c6f"
PRODUCE_ANYWHERE = "0000 0004 74657374 ffffffff 00000000"
FETCH = "0001 0004 74657374 00000000 0000000000000000 00100000"
"""The worked bytes of the facts, without their size: 0x18."""
MULTI_FETCH = (
    "0002 0002"
    "0004 74657374 00000001 0000000100000002 0000ffff"
    "0003 c3a962 00000000 0000000000000000 00100000"  # "éb": two characters, three bytes
)
MULTI_PRODUCE = "0003 0002 0001 61 00000000 0000000f 0000000b 01 00 3610a686 68656c6c6f 0001 62 00000007 00000000"
MULTI_PRODUCE_NOTHING = "0003 0000"
OFFSETS = "0004 0004 74657374 00000002 ffffffffffffffff 0000000a"

FETCHED = "0000 0000000b 01 00 3610a686 68656c6c6f"
FETCHED_NOTHING = "0000"
OUT_OF_RANGE = "0001"
MULTI_FETCHED = "0000 00000011 0000 0000000b 01 00 3610a686 68656c6c6f 00000002 0003"
OFFSETS_FOUND = "0000 00000002 0000000000000123 0000000000000000"
NO_OFFSETS = "0000 00000000"


def _produce(*places: tuple[str, int, bytes]) -> ClassicProduce:
    return ClassicProduce(
        partitions=[ClassicProducePartition(topic, number, memoryview(records)) for topic, number, records in places]
    )


ONE_FETCH = ClassicFetch(partitions=[ClassicFetchPartition("test", 0, 0, 1 << 20)])
TWO_FETCHES = ClassicFetch(
    partitions=[ClassicFetchPartition("test", 1, 0x1_0000_0002, 65535), ClassicFetchPartition("éb", 0, 0, 1 << 20)]
)
ONE_OFFSETS = ClassicOffsets(topic="test", partition=2, time_ms=LATEST, max_offsets=10)

REQUESTS: list[tuple[str, Request[Any]]] = [
    (PRODUCE, _produce(("test", 0, HELLO))),
    (PRODUCE_ANYWHERE, _produce(("test", RANDOM_PARTITION, b""))),
    (FETCH, ONE_FETCH),
    (MULTI_FETCH, TWO_FETCHES),
    (MULTI_PRODUCE, _produce(("a", 0, HELLO), ("b", 7, b""))),
    (MULTI_PRODUCE_NOTHING, ClassicProduce(partitions=())),
    (OFFSETS, ONE_OFFSETS),
]

ANSWERS: list[tuple[str, str, Request[Any], Any]] = [
    (
        FETCH,
        FETCHED,
        ONE_FETCH,
        ClassicFetchResult(partitions=[ClassicFetchResultPartition(ErrorCode.NONE, HELLO)]),
    ),
    (FETCH, FETCHED_NOTHING, ONE_FETCH, ClassicFetchResult(partitions=[ClassicFetchResultPartition()])),
    (
        FETCH,
        OUT_OF_RANGE,
        ONE_FETCH,
        ClassicFetchResult(partitions=[ClassicFetchResultPartition(ErrorCode.OFFSET_OUT_OF_RANGE)]),
    ),
    (
        MULTI_FETCH,
        MULTI_FETCHED,
        TWO_FETCHES,
        ClassicFetchResult(
            partitions=[
                ClassicFetchResultPartition(ErrorCode.NONE, HELLO),
                ClassicFetchResultPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        ),
    ),
    (OFFSETS, OFFSETS_FOUND, ONE_OFFSETS, ClassicOffsetsResult(offsets=[0x123, 0])),
    (OFFSETS, NO_OFFSETS, ONE_OFFSETS, ClassicOffsetsResult()),
]


@pytest.mark.parametrize(("frame", "request_"), REQUESTS)
def test_requests_at_the_broker(frame: str, request_: Request[Any]) -> None:
    end = ClassicServerEnd()
    end.send(bytes.fromhex(frame))
    assert [normal(request) for request in end.broker.requests] == [normal(request_)]
    assert end.reports == []


@pytest.mark.parametrize(("frame", "request_"), REQUESTS)
def test_requests_of_the_client(frame: str, request_: Request[Any]) -> None:
    end = ClassicClientEnd()
    replies = end.submit(request_)
    assert [sent.hex() for sent in end.frames] == [bytes.fromhex(frame).hex()]
    assert replies == ([ClassicProduceResult()] if isinstance(request_, ClassicProduce) else [])


@pytest.mark.parametrize(("asked", "answer", "request_", "result"), ANSWERS)
def test_answers_of_the_broker(asked: str, answer: str, request_: Request[Any], result: Any) -> None:
    end = ClassicServerEnd(lambda request: result)
    end.send(bytes.fromhex(asked))
    assert [sent.hex() for sent in end.answers] == [bytes.fromhex(answer).hex()]


@pytest.mark.parametrize(("asked", "answer", "request_", "result"), ANSWERS)
def test_answers_at_the_client(asked: str, answer: str, request_: Request[Any], result: Any) -> None:
    end = ClassicClientEnd()
    replies = end.submit(request_)
    end.answer(bytes.fromhex(answer))
    assert normal(replies) == normal([result])


def test_a_multi_fetch_of_one_is_answered_as_one() -> None:
    end = ClassicServerEnd(
        lambda request: ClassicFetchResult(partitions=[ClassicFetchResultPartition(records=MemoryRegion(HELLO))])
    )
    end.send(bytes.fromhex("0002 0001 0004 74657374 00000000 0000000000000000 00100000"))
    assert end.answers == [bytes.fromhex("0000 00000011 0000") + HELLO]


NUMBERS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: -1,
    ErrorCode.NONE: 0,
    ErrorCode.OFFSET_OUT_OF_RANGE: 1,
    ErrorCode.CORRUPT_MESSAGE: 2,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 3,
    ErrorCode.INVALID_FETCH_SIZE: 4,
}


@pytest.mark.parametrize("error", list(ErrorCode))
def test_errors_on_the_wire(error: ErrorCode) -> None:
    """All that Kafka 0.7 did not know is its "unknown"."""
    end = ClassicServerEnd(lambda request: ClassicFetchResult(partitions=[ClassicFetchResultPartition(error)]))
    end.send(bytes.fromhex(FETCH))
    assert end.answers == [pack(">h", NUMBERS.get(error, -1))]


@pytest.mark.parametrize("number", [-32768, -2, *range(-1, 6), 35, 32767])
def test_errors_from_the_wire(number: int) -> None:
    known = {number: error for error, number in NUMBERS.items()}
    expected = known.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)
    end = ClassicClientEnd()
    one, two, offsets = end.submit(ONE_FETCH), end.submit(TWO_FETCHES), end.submit(ONE_OFFSETS)
    end.answer(pack(">h", number))
    end.answer(bytes(2) + pack(">ih", 2, 0) + pack(">ih", 2, number))
    end.answer(pack(">hi", number, 0))
    assert [part.error for part in one[0].partitions] == [expected]
    assert [part.error for part in two[0].partitions] == [ErrorCode.NONE, expected]
    assert offsets[0].error is expected
