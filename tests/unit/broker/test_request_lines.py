"""Lines about single requests: slow ones with who asked for what, each one on debug, floods summed up."""

import pytest
from support.log_lines import warnings_of

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.traffic.log_line_limit import LogLineLimit
from barnabas.core.traffic.request_log import CompletedRequest, RequestLog, client_wait_ms
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import Heartbeat, JoinGroup
from barnabas.ports.report import Level, Line
from barnabas.testing.manual_broker import fetch, produce

SEEN = CompletedRequest(
    api="Fetch", version=12, caller=Caller(client_id="app", host="10.0.0.9", listener="kafka://b:1"), size_bytes=70
)


def test_a_flood_is_summed_up() -> None:
    lines: list[str] = []
    scheduler = ManualScheduler(ManualClock())
    flood = LogLineLimit(scheduler, lines.append, lambda count: f"{count} more", lines=2, period_ms=1000)
    for number in range(5):
        flood.report_line(str(number))
    assert lines == ["0", "1"]
    scheduler.advance(1000)
    assert lines == ["0", "1", "3 more"]
    flood.report_line("more")
    scheduler.advance(1000)
    assert lines[3:] == ["1 more"]
    scheduler.advance(1000)  # quiet
    flood.report_line("again")
    assert lines[4:] == ["again"]
    flood.report_line("and")
    flood.report_line("one more")
    flood.close()
    assert lines[4:] == ["again", "and", "1 more"]


def watch(lines: list[str], each: bool = False, slow_ms: float | None = 100.0) -> RequestLog:
    return RequestLog(
        slow=lines.append, each=lines.append if each else None, slow_ms=slow_ms, now_ms=lambda: pytest.fail("not asked")
    )


def test_slow_is_what_takes_longer_than_the_client_wants_to_wait() -> None:
    lines: list[str] = []
    watch(lines).on_response(590.0, 500.0, lambda: SEEN)
    assert lines == []
    watch(lines).on_response(601.0, 500.0, lambda: SEEN)
    watch(lines).on_handled(101.0, lambda: SEEN)
    watch(lines, slow_ms=None).on_response(10_000.0, 0.0, lambda: SEEN)
    assert lines == [
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, was slow: 601.0 ms",
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, kept the broker busy for 101.0 ms",
    ]
    assert warnings_of(lines) == lines


def test_each_request_on_debug() -> None:
    lines: list[str] = []
    watch(lines, each=True, slow_ms=None).on_response(1.25, 0.0, lambda: SEEN)
    (line,) = lines
    assert isinstance(line, Line)
    assert (line.level, str(line)) == (
        Level.DEBUG,
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, took 1.2 ms",
    )
    assert (line.fields["api"], line.fields["api_version"], line.fields["took_ms"]) == ("Fetch", 12, 1.25)


def test_how_long_requests_may_wait() -> None:
    assert client_wait_ms(fetch("t", max_wait_ms=70)) == 70
    assert client_wait_ms(JoinGroup(group_id="g", session_timeout_ms=1, protocol_type="", protocols=[])) == float("inf")
    assert client_wait_ms(produce("t", b"x")) == 0
    assert client_wait_ms(Heartbeat(group_id="g", generation_id=1, member_id="m")) == 0
