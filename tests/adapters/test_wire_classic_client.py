"""The client's end: order of answers, when a produce counts as sent, timeouts, and the end of a connection."""

from struct import pack
from typing import Any

import pytest
from support.classic_frames import message_set
from support.classic_wire import (
    TIMEOUT_MS,
    ClassicClientEnd,
    SlowLink,
    fetch_answer,
    multi_answer,
    offsets_answer,
)
from support.kafka_pair import HandScheduler, PairTransport

from barnabas.adapters.wire_classic import ClassicLink, connect_classic
from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicOffsets,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResult,
)
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Request
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError

HELLO = message_set(b"hello")
OFFSETS = ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=2)
SENT = [ClassicProduceResult()]


def _fetch(*offsets: int) -> ClassicFetch:
    return ClassicFetch(partitions=[ClassicFetchPartition("t", 0, offset, 1000) for offset in offsets])


def _produce(records: bytes | bytearray = HELLO, topic: str = "t", partition: int = 0) -> ClassicProduce:
    return ClassicProduce(partitions=[ClassicProducePartition(topic, partition, memoryview(records))])


def _types(*replies: list[Any]) -> list[list[type]]:
    return [[type(reply) for reply in each] for each in replies]


def test_classic_link_is_open_broker_link() -> None:
    link: BrokerLink = ClassicClientEnd().link
    assert isinstance(link, ClassicLink)
    assert link.is_open
    assert link.address == ("broker", 9092)


def test_connect_without_listener_reports_transport_error() -> None:
    transport = PairTransport()
    opened: list[ClassicLink | TransportError] = []
    scheduler = HandScheduler()
    connect_classic(transport, scheduler, ("h", 1), request_timeout_ms=1, connect_timeout_ms=1, opened=opened.append)
    assert opened == []

    def refuse(*args: Any, **options: Any) -> None:
        args[1](TransportError("cannot connect"))

    transport.connect = refuse  # type: ignore[method-assign]  # a network without a listener
    connect_classic(transport, scheduler, ("h", 1), request_timeout_ms=1, connect_timeout_ms=1, opened=opened.append)
    assert [str(error) for error in opened] == ["cannot connect"]


def test_answers_belong_to_requests_in_order() -> None:
    end = ClassicClientEnd()
    one, offsets, two = end.submit(_fetch(0)), end.submit(OFFSETS), end.submit(_fetch(1, 2))
    assert end.submit(_produce()) == SENT
    end.answer(fetch_answer(0, HELLO))
    assert (len(one), len(offsets), len(two)) == (1, 0, 0)
    end.answer(offsets_answer(9, 0))
    end.answer(multi_answer((1, b""), (0, HELLO)))
    assert bytes(one[0].partitions[0].records) == HELLO
    assert list(offsets[0].offsets) == [9, 0]
    assert [(part.error, bytes(part.records)) for part in two[0].partitions] == [
        (ErrorCode.OFFSET_OUT_OF_RANGE, b""),
        (ErrorCode.NONE, HELLO),
    ]


def test_fetched_records_outlive_their_frame_and_each_other() -> None:
    end = ClassicClientEnd()
    replies = end.submit(_fetch(0, 1))
    end.answer(multi_answer((0, HELLO), (0, HELLO)))
    one, two = (part.records for part in replies[0].partitions)
    assert (one, two) == (HELLO, HELLO)
    assert type(one) is type(two) is bytes  # neither keeps the other's memory


