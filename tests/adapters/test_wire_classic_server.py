"""The broker's end: one request at a time, what is answered and what is not, what closes a connection."""

from struct import pack
from typing import Any

import pytest
from support.classic_frames import fetch, message_set, multi_fetch, multi_produce, offsets, produce, request, text
from support.classic_wire import REQUESTS, ClassicServerEnd, KeepingBroker, bare, fetch_answer, multi_answer
from support.kafka_pair import MemoryRegion, PairConnection

from barnabas.adapters.wire_classic import ClassicServer
from barnabas.ports.broker_api.classic import (
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsetsResult,
    ClassicProduceResult,
    ClassicProduceResultPartition,
)
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

HELLO = message_set(b"hello")
FETCH = REQUESTS["fetch"]
NOTHING = ClassicFetchResult(partitions=[ClassicFetchResultPartition()])
DONE = ClassicProduceResult(partitions=[ClassicProduceResultPartition("clicks", 3, next_offset=30)])


def _refused(*errors: ErrorCode) -> ClassicProduceResult:
    parts = [ClassicProduceResultPartition("clicks", at, error) for at, error in enumerate(errors)]
    return ClassicProduceResult(partitions=parts)


def test_a_request_reaches_the_broker_with_its_caller() -> None:
    end = ClassicServerEnd()
    end.send(FETCH)
    (caller,) = end.broker.callers
    assert caller == Caller(client_id=None, host="198.51.100.7", listener="PLAIN", connection=caller.connection)
    assert caller.connection > 0


def test_the_next_request_waits_for_the_answer() -> None:
    end = ClassicServerEnd()
    for offset in range(3):
        end.send(bare(fetch("t", offset)))
    assert len(end.broker.requests) == 1
    assert end.connection.paused
    for answered in range(3):
        assert [each.partitions[0].offset for each in end.broker.requests] == list(range(answered + 1))
        end.broker.replies[answered](NOTHING)
        end.run()
    assert end.answers == [fetch_answer(0)] * 3
    assert not end.connection.paused


def test_a_produce_that_is_not_done_holds_back_what_follows() -> None:
    end = ClassicServerEnd()
    end.send(REQUESTS["produce"])
    end.send(FETCH)
    assert len(end.broker.requests) == 1
    end.broker.replies[0](DONE)
    end.run()
    assert len(end.broker.requests) == 2
    assert end.answers == []


def test_an_immediate_answer_never_pauses() -> None:
    end = ClassicServerEnd(lambda request: NOTHING)
    pauses: list[bool] = []
    end.connection.pause = lambda: pauses.append(True)  # type: ignore[method-assign]  # a spy
    for _ in range(3):
        end.send(FETCH)
    assert len(end.answers) == 3
    assert pauses == []


def test_only_the_first_reply_counts() -> None:
    end = ClassicServerEnd()
    end.send(FETCH)
    end.send(FETCH)
    end.broker.replies[0](NOTHING)
    end.broker.replies[0](NOTHING)
    assert len(end.answers) == 1
    end.run()
    end.broker.replies[0](NOTHING)
    assert len(end.answers) == 1


@pytest.mark.parametrize("name", ["produce", "multi_produce"])
def test_produces_are_never_answered(name: str) -> None:
    end = ClassicServerEnd(lambda request: DONE)
    end.send(REQUESTS[name])
    assert end.answers == []
    assert end.reports == []
    assert not end.connection.is_closed


def test_regions_go_out_as_they_are() -> None:
    one, two = MemoryRegion(b"r" * 1000), MemoryRegion(b"s" * 50)
    parts = [ClassicFetchResultPartition(records=one), ClassicFetchResultPartition(records=two)]
    end = ClassicServerEnd(lambda request: ClassicFetchResult(partitions=parts[: len(request.partitions)]))
    end.send(FETCH)
    assert end.connection.last_pieces[1] is one
    end.send(bare(multi_fetch([("a", 0, 0), ("b", 0, 0)])))
    assert [piece for piece in end.connection.last_pieces if piece in (one, two)] == [one, two]
    assert end.answers == [fetch_answer(0, b"r" * 1000), multi_answer((0, b"r" * 1000), (0, b"s" * 50))]


