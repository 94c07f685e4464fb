"""The shared base of the clients of the current generation: the driver of their state machines, a lock, and calls."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from ....core.client.arguments import check_request
from ....core.client.calls import Calls, Destination, LeaderCall, NodeCall, Target
from ....core.client.cluster_view import ClusterView, ViewSettings
from ....core.client.driver import Submit
from ....core.client.effects import NEVER, Part, Poll
from ....core.client.errors import ClientTimeout
from ....core.client.network.links import LinkDependencies, Links
from ....core.client.network.unreachable_brokers import UnreachableBrokers
from ....ports.broker_api.envelope import Caller, Request, ResultT
from ....ports.broker_api.fetch import Fetch
from ....ports.broker_api.groups import JoinGroup, SyncGroup
from ....ports.broker_api.share_groups import ShareFetch
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError, ClosedError
from ....ports.types import TopicPartition
from ...connector import Connector
from .blocking_shell import GRACE_S, BlockingShell, logger
from .locked import Locked
from .settings import CommonSettings, copy_settings

ItemT = TypeVar("ItemT")


# Detection of overdue requests: a paused broker keeps its connections open and does not answer.

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
        may_wait_ms = request.max_wait_ms if isinstance(request, Fetch | ShareFetch) else 0.0
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


class ClientShell(BlockingShell):
    """The part of a client that has threads.

    The reactor's thread drives the machines; the user's threads change them under `lock`, then `wake`, and wait on
    `changed`, which shares that lock and is notified when something may have come true.
    """

    def __init__(self, connector: Connector, settings: CommonSettings, *, allow_auto_create: bool = False) -> None:
        """Start the reactor; `allow_auto_create`: brokers may create topics that are asked for.

        Raises what `Connector.start` raises.
        """
        super().__init__(connector)
        self.settings = settings
        entropy = connector.entropy
        scheduler = connector.start()
        self.view = ClusterView(
            connector.bootstrap,
            entropy,
            copy_settings(ViewSettings, settings, allow_auto_create=allow_auto_create),
            moved=lambda: scheduler.call_soon(self._links.tidy),
        )
        self.calls = Calls(
            self.view,
            entropy,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
        )
        self._unreachable = UnreachableBrokers(connector.clock, logger.warning)
        outside = LinkDependencies(
            scheduler=scheduler,
            clock=connector.clock,
            entropy=entropy,
            connect=connector.connect,
            caller=Caller(client_id=settings.client_id),
            unreachable=self._unreachable,
            reconnect_backoff_ms=settings.reconnect_backoff_ms,
            reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
        )
        self._links = Links(outside, self.view.address, self.view.on_node_status)
        overdue = OverdueRequests(self._links.submit, connector.clock, self._on_late)
        self._begin(scheduler, overdue.submit)
        # The driver polls last what is added first: overdue requests after the view, which sends some of them, and the
        # view after the other parts, which may request metadata from it.
        self.add_part(overdue, guarded=False)
        self.add_part(self.view)
        self.add_part(self.calls)

    @property
    def why(self) -> str:
        reason = self.view.failure_reason or self._unreachable.last_error
        return "" if reason is None else f"; last: {reason}"

    def add_part(self, part: Part, *, guarded: bool = True) -> None:
        """Drive this state machine too; `guarded`: with the lock held, else the machine takes the lock itself."""
        self._driver.add(Locked(part, self.changed) if guarded else part)

    def ask(
        self,
        request: Request[ResultT],
        target: Destination = Target.ANY,
        *,
        timeout_ms: float | None = None,
        retriable: Callable[[Any], ErrorCode] = lambda _: ErrorCode.NONE,
    ) -> ResultT:
        """Send the request and wait for its result.

        Raises the `BarnabasError` of a request without a result, `TypeError` and `ValueError` for an invalid request.
        """
        check_request(request)
        limit = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        box: list[Any] = []
        call = NodeCall(
            request=request,
            target=target,
            done=self.putter(box),
            deadline_ms=self.now_ms() + limit,
            retriable=retriable,
        )
        result: ResultT = self._await(call, box, limit)
        if isinstance(result, BarnabasError):
            raise result
        return result

    def ask_leaders(
        self,
        items: Sequence[ItemT],
        partition_of: Callable[[ItemT], TopicPartition],
        build: Callable[[Sequence[ItemT]], Request[Any]],
        outcomes: Callable[[Any], Sequence[tuple[ErrorCode, Any]]],
        *,
        timeout_ms: float | None = None,
        retries_max: int = 1_000_000,
    ) -> list[Any]:
        """Ask each item's leader; return per item the answer, or its `BarnabasError`. Raises the errors of `ask`."""
        if not items:
            return []
        check_request(build(items))
        limit = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        box: list[Any] = []
        call = LeaderCall(
            items=items,
            partition_of=partition_of,
            build=build,
            outcomes=outcomes,
            done=self.putter(box),
            deadline_ms=self.now_ms() + limit,
            retries_max=retries_max,
        )
        answers = self._await(call, box, limit)
        return [answers[index] for index in range(len(items))]

    def _await(self, call: "NodeCall | LeaderCall[Any]", box: list[Any], limit_ms: float) -> Any:
        with self.lock:
            if self.closed:
                raise ClosedError("the client is closed")
            self.calls.add(call)
            self.wake()
            if not self.wait(lambda: bool(box), limit_ms / 1000 + GRACE_S):
                raise ClientTimeout("the client's reactor does not answer")
        return box[0]

    def putter(self, box: list[Any]) -> Callable[[Any], None]:
        """Return a callback that puts an answer into the box and notifies waiting threads; it needs the lock held."""

        def put(answer: Any) -> None:
            box.append(answer)
            self.changed.notify_all()

        return put

    def _on_late(self, node: int) -> None:
        self.view.on_request_overdue(node)
        address = self.view.address(node)
        if address is not None:
            self._unreachable.on_late(address)
        self.wake()

    def _close_links(self) -> None:
        self._links.close()
        with self.lock:
            self.calls.fail_all(ClosedError("the client was closed"))
