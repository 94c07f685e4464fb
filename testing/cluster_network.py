"""The network between the brokers of a test cluster: all of them are connected until a test cuts them off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..ports.errors import ClosedError
from ..ports.scheduler import Scheduler
from ..ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    ServerTls,
    Transport,
    TransportError,
)

Opened = Callable[[Connection | TransportError], ConnectionHandler | None]


class ClusterNetwork:
    """The pairs of brokers that cannot reach each other. Thread-safe."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._cuts: set[frozenset[int]] = set()

    def own(self, port: int, broker_id: int) -> None:
        """Note that this broker listens on the port."""
        self._owners[port] = broker_id

    def owner(self, address: Address) -> int | None:
        """Return the broker at an address; None: the address belongs to no broker of the cluster."""
        return self._owners.get(address[1])

    def cut(self, one: int, other: int) -> None:
        """Let nothing new pass between two brokers from now on; `CutTransport.close_to` closes what is open."""
        self._cuts.add(frozenset((one, other)))

    def mend(self, one: int, other: int) -> None:
        """Undo `cut`."""
        self._cuts.discard(frozenset((one, other)))

    def is_cut(self, one: int, other: int) -> bool:
        """True if nothing passes between them."""
        return frozenset((one, other)) in self._cuts

    @property
    def cuts(self) -> list[tuple[int, int]]:
        """All pairs that are cut off from each other."""
        return sorted((min(pair), max(pair)) for pair in self._cuts)


class CutTransport:
    """Fulfils `Transport` with another one, for one life of a broker; what it opens to other brokers can be cut.

    That is enough: of two brokers, one has opened each connection between them.
    """

    def __init__(self, network: ClusterNetwork, broker_id: int, inner: Transport, scheduler: Scheduler) -> None:
        self._network = network
        self._broker_id = broker_id
        self._inner = inner
        self._scheduler = scheduler
        self._open: dict[Connection, int] = {}

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        """See `Transport`."""
        return self._inner.listen(address, accept, limits, tls)

    def connect(
        self, address: Address, opened: Opened, *, timeout_ms: float, limits: Limits, tls: ClientTls | None = None
    ) -> None:
        """See `Transport`."""
        peer = self._network.owner(address)
        if peer is None:
            self._inner.connect(address, opened, timeout_ms=timeout_ms, limits=limits, tls=tls)
        elif self._network.is_cut(self._broker_id, peer):
            self._scheduler.call_soon(lambda: _failed(opened, peer))
        else:
            taken = partial(self._taken, peer, opened)
            self._inner.connect(address, taken, timeout_ms=timeout_ms, limits=limits, tls=tls)

    def close_to(self, peer: int, closed: threading.Event) -> None:
        """Close the connections to another broker, on the thread of this one; `closed` is set then."""

        def close() -> None:
            for connection in [each for each, other in self._open.items() if other == peer]:
                connection.close()
            closed.set()

        try:
            self._scheduler.call_soon(close)
        except ClosedError:
            closed.set()

    def _taken(self, peer: int, opened: Opened, result: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(result, TransportError):
            return opened(result)
        if self._network.is_cut(self._broker_id, peer):
            result.close()
            _failed(opened, peer)
            return None
        handler = opened(result)
        if handler is None:
            return None
        self._open[result] = peer
        return _Handler(handler, lambda: self._open.pop(result, None))


class _Handler:
    """Fulfils `ConnectionHandler` with another one, and calls `over` when the connection is closed."""

    __slots__ = ("_inner", "_over", "on_frame")

    def __init__(self, inner: ConnectionHandler, over: Callable[[], object]) -> None:
        self._inner = inner
        self._over = over
        self.on_frame = inner.on_frame

    def on_closed(self, error: TransportError | None) -> None:
        self._over()
        self._inner.on_closed(error)


def _failed(opened: Opened, peer: int) -> None:
    opened(TransportError(f"cannot connect to broker {peer}: the test has cut it off"))


def soon(scheduler: Scheduler | None, callback: Callable[[], None]) -> None:
    """Run it on the thread of a broker, unless that has ended."""
    if scheduler is not None:
        with suppress(ClosedError):
            scheduler.call_soon(callback)