def test_a_multi_fetch_of_nothing() -> None:
    end = ClassicServerEnd(lambda request: ClassicFetchResult(partitions=()))
    end.send(bare(multi_fetch([])))
    assert end.answers == [b"\0\0"]


def test_message_sets_are_writable_memory_of_the_frame() -> None:
    frame = bytearray(bare(multi_produce([("a", 0, HELLO), ("b", 0, HELLO)])))
    seen: list[bool] = []

    class Broker:
        def submit(self, request: Any, caller: Caller, reply: Any) -> None:
            for part in request.partitions:
                seen.append(part.records.obj is frame and not part.records.readonly)

    end = ClassicServerEnd()
    ClassicServer(Broker(), listener="x", report=print).accept(end.connection).on_frame(memoryview(frame))
    assert seen == [True, True]


def test_a_message_that_is_too_large_is_only_reported() -> None:
    end = ClassicServerEnd(lambda request: _refused(ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE))
    end.send(REQUESTS["multi_produce"])
    assert not end.connection.is_closed
    (line,) = end.reports
    for word in ("'clicks' partition 1", "MESSAGE_TOO_LARGE", "198.51.100.7:4321", "PLAIN"):
        assert word in line
    end.broker.script = lambda request: NOTHING
    end.send(FETCH)
    assert end.answers == [fetch_answer(0)]


