"""LeaveGroup requests, so that the other members need not wait for the end of a leaving member's session."""

from collections.abc import Callable
from typing import Any

from attrs import define

from ....ports.broker_api.groups import LeaveGroup, LeavingMember
from ....ports.errors import BarnabasError
from ..coordinator_finder import CoordinatorFinder, is_gone
from ..effects import Send


@define(eq=False)
class _Leave:
    request: LeaveGroup
    done: Callable[[], None]
    last_error: BarnabasError | None
    """The error of the last coordinator lookup when the wait began."""

    def to(self, node: int) -> Send:
        return Send(node, self.request, lambda _result, _now: self.done())


class LeaveRequests:
    """Sends each request once; a second time if the connection turns out to be dead and the coordinator is found again.

    There is one lookup only: a leaving member does not wait for an unreachable cluster.
    """

    def __init__(self, finder: CoordinatorFinder, group_id: str) -> None:
        self._finder = finder
        self._group_id = group_id
        self._sends: list[Send] = []
        self._waiting: list[_Leave] = []

    def send(self, node: int | None, member_id: str, reason: str, done: Callable[[], None]) -> None:
        """Send to `node`, or to the coordinator once it is found. `done` is called once, after answer or failure."""
        leaving = LeavingMember(member_id=member_id, reason=reason)
        request = LeaveGroup(group_id=self._group_id, members=[leaving])

        def answered(result: Any, now_ms: float) -> None:
            if isinstance(result, BarnabasError) and is_gone(result):
                self._finder.mark_coordinator_unknown(result, now_ms)
                self._wait(request, done)
            else:
                done()

        if node is None:
            self._wait(request, done)
        else:
            self._sends.append(Send(node, request, answered))

    def poll(self) -> list[Send]:
        sends, self._sends = self._sends, []
        if self._waiting:
            node = self._finder.node()
            if node is not None:
                sends += [each.to(node) for each in self._waiting]
                self._waiting.clear()
            for each in [each for each in self._waiting if each.last_error is not self._finder.last_error]:
                self._waiting.remove(each)
                each.done()
        return sends

    def _wait(self, request: LeaveGroup, done: Callable[[], None]) -> None:
        self._waiting.append(_Leave(request, done, self._finder.last_error))
