"""Frames that lie: whatever comes, an answer, a request to the broker, or a closed connection with one line."""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka_frames import ServerEnd, header, request_frame
from support.kafka_pair import joined
from support.kafka_samples import SAMPLES
from support.mutilated import mutilated

from barnabas.adapters.wire_kafka import versions
from barnabas.adapters.wire_kafka.table import BY_KEY, BY_REQUEST
from barnabas.adapters.wire_kafka.wire import DECODE_ERRORS
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, Malformed

_api_versions = st.sampled_from(
    [(api.key, version) for api in BY_KEY.values() for version in range(api.versions[0], api.versions[1] + 1)]
)


def _check(frame: bytes) -> None:
    version = int.from_bytes(frame[2:4], "big", signed=True)

    def answer(request: Any) -> Any:
        api = BY_REQUEST[type(request)]
        if version >= api.ids_since and api.resolved is not None:
            return request.failed(ApiError(ErrorCode.NOT_COORDINATOR, "about the topics of the request alone"))
        return SAMPLES[api.key].at(version).result

    end = ServerEnd(answer)
    end.send(frame)
    if end.connection.is_closed:
        assert len(end.reports) == 1
        assert "\n" not in end.reports[0]
        assert end.answers == []
    else:
        silent = bool(end.broker.requests) and getattr(end.broker.requests[0], "acks", 1) == 0
        assert len(end.answers) == (0 if silent else 1)
        assert all("which is not supported" in report for report in end.reports), end.reports
        assert len(end.reports) <= 1


@given(frame=st.binary(max_size=200))
def test_random_frames_do_not_break_server(frame: bytes) -> None:
    _check(frame)


@given(api=_api_versions, body=st.binary(max_size=200), client=st.sampled_from([None, "", "c1"]))
def test_random_bodies_of_known_apis(api: tuple[int, int], body: bytes, client: str | None) -> None:
    key, version = api
    tags = b"\x00" if version >= BY_KEY[key].flexible_from else b""
    _check(header(key, version, 7, client) + tags + body)


@given(data=st.data(), api=_api_versions)
def test_mutilated_requests_do_not_break_server(data: st.DataObject, api: tuple[int, int]) -> None:
    key, version = api
    _check(data.draw(mutilated(request_frame(key, version, 7, SAMPLES[key].at(version).request))))


@given(data=st.data(), version=st.integers(-2, 6))
def test_mutilated_api_versions(data: st.DataObject, version: int) -> None:
    tags = b"\x00" if version >= versions.FLEXIBLE else b""
    body = versions.request_body(max(version, 0), "name", "1.0")
    _check(data.draw(mutilated(header(versions.KEY, version, 7) + tags + body)))


@given(data=st.data(), api=_api_versions)
def test_mutilated_responses_raise_decode_errors_only(data: st.DataObject, api: tuple[int, int]) -> None:
    key, version = api
    writer = BY_KEY[key].writer(version)
    BY_KEY[key].result.write(writer, version, SAMPLES[key].at(version).result)
    frame = data.draw(mutilated(joined(writer.pieces())))
    with suppress(Malformed, *DECODE_ERRORS):
        BY_KEY[key].result.read(BY_KEY[key].reader(version, memoryview(frame), 0, 10_000), version)


@pytest.mark.slow
def test_every_prefix_of_every_request_and_every_huge_count() -> None:
    """Each truncation, and each place overwritten with the largest count, allocates next to nothing."""
    tracemalloc.start()
    try:
        for key, sample in SAMPLES.items():
            for version in BY_KEY[key].versions:
                frame = request_frame(key, version, 7, sample.at(version).request)[:90]
                for at in range(len(frame)):
                    _check(frame[:at])
                    for huge in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                        _check(frame[:at] + huge + frame[at + len(huge) :])
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