@pytest.mark.parametrize("error", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_any_other_error_of_a_produce_closes_the_connection(error: ErrorCode) -> None:
    end = ClassicServerEnd(lambda request: _refused(ErrorCode.MESSAGE_TOO_LARGE, error, ErrorCode.CORRUPT_MESSAGE))
    end.send(REQUESTS["multi_produce"])
    assert end.connection.is_closed
    assert end.answers == []
    (line,) = end.reports
    assert f"'clicks' partition 1 failed with {error.name} (and 2 more)" in line


def test_an_error_of_offsets_closes_the_connection() -> None:
    end = ClassicServerEnd(lambda request: ClassicOffsetsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    end.send(REQUESTS["offsets"])
    assert end.connection.is_closed
    assert end.answers == []
    assert "Offsets failed: UNKNOWN_TOPIC_OR_PARTITION" in end.reports[0]


@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_broker_that_fails_closes_the_connection(name: str) -> None:
    end = ClassicServerEnd(lambda request: ApiError(ErrorCode.UNSUPPORTED_VERSION, "what is that?"))
    end.send(REQUESTS[name])
    assert end.connection.is_closed
    assert "what is that?" in end.reports[0]


class _Endless(MemoryRegion):
    """A region that says to have 1.5 GB."""

    @property
    def size(self) -> int:
        return 3 << 29


def _endless(request: Any) -> ClassicFetchResult:
    return ClassicFetchResult(partitions=[ClassicFetchResultPartition(records=_Endless(b"")) for _ in "ab"])


@pytest.mark.parametrize(
    ("frame", "script", "word"),
    [
        (FETCH, lambda request: ClassicFetchResult(partitions=()), "0 partitions"),
        (REQUESTS["multi_fetch"], lambda request: NOTHING, "1 partitions"),
        (REQUESTS["offsets"], lambda request: ClassicOffsetsResult(offsets=[2**63]), "encoded"),
        (bare(multi_fetch([("a", 0, 0), ("b", 0, 0)])), _endless, "more than one frame"),
    ],
)
def test_an_answer_that_the_protocol_cannot_carry_closes_the_connection(frame: bytes, script: Any, word: str) -> None:
    end = ClassicServerEnd(script)
    end.send(frame)
    assert end.connection.is_closed
    assert end.answers == []
    assert word in end.reports[0]


def test_an_answer_after_the_connection_has_gone_is_dropped() -> None:
    end = ClassicServerEnd()
    end.send(FETCH)
    end.connection.is_closed = True
    end.connection.step()
    assert end.connection.handler is None
    end.broker.replies[0](NOTHING)
    assert end.answers == []
    assert end.reports == []


def test_connections_have_distinct_ids_and_their_end_is_reported() -> None:
    gone: list[int] = []
    broker = KeepingBroker()
    server = ClassicServer(broker, listener="PLAIN", report=print, max_in_flight=7, gone=gone.append)
    ends = [PairConnection(("broker", 1), ("client", port)) for port in (2, 3)]
    for end in ends:
        end.handler = server.accept(end)
        end.deliver(FETCH)
    one, other = (caller.connection for caller in broker.callers)
    assert one != other
    ends[1].is_closed = True
    ends[1].step()
    assert gone == [other]
    assert server.close("the broker stops") == 1
    assert ends[0].close_reason == "the broker stops"
    broker.replies[0](NOTHING)
    ends[0].step()
    assert ends[0].sent == []
    assert gone == [other, one]
    assert server.close("the broker stops") == 0


def test_names_from_the_network_stay_on_one_line() -> None:
    end = ClassicServerEnd(
        lambda request: ClassicProduceResult(
            partitions=[
                ClassicProduceResultPartition(
                    request.partitions[0].topic, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, error_message="a\x1b[2J\nb"
                )
            ]
        )
    )
    end.send(bare(produce("x\r\n" * 1000, b"")))
    (line,) = end.reports
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (b"", ""),
        (b"\0", ""),
        (pack(">h", 5), "request id 5"),
        (pack(">h", -1), "request id -1"),
        (pack(">hhi", 18, 3, 7), "request id 18"),  # what a client of the current generation says first
        (b"GET / HTTP/1.1\r\n", "request id 18245"),
        (bare(request(1, pack(">h", -1) + bytes(16))), "-1 bytes"),  # a topic that is null
        (bare(request(1, pack(">h", -2) + bytes(16))), "-2 bytes"),
        (bare(request(1, pack(">h", 17) + bytes(16))), "17 bytes"),
        (bare(request(1, text("t") + bytes(15))), ""),
        (bare(request(1, text("t") + bytes(17))), "1 bytes follow"),
        (bare(request(1, pack(">h", 2) + b"\xff\xfe" + bytes(16))), "utf-8"),
        (bare(request(0, text("t") + pack(">ii", 0, 5) + b"four")), "5 bytes"),
        (bare(request(0, text("t") + pack(">ii", 0, 3) + b"four")), "1 bytes follow"),
        (bare(request(0, text("t") + pack(">ii", 0, -1))), "-1 bytes"),
        (bare(request(0, text("t") + pack(">ii", 0, 2**31 - 1))), "2147483647 bytes"),
        (bare(request(2, pack(">h", -1))), "-1 parts"),
        (bare(request(2, pack(">h", 32767))), "32767 parts"),
        (bare(request(2, pack(">h", 2) + bare(fetch("t"))[2:])), "2 parts"),
        (bare(request(2, pack(">h", 1) + bare(fetch("t"))[2:] * 2)), "19 bytes follow"),
        (bare(request(3, pack(">h", 3) + bytes(20))), "3 parts"),
        (bare(request(3, pack(">h", 2) + bytes(10) + text("t") + pack(">ii", 0, 1))), "1 bytes"),
        (bare(request(4, text("t") + bytes(12))), ""),
        (bare(offsets("t", 5)) + b"\0", "1 bytes follow"),
    ],
)
def test_malformed_request_closes_the_connection(frame: bytes, word: str) -> None:
    end = ClassicServerEnd()
    end.send(frame)
    assert end.connection.is_closed
    assert end.connection.close_reason == ""
    assert end.answers == []
    assert end.broker.requests == []
    (line,) = end.reports
    assert word in line
    assert "198.51.100.7:4321" in line
    assert "\n" not in line


def test_no_request_is_read_after_connection_is_closed() -> None:
    end = ClassicServerEnd()
    handler = end.connection.handler
    assert handler is not None
    handler.on_frame(memoryview(b"\0\x09"))
    handler.on_frame(memoryview(FETCH))
    assert end.broker.requests == []
    assert len(end.reports) == 1


@pytest.mark.parametrize("name", list(REQUESTS))
def test_no_beginning_of_a_request_is_a_request(name: str) -> None:
    for size in range(len(REQUESTS[name])):
        end = ClassicServerEnd()
        end.send(REQUESTS[name][:size])
        assert end.connection.is_closed
        assert end.broker.requests == []
        assert len(end.reports) == 1
