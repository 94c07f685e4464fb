"""Drives the state machines of `core.client`: keeps links to brokers, sends what they ask for, wakes them in time."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.client.calls import Calls, Destination, LeaderCall, NodeCall, Target
from ...core.client.cluster_view import ClusterView, ViewSettings
from ...core.client.effects import NEVER, Part, Send, backoff_ms
from ...core.client.errors import ClientTimeout
from ...ports.broker_api import BrokerLink, Caller, Request
from ...ports.broker_api.envelope import ResultT
from ...ports.error_codes import ErrorCode
from ...ports.errors import BarnabasError, ClosedError
from ...ports.transport import Address, TransportError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from .connector import Connector
from .waiting import GRACE_S, WaitingRoom

ItemT = TypeVar("ItemT")


@frozen(kw_only=True)
class ShellSettings:
    """What is the same for every client. Times in ms."""

    client_id: str = "barnabas"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1000
    metadata_max_age_ms: float = 300_000
    default_api_timeout_ms: int = 60_000
    allow_auto_create: bool = False


class _Node:
    """The link to one broker, or the way there. Reactor only."""

    __slots__ = ("address", "connecting", "failures", "link", "not_before_ms", "pending")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.link: BrokerLink | None = None
        self.connecting = False
        self.pending: list[tuple[Send, bool]] = []
        self.failures = 0
        self.not_before_ms = 0.0


class ClientShell(WaitingRoom):
    """The part of a client that has threads.

    The reactor's thread runs `_turn`; the user's threads change the machines under `lock`, then `wake`, and wait on
    `changed`, which shares that lock and is notified when something may have come true.
    """

    def __init__(self, connector: Connector, settings: ShellSettings) -> None:
        """Starts the reactor. Raises what `Connector.start` raises."""
        super().__init__(connector)
        self.settings = settings
        entropy = connector.entropy
        self.view = ClusterView(
            connector.bootstrap,
            entropy,
            ViewSettings(
                retry_backoff_ms=settings.retry_backoff_ms,
                retry_backoff_max_ms=settings.retry_backoff_max_ms,
                metadata_max_age_ms=settings.metadata_max_age_ms,
                allow_auto_create=settings.allow_auto_create,
            ),
        )
        self.calls = Calls(
            self.view,
            entropy,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
        )
        # The view comes last: the others tell it that they miss something.
        self._parts: tuple[tuple[Part, bool], ...] = ((self.calls, True), (self.view, True))
        self._caller = Caller(client_id=settings.client_id)
        self._nodes: dict[int, _Node] = {}
        self._scheduler = connector.start()

    def add_part(self, part: Part, *, guarded: bool = True) -> None:
        """Drive this machine too; `guarded`: under the lock, else it takes the lock by itself."""
        self._parts = ((part, guarded), *self._parts)

    def ask(
        self,
        request: Request[ResultT],
        target: Destination = Target.ANY,
        *,
        timeout_ms: float | None = None,
        retriable: Callable[[Any], ErrorCode] = lambda _: ErrorCode.NONE,
    ) -> ResultT:
        """Send the request and wait for its result. Raises the `BarnabasError` for which there is none."""
        limit = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        box: list[Any] = []
        call = NodeCall(
            request=request,
            target=target,
            done=self._putter(box),
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
        place: Callable[[ItemT], TopicPartition],
        build: Callable[[Sequence[ItemT]], Request[Any]],
        outcomes: Callable[[Any], Sequence[tuple[ErrorCode, Any]]],
        *,
        timeout_ms: float | None = None,
        retries_max: int = 1_000_000,
    ) -> list[Any]:
        """Ask each item's leader; per item the answer, or its `BarnabasError`."""
        if not items:
            return []
        limit = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        box: list[Any] = []
        call = LeaderCall(
            items=items,
            place=place,
            build=build,
            outcomes=outcomes,
            done=self._putter(box),
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

    def _putter(self, box: list[Any]) -> Callable[[Any], None]:
        def put(answer: Any) -> None:
            box.append(answer)
            self.changed.notify_all()  # answers are given with the lock held

        return put

    def _turn(self) -> None:
        if not self._begin_turn():
            return
        now = self.now_ms()
        wake = NEVER
        for part, guarded in self._parts:
            if guarded:
                with self.lock:
                    poll = part.poll(now)
            else:
                poll = part.poll(now)
            wake = min(wake, poll.wake_ms)
            for send in poll.sends:
                self._submit(send, guarded)
        self._wake_at(wake, now)

    def _submit(self, send: Send, guarded: bool) -> None:
        address = self.view.address(send.node)
        if address is None:
            self._answer(send, guarded, TransportError(f"broker {send.node} has left the cluster"))
            return
        node = self._nodes.get(send.node)
        if node is not None and node.address != address:
            self._drop(send.node, node)
            node = None
        if node is None:
            node = self._nodes[send.node] = _Node(address)
        if node.link is not None:
            self._hand_over(send, guarded, node)
            return
        node.pending.append((send, guarded))
        if not node.connecting:
            node.connecting = True
            delay = node.not_before_ms - self.now_ms()
            if delay > 0:
                self._scheduler.call_later(delay, lambda: self._connect(node))
            else:
                self._connect(node)

    def _connect(self, node: _Node) -> None:
        if self.closed:
            return
        self.connector.connect(node.address, lambda outcome: self._opened(node, outcome))

    def _opened(self, node: _Node, outcome: BrokerLink | TransportError) -> None:
        node.connecting = False
        pending, node.pending = node.pending, []
        if isinstance(outcome, TransportError):
            node.failures += 1
            settings = self.settings
            node.not_before_ms = self.now_ms() + backoff_ms(
                node.failures,
                settings.reconnect_backoff_ms,
                settings.reconnect_backoff_max_ms,
                self.connector.entropy.fraction(),
            )
            for send, guarded in pending:
                self._answer(send, guarded, outcome)
            return
        if self.closed:
            outcome.close()
            return
        node.failures = 0
        node.link = outcome
        for send, guarded in pending:
            self._hand_over(send, guarded, node)

    def _hand_over(self, send: Send, guarded: bool, node: _Node) -> None:
        link = node.link
        if link is None:  # lost while the requests before this one were handed over
            self._answer(send, guarded, TransportError(f"connection to {node.address[0]}:{node.address[1]} was lost"))
            return

        def reply(result: Any) -> None:
            if isinstance(result, TransportError | ClosedError) and node.link is link:
                node.link = None
                link.close()
            self._answer(send, guarded, result)

        link.submit(send.request, self._caller, reply)

    def _answer(self, send: Send, guarded: bool, result: Any) -> None:
        now = self.now_ms()
        if guarded:
            with self.lock:
                send.answer(result, now)
                self.changed.notify_all()
        else:
            send.answer(result, now)
        self.wake()

    def _drop(self, number: int, node: _Node) -> None:
        self._nodes.pop(number, None)
        pending, node.pending = node.pending, []
        link, node.link = node.link, None
        if link is not None:
            link.close()
        for send, guarded in pending:
            self._answer(send, guarded, TransportError("the connection was given up"))

    def _hang_up(self) -> None:
        for number, node in list(self._nodes.items()):
            self._drop(number, node)
        with self.lock:
            self.calls.fail_all(ClosedError("the client was closed"))
