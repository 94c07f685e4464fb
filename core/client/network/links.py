"""Connections to brokers: opened for the first request, and again after a back-off when they were lost."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ....ports.broker_api.envelope import BrokerLink, Caller, Reply, Request
from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError, ClosedError
from ....ports.scheduler import Scheduler
from ....ports.transport import Address, AuthenticationError, ClosedUnanswered, TransportError
from ....ports.values import frozen
from ..effects import backoff_ms
from .connection import BrokerConnection, Connect
from .unreachable_brokers import UnreachableBrokers

UNANSWERED_MS = 3000
"""A client without any answer stops trying when brokers have closed its connections for this time."""


@frozen(kw_only=True)
class LinkDependencies:
    """The environment of links: scheduler, clock, entropy, connector and caller; and the reconnect back-off (ms)."""

    scheduler: Scheduler
    clock: Clock
    entropy: Entropy
    connect: Connect
    caller: Caller
    unreachable: UnreachableBrokers | None = None
    """Is notified of the attempts to connect."""
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1000


class NodeLink:
    """The connection to one address, open or being opened. Owner thread only.

    A failed attempt, or a lost connection, delays the next attempt; the delay grows until a broker has answered.
    Requests that wait for a connection fail with the attempt; no request is sent twice.
    """

    def __init__(
        self, address: Address, outside: LinkDependencies, on_status: Callable[[bool], None] = lambda _: None
    ) -> None:
        """`on_status` takes True when a broker has answered there, False when it could not be reached."""
        self.address = address
        self._outside = outside
        self._on_status = on_status
        self._connection = BrokerConnection(
            address, outside.scheduler, outside.connect, opened=self._opened, failed=self._failed
        )
        self._waiting: list[tuple[Request[Any], Reply[Any]]] = []
        self._failures = 0
        self._not_before_ms = 0.0
        self._closed = False

    def submit(self, request: Request[Any], reply: Reply[Any]) -> None:
        """Send the request, once there is a connection; `reply` is called exactly once, at once or later."""
        if self._closed:
            reply(self._error("was given up"))
        elif self._connection.link is not None:
            self._hand_over(request, reply)
        else:
            self._waiting.append((request, reply))
            self._connection.open(self._not_before_ms - self._outside.clock.monotonic_ms())

    def close(self) -> None:
        """Close the link. Requests that wait for it fail; requests in flight end as the link ends them."""
        self._closed = True
        waiting, self._waiting = self._waiting, []
        self._connection.close()
        if self._outside.unreachable is not None:
            self._outside.unreachable.clear(self.address)
        for _, reply in waiting:
            reply(self._error("was given up"))

    def _failed(self, error: TransportError) -> None:
        waiting, self._waiting = self._waiting, []
        self._delay_reconnect()
        if self._outside.unreachable is not None:
            self._outside.unreachable.on_failed(self.address, error)
        self._on_status(False)
        for _, reply in waiting:
            reply(error)

    def _opened(self, _: BrokerLink) -> None:
        waiting, self._waiting = self._waiting, []
        if self._outside.unreachable is not None:
            self._outside.unreachable.on_connected(self.address)
        for request, reply in waiting:
            self._hand_over(request, reply)

    def _hand_over(self, request: Request[Any], reply: Reply[Any]) -> None:
        link = self._connection.link
        if link is None:  # lost while the requests before this one were handed over
            reply(self._error("was lost"))
            return

        def answered(result: Any) -> None:
            if isinstance(result, TransportError | ClosedError):
                self._lost(link)
            else:
                self._failures = 0
                self._on_status(True)
            reply(result)

        link.submit(request, self._outside.caller, answered)

    def _lost(self, link: BrokerLink) -> None:
        if self._connection.forget(link):
            self._delay_reconnect()
            self._on_status(False)
            link.close()

    def _delay_reconnect(self) -> None:
        outside = self._outside
        self._failures += 1
        self._not_before_ms = outside.clock.monotonic_ms() + backoff_ms(
            self._failures, outside.reconnect_backoff_ms, outside.reconnect_backoff_max_ms, outside.entropy.fraction()
        )

    def _error(self, what: str) -> TransportError:
        return TransportError(f"the connection to {self.address[0]}:{self.address[1]} {what}")


class Links:
    """A link to each broker, by the number of its node. Owner thread only."""

    def __init__(
        self,
        outside: LinkDependencies,
        address: Callable[[int], Address | None],
        on_status: Callable[[int, bool], None] = lambda _node, _answers: None,
    ) -> None:
        """`address` returns the address of a node; None when the node is not, or no longer, in the cluster.

        `on_status` takes a node and whether it answered or could not be reached; it is called before the reply.
        """
        self._outside = outside
        self._address = address
        self._on_status = on_status
        self._links: dict[int, NodeLink] = {}
        self._has_answered = False
        self._unanswered_since_ms: float | None = None

    def submit(self, node: int, request: Request[Any], reply: Reply[Any]) -> None:
        """Send a request like `NodeLink.submit`; over a new connection if the node's address has changed.

        If no broker has answered yet, and brokers close connections for `UNANSWERED_MS`, the error is an
        `AuthenticationError`: their listeners want TLS or SASL.
        """
        if not self._has_answered:
            reply = partial(self._on_first_answers, reply)
        address = self._address(node)
        if address is None:
            reply(TransportError(f"broker {node} has left the cluster"))
            return
        link = self._links.get(node)
        if link is None or link.address != address:
            self._links[node] = fresh = NodeLink(address, self._outside, partial(self._on_status, node))
            if link is not None:
                link.close()
            link = fresh
        link.submit(request, reply)

    def _on_first_answers(self, reply: Reply[Any], result: Any) -> None:
        if isinstance(result, ClosedUnanswered) and not self._has_answered:
            now_ms = self._outside.clock.monotonic_ms()
            if self._unanswered_since_ms is None:
                self._unanswered_since_ms = now_ms
            if now_ms - self._unanswered_since_ms >= UNANSWERED_MS:
                result = AuthenticationError(str(result))
        elif not isinstance(result, BarnabasError):
            self._has_answered = True
        reply(result)

    def tidy(self) -> None:
        """Close the links of nodes that have other addresses now or left the cluster; their open requests fail."""
        for node, link in list(self._links.items()):
            if self._address(node) != link.address and self._links.get(node) is link:
                del self._links[node]
                link.close()

    def close(self) -> None:
        """Close all links."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
