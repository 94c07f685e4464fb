"""Frames that lie: whatever comes, an answer, a request to the broker, or a closed connection with one line."""

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.classic_wire import (
    REQUESTS,
    ClassicClientEnd,
    ClassicServerEnd,
    fetch_answer,
    multi_answer,
    offsets_answer,
)
from support.mutilated import mutilated

from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProduceResult,
)
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.transport import TransportError

_PARTITIONS = [ClassicFetchPartition("t", number, 0, 100) for number in range(3)]
ANSWERS: list[tuple[Request[Any], bytes]] = [
    (ClassicFetch(partitions=_PARTITIONS[:1]), fetch_answer(0, b"records")),
    (ClassicFetch(partitions=_PARTITIONS), multi_answer((0, b"records"), (1, b""), (0, b"more"))),
    (ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=3), offsets_answer(9, 5, 0)),
]
_HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x7f\xff", b"\x80\x00")


def _answer(request: Any) -> Any:
    if isinstance(request, ClassicProduce):
        return ClassicProduceResult()
    if isinstance(request, ClassicFetch):
        return ClassicFetchResult(partitions=[ClassicFetchResultPartition(records=b"r")] * len(request.partitions))
    return ClassicOffsetsResult(offsets=[1])


def _check_server(frame: bytes) -> None:
    end = ClassicServerEnd(_answer)
    end.send(frame)
    if end.connection.is_closed:
        assert end.broker.requests == []
        assert end.answers == []
        (line,) = end.reports
        assert line.isprintable()
    else:
        (request,) = end.broker.requests
        assert len(end.answers) == (0 if isinstance(request, ClassicProduce) else 1)
        assert end.reports == []


def _check_client(request: Request[Any], *frames: bytes) -> None:
    end = ClassicClientEnd()
    replies, later = end.submit(request), end.submit(ANSWERS[2][0])
    for frame in frames:
        end.answer(frame)
    end.link.close()
    for outcome in (replies, later):
        (reply,) = outcome
        assert isinstance(reply, TransportError | ClassicFetchResult | ClassicOffsetsResult)
    if isinstance(replies[0], TransportError):
        assert isinstance(later[0], TransportError)
    elif isinstance(request, ClassicFetch):
        assert len(replies[0].partitions) == len(request.partitions)


@given(frame=st.binary(max_size=200))
def test_random_frames_do_not_break_server(frame: bytes) -> None:
    _check_server(frame)


@given(number=st.integers(0, 4), body=st.binary(max_size=200))
def test_random_request_bodies_do_not_break_server(number: int, body: bytes) -> None:
    _check_server(bytes((0, number)) + body)


@given(data=st.data(), name=st.sampled_from(sorted(REQUESTS)))
def test_mutilated_requests_do_not_break_server(data: st.DataObject, name: str) -> None:
    _check_server(data.draw(mutilated(REQUESTS[name])))


@given(asked=st.sampled_from(ANSWERS), frames=st.lists(st.binary(max_size=100), min_size=1, max_size=3))
def test_random_responses_do_not_break_client(asked: tuple[Request[Any], bytes], frames: list[bytes]) -> None:
    _check_client(asked[0], *frames)


@given(data=st.data(), asked=st.sampled_from(ANSWERS))
def test_mutilated_responses_do_not_break_client(data: st.DataObject, asked: tuple[Request[Any], bytes]) -> None:
    _check_client(asked[0], data.draw(mutilated(asked[1])))


@given(asked=st.sampled_from(ANSWERS), answered=st.sampled_from(ANSWERS))
def test_answers_to_other_requests(asked: tuple[Request[Any], bytes], answered: tuple[Request[Any], bytes]) -> None:
    _check_client(asked[0], answered[1])


def test_every_huge_count_and_size_everywhere() -> None:
    """Allocates next to nothing."""
    tracemalloc.start()
    try:
        for frame in REQUESTS.values():
            for at in range(len(frame)):
                for huge in _HUGE:
                    _check_server(frame[:at] + huge + frame[at + len(huge) :])
        for request, answer in ANSWERS:
            for at in range(len(answer)):
                for huge in _HUGE:
                    _check_client(request, answer[:at] + huge + answer[at + len(huge) :])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
