"""Requests whose answers are late."""

from collections.abc import Callable
from typing import Any

from barnabas.adapters.system import ManualClock
from barnabas.app.clients.shared.client_shell import LATE_MS, OverdueRequests
from barnabas.core.client.effects import NEVER
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.fetch import Fetch
from barnabas.ports.broker_api.groups import JoinGroup
from barnabas.ports.broker_api.metadata import Metadata


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[Callable[[Any], None]] = []
        self.late: list[int] = []
        self.overdue = OverdueRequests(self._submit, self.clock, self.late.append)

    def _submit(self, node: int, request: Request[Any], reply: Callable[[Any], None]) -> None:
        self.asked.append(reply)

    def ask(self, node: int, request: Request[Any]) -> list[Any]:
        box: list[Any] = []
        self.overdue.submit(node, request, box.append)
        return box

    def after(self, ms: float) -> float:
        self.clock.advance(ms)
        return self.overdue.poll(self.clock.monotonic_ms()).wake_ms


def test_late_response_of_node_is_reported_once() -> None:
    bench = Bench()
    assert bench.after(0) == NEVER
    first, second = bench.ask(1, Metadata()), bench.ask(2, Metadata())
    bench.asked[1]("fine")
    assert bench.after(LATE_MS - 1) == LATE_MS
    assert bench.late == []
    assert bench.after(1) == NEVER
    assert bench.after(10 * LATE_MS) == NEVER
    assert bench.late == [1]
    bench.asked[0]("after all")
    assert (first, second) == (["after all"], ["fine"])


def test_long_polling_request_gets_its_own_timeout() -> None:
    bench = Bench()
    bench.ask(1, Fetch(partitions=[], max_wait_ms=500))
    bench.ask(
        2, JoinGroup(group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, protocol_type="consumer", protocols=[])
    )
    assert bench.after(LATE_MS) == LATE_MS + 500
    assert bench.late == []
    assert bench.after(500) == NEVER
    assert bench.late == [1]