def test_an_error_of_a_whole_multi_fetch_is_the_error_of_each() -> None:
    end = ClassicClientEnd()
    replies = end.submit(_fetch(0, 1))
    end.answer(pack(">h", -1))
    assert [part.error for part in replies[0].partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert end.link.is_open


def test_requests_of_the_current_generation_are_refused() -> None:
    end = ClassicClientEnd()
    (error,) = end.submit(Metadata(topics=None))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "Metadata" in error.message
    assert end.frames == []


@pytest.mark.parametrize(
    "request_",
    [
        _produce(partition=2**31),
        _produce(topic="x" * 32_768),
        _produce(topic="\ud800"),
        _fetch(2**63),
        _fetch(*range(32_768)),
        ClassicOffsets(topic="t", partition=0, time_ms=0, max_offsets=-(2**31) - 1),
    ],
    ids=["partition", "long topic", "surrogate", "offset", "too many", "count"],
)
def test_values_that_the_protocol_cannot_carry_are_refused(request_: Request[Any]) -> None:
    end = ClassicClientEnd()
    (error,) = end.submit(request_)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert end.frames == []
    assert end.link.is_open


def test_a_request_of_more_than_a_frame_is_refused() -> None:
    end = ClassicClientEnd()
    half = ClassicProducePartition("t", 0, memoryview(bytes(1 << 20)))
    (error,) = end.submit(ClassicProduce(partitions=[half] * 2048))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_REQUEST


def test_names_have_as_many_bytes_as_they_say() -> None:
    end = ClassicClientEnd()
    end.submit(_produce(topic="Ünï", records=b""))
    assert end.frames == [pack(">hh", 0, 5) + "Ünï".encode() + pack(">ii", 0, 0)]


# --- produces leave


def test_a_produce_is_sent_when_all_of_it_has_left() -> None:
    end = SlowLink()
    one, two = end.submit(_produce()), end.submit(_produce())
    end.scheduler.advance(50)
    assert (one, two) == ([], [])
    end.take(4 + len(end.connection.sent[0]) - 1)
    end.scheduler.advance(50)
    assert one == []
    end.take(1)
    end.scheduler.advance(50)
    assert (one, two) == (SENT, [])
    end.take()
    end.scheduler.advance(50)
    assert (one, two) == (SENT, SENT)
    end.scheduler.advance(3 * TIMEOUT_MS)
    assert end.scheduler.waiting == 0
    assert end.link.is_open


def test_a_produce_is_sent_at_once_where_the_network_takes_it() -> None:
    end = SlowLink()
    replies = end.submit(_produce())
    end.take()
    assert replies == []  # never within `submit`, and not before the connection could say that it broke
    end.scheduler.advance(0)
    assert replies == SENT


def test_looks_become_rare_while_nothing_leaves() -> None:
    end = SlowLink()
    end.submit(_produce(bytes(100_000)))
    looks: list[bool] = []
    look = end.link._check_unsent
    end.link._check_unsent = lambda: (looks.append(True), look())[1]  # type: ignore[method-assign, func-returns-value]  # a spy
    end.scheduler.advance(TIMEOUT_MS / 2)
    assert 100 < len(looks) < 250


def test_a_produce_on_a_connection_that_broke_fails() -> None:
    """A connection that broke while it was sending has nothing unsent either."""
    end = SlowLink()
    replies = end.submit(_produce())
    end.take()
    end.link.on_closed(TransportError("reset"))
    end.scheduler.advance(100)
    assert _types(replies) == [[TransportError]]
    assert "reset" in str(replies[0])
    assert end.scheduler.waiting == 0


def test_a_broker_that_takes_nothing_ends_the_link() -> None:
    end = SlowLink()
    replies = [end.submit(_produce()) for _ in range(2)]
    end.scheduler.advance(TIMEOUT_MS)
    assert replies == [[], []]
    end.scheduler.advance(TIMEOUT_MS / 2)
    assert _types(*replies) == [[TransportError]] * 2
    assert "took nothing" in str(replies[0][0])
    assert end.scheduler.waiting == 0


def test_a_broker_that_takes_it_slowly_has_all_the_time() -> None:
    end = SlowLink()
    replies = end.submit(_produce(bytes(1000)))
    while end.connection.unsent > 100:
        end.take(100)
        end.scheduler.advance(TIMEOUT_MS / 2)
    assert replies == []
    end.take()
    end.scheduler.advance(100)
    assert replies == SENT


def test_writable_records_are_the_callers_again() -> None:
    end = SlowLink()
    records = bytearray(HELLO)
    end.submit(_produce(records))
    records[:] = b"\xdd" * len(records)
    assert b"".join(bytes(piece) for piece in end.connection.last_pieces if isinstance(piece, bytes)).endswith(HELLO)


def test_read_only_records_are_not_copied() -> None:
    end = SlowLink()
    end.submit(_produce(HELLO))
    assert [piece.obj for piece in end.connection.last_pieces if isinstance(piece, memoryview)] == [HELLO]


def test_an_error_in_a_reply_is_the_callers_own() -> None:
    end = SlowLink()

    def reply(result: Any) -> None:
        raise ValueError("mine")

    end.link.submit(_produce(), Caller(), reply)
    others = end.submit(_produce())
    end.take()
    with pytest.raises(ValueError, match="mine"):
        end.scheduler.advance(50)
    end.scheduler.advance(50)
    assert others == SENT
    assert end.submit(_produce()) == []
    end.take()
    end.scheduler.advance(50)
    assert end.link.is_open


# --- ends


def test_closing_fails_what_is_on_its_way() -> None:
    end = ClassicClientEnd()
    replies = [end.submit(_fetch(0)), end.submit(OFFSETS)]
    end.link.close()
    end.link.close()
    end.run()
    assert _types(*replies) == [[TransportError]] * 2
    assert _types(end.submit(_produce()), end.submit(OFFSETS)) == [[TransportError]] * 2
    assert not end.link.is_open
    assert end.scheduler.waiting == 0


def test_a_lost_connection_fails_what_is_on_its_way() -> None:
    end = ClassicClientEnd()
    replies = end.submit(_fetch(0))
    assert end.connection is not None
    end.connection.close()
    end.run()
    assert _types(replies) == [[TransportError]]
    assert "broker:9092" in str(replies[0])


def test_a_request_that_is_not_answered_in_time_ends_the_link() -> None:
    end = ClassicClientEnd()
    replies = [end.submit(_fetch(0)), end.submit(OFFSETS)]
    end.scheduler.advance(TIMEOUT_MS)
    assert replies == [[], []]
    end.scheduler.advance(TIMEOUT_MS / 4)
    assert _types(*replies) == [[TransportError]] * 2
    assert "ClassicFetch was not answered" in str(replies[0][0])
    assert end.scheduler.waiting == 0


def test_answers_in_time_leave_no_timer_behind() -> None:
    end = ClassicClientEnd()
    for _ in range(20):
        replies = end.submit(_fetch(0))
        end.answer(fetch_answer(0))
        end.scheduler.advance(TIMEOUT_MS / 3)
        assert len(replies) == 1
    end.scheduler.advance(TIMEOUT_MS)
    assert end.scheduler.waiting == 0
    assert end.link.is_open


def test_an_answer_that_was_not_due_ends_the_link() -> None:
    end = ClassicClientEnd()
    end.submit(_produce())
    end.answer(fetch_answer(0))
    (failure,) = end.submit(OFFSETS)
    assert isinstance(failure, TransportError)
    assert "without a request" in str(failure)


@pytest.mark.parametrize(
    ("request_", "answer", "word"),
    [
        (_fetch(0), b"", ""),
        (_fetch(0), b"\0", ""),
        (_fetch(0, 1), b"\0", ""),
        (_fetch(0, 1), b"\0\0", ""),
        (_fetch(0, 1), multi_answer((0, HELLO)), ""),
        (_fetch(0, 1), multi_answer((0, HELLO), (0, HELLO)) + b"\0", "1 bytes follow"),
        (_fetch(0, 1), multi_answer((0, HELLO), (0, HELLO), (0, b"")), "6 bytes follow"),
        (_fetch(0, 1), multi_answer((0, HELLO), (0, HELLO))[:-1], "17 bytes"),
        (_fetch(0, 1), b"\0\0" + pack(">ih", 1, 0) + pack(">ih", 2, 0), "1 bytes"),
        (_fetch(0, 1), b"\0\0" + pack(">ih", -1, 0) + pack(">ih", 2, 0), "-1 bytes"),
        (_fetch(0, 1), b"\0\0" + pack(">ih", 2**31 - 1, 0) + HELLO, "2147483647 bytes"),
        (ClassicFetch(partitions=()), multi_answer((0, b"")), "6 bytes follow"),
        (OFFSETS, b"", ""),
        (OFFSETS, b"\0\0", ""),
        (OFFSETS, pack(">hi", 0, 1), "1 offsets"),
        (OFFSETS, pack(">hi", 0, -1), "-1 offsets"),
        (OFFSETS, pack(">hi", 0, 2**31 - 1) + bytes(8), "2147483647 offsets"),
        (OFFSETS, offsets_answer(3, 2) + b"\0", "2 offsets"),
        (OFFSETS, offsets_answer(3, 2)[:-1], "2 offsets"),
    ],
)
def test_answers_that_make_no_sense_end_the_link(request_: Request[Any], answer: bytes, word: str) -> None:
    end = ClassicClientEnd()
    replies = [end.submit(request_), end.submit(OFFSETS)]
    end.answer(answer)
    assert _types(*replies) == [[TransportError]] * 2
    assert "malformed" in str(replies[0][0])
    assert word in str(replies[0][0])
    assert not end.link.is_open
