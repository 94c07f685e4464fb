"""Lines about single requests: slow ones with who asked for what, each one on debug, floods summed up."""

import pytest
from support.log_lines import warnings_of

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.traffic.log_line_limit import Flood
from barnabas.core.traffic.request_log import RequestWatch, SeenRequest, patience_ms
from barnabas.ports.broker_api import Caller, Heartbeat, JoinGroup
from barnabas.ports.report import Level, Line
from barnabas.testing.manual_broker import fetch, produce

SEEN = SeenRequest(
    api="Fetch", version=12, caller=Caller(client_id="app", host="10.0.0.9", listener="kafka://b:1"), size_bytes=70
)


def test_a_flood_is_summed_up() -> None:
    lines: list[str] = []
    scheduler = ManualScheduler(ManualClock())
    flood = Flood(scheduler, lines.append, lambda count: f"{count} more", lines=2, period_ms=1000)
    for number in range(5):
        flood.tell(str(number))
    assert lines == ["0", "1"]
    scheduler.advance(1000)
    assert lines == ["0", "1", "3 more"]
    flood.tell("goes on")
    scheduler.advance(1000)
    assert lines[3:] == ["1 more"]
    scheduler.advance(1000)  # quiet
    flood.tell("anew")
    assert lines[4:] == ["anew"]
    flood.tell("and")
    flood.tell("one more")
    flood.close()
    assert lines[4:] == ["anew", "and", "1 more"]


def watch(lines: list[str], each: bool = False, slow_ms: float | None = 100.0) -> RequestWatch:
    return RequestWatch(
        slow=lines.append, each=lines.append if each else None, slow_ms=slow_ms, now_ms=lambda: pytest.fail("not asked")
    )


def test_slow_is_what_takes_longer_than_the_client_wants_to_wait() -> None:
    lines: list[str] = []
    watch(lines).answered(590.0, 500.0, lambda: SEEN)
    assert lines == []
    watch(lines).answered(601.0, 500.0, lambda: SEEN)
    watch(lines).handled(101.0, lambda: SEEN)
    watch(lines, slow_ms=None).answered(10_000.0, 0.0, lambda: SEEN)
    assert lines == [
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, was slow: 601.0 ms",
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, kept the broker busy for 101.0 ms",
    ]
    assert warnings_of(lines) == lines


def test_each_request_on_debug() -> None:
    lines: list[str] = []
    watch(lines, each=True, slow_ms=None).answered(1.25, 0.0, lambda: SEEN)
    (line,) = lines
    assert isinstance(line, Line)
    assert (line.level, str(line)) == (
        Level.DEBUG,
        "Fetch v12 from app at 10.0.0.9 on kafka://b:1, 70 bytes, took 1.2 ms",
    )
    assert (line.fields["api"], line.fields["api_version"], line.fields["took_ms"]) == ("Fetch", 12, 1.25)


def test_how_long_requests_may_wait() -> None:
    assert patience_ms(fetch("t", max_wait_ms=70)) == 70
    assert patience_ms(JoinGroup(group_id="g", session_timeout_ms=1, protocol_type="", protocols=[])) == float("inf")
    assert patience_ms(produce("t", b"x")) == 0
    assert patience_ms(Heartbeat(group_id="g", generation_id=1, member_id="m")) == 0
