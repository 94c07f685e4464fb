"""Detection of overdue requests: a paused broker keeps its connections open and does not answer."""

from collections.abc import Callable
from itertools import count
from typing import Any

from ....ports.broker_api.envelope import Request
from ....ports.broker_api.fetch import Fetch
from ....ports.broker_api.groups import JoinGroup, SyncGroup
from ....ports.clock import Clock
from ..driver import Submit
from ..effects import NEVER, Poll

LATE_MS = 3000.0
"""The delay after which a request is late. A broker that is only busy needs less; the request timeout (30 s) is far
longer, and by then a group may have expelled the member."""


class OverdueRequests:
    """Wraps the `submit` of the links, and is polled as a part. Driver's thread only."""

    def __init__(self, submit: Submit, clock: Clock, late: Callable[[int], None]) -> None:
        """`late` takes the node of an overdue request, once for each request."""
        self._submit = submit
        self._clock = clock
        self._late = late
        self._numbers = count()
        self._open: dict[int, tuple[float, int]] = {}

    def submit(self, node: int, request: Request[Any], reply: Callable[[Any], None]) -> None:
        """Send a request like `Links.submit`."""
        if isinstance(request, JoinGroup | SyncGroup):  # they wait for other members
            self._submit(node, request, reply)
            return
        may_wait_ms = request.max_wait_ms if isinstance(request, Fetch) else 0.0
        number = next(self._numbers)
        self._open[number] = (self._clock.monotonic_ms() + may_wait_ms + LATE_MS, node)

        def answered(result: Any) -> None:
            self._open.pop(number, None)
            reply(result)

        self._submit(node, request, answered)

    def poll(self, now_ms: float) -> Poll:
        for number, (due_ms, node) in list(self._open.items()):
            if due_ms <= now_ms:
                del self._open[number]
                self._late(node)
        return Poll([], min((due_ms for due_ms, _ in self._open.values()), default=NEVER))
