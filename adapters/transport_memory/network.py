"""A network inside the process, with faults to order. Everything runs on one scheduler; a seed replays it."""

from collections.abc import Callable
from functools import partial

from ...core.traffic.memory_budget import MemoryBudget
from ...ports.entropy import Entropy
from ...ports.scheduler import Scheduler
from ...ports.transport import (
    Address,
    AuthenticationError,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    ServerTls,
    TransportError,
)
from ...ports.values import frozen
from .connection import MemoryConnection, Pipe, one_line
from .faults import NetworkFaults

Accept = Callable[[Connection], ConnectionHandler]
Opened = Callable[[Connection | TransportError], ConnectionHandler | None]

_FIRST_FREE_PORT = 40_000


@frozen(kw_only=True)
class PretendedTls:
    """Fulfils `ServerTls` and `ClientTls` without encrypting anything: one end shows its subject to the other."""

    subject: str | None = None
    """The subject of this end's certificate; None: it has none."""
    requires_certificate: bool = False
    """True: a client without a certificate is refused, as with ssl.client.auth=required."""

    def describe(self) -> str:
        return "pretended TLS"


class MemoryListener:
    """Fulfils `Listener`."""

    def __init__(
        self,
        network: "MemoryNetwork",
        node: str,
        address: Address,
        accept: Accept,
        limits: Limits,
        tls: PretendedTls | None = None,
    ) -> None:
        self.node = node
        self.address = address
        self.accept = accept
        self.limits = limits
        self.tls = tls
        self.open_connections = 0
        self.refusing = False
        self._network = network

    def close(self) -> None:
        """Stop accepting connections; a second call has no effect."""
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]

    def forget_one(self) -> None:
        """A connection made here is gone."""
        self.open_connections -= 1


class _Attempt:
    """An attempt to connect that has not come to anything."""

    def __init__(
        self,
        network: "MemoryNetwork",
        node: str,
        address: Address,
        opened: Opened,
        limits: Limits,
        tls: PretendedTls | None,
    ) -> None:
        self.node = node
        self.address = address
        self.limits = limits
        self.tls = tls
        self._network = network
        self._opened: Opened | None = opened

    def report_result(self, result: MemoryConnection | str, error_class: type[TransportError] = TransportError) -> None:
        """Report the result once: the connection, or the reason why there is none."""
        opened, self._opened = self._opened, None
        self._network.attempts.pop(self, None)
        if opened is None:
            if isinstance(result, MemoryConnection):
                result.close()
            return
        host, port = self.address
        failure = None if isinstance(result, MemoryConnection) else f"cannot connect to {host}:{port}: {result}"
        handler = None
        try:
            handler = opened(error_class(failure) if isinstance(result, str) else result)
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._network.report(f"connection to {host}:{port}: {one_line(error)}")
        if isinstance(result, MemoryConnection):
            if handler is None:
                result.close()
            else:
                result.start(handler)

    @property
    def over(self) -> bool:
        """True when the result was reported."""
        return self._opened is None


class MemoryNetwork:
    """Named nodes and the connections between them. All calls belong to the scheduler's owner thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        entropy: Entropy | None = None,
        faults: NetworkFaults | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`report` gets one line for each thing that went wrong on a connection, as with TCP."""
        self.scheduler = scheduler
        self.faults = faults or NetworkFaults()
        """May be replaced at any time."""
        self.report: Callable[[str], None] = report or (lambda _line: None)
        self.listeners: dict[Address, MemoryListener] = {}
        self.connections: dict[MemoryConnection, None] = {}  # a set, in the order of their making
        self.attempts: dict[_Attempt, None] = {}
        self._entropy = entropy
        self._memory: dict[str, MemoryBudget] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        """The pairs (sender, receiver) between which nothing passes."""
        self._last_port = _FIRST_FREE_PORT

    def transport(self, node: str = "node") -> "MemoryTransport":
        """Return the way into the network of the node `node`."""
        return MemoryTransport(self, node)

    # --- faults

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Let nothing pass between two nodes; connections stand, and frames wait, as with a lost route under TCP.

        `one_way`: nothing passes from `one` to `other`; what `other` sends arrives. No connection can be made then.
        """
        self._cuts[one, other] = None
        if not one_way:
            self._cuts[other, one] = None

    def heal(self, one: str, other: str) -> None:
        """Undo `cut` in both directions; waiting frames and attempts continue."""
        for way in ((one, other), (other, one)):
            self._cuts.pop(way, None)
        for connection in list(self.connections):
            connection.ask_pump()
        for attempt in self.attempts:
            self.scheduler.call_soon(partial(self._meet, attempt))

    def heal_all(self) -> None:
        """Undo every `cut`."""
        for one, other in list(self._cuts):
            self.heal(one, other)

    def passes(self, one: str, other: str) -> bool:
        """Return True if what `one` sends to `other` arrives."""
        return (one, other) not in self._cuts

    def lose_connections(self, one: str, other: str | None = None) -> int:
        """Reset the connections between two nodes (None: all of `one`); returns how many."""
        lost = 0
        for connection in list(self.connections):
            ends = {connection.node, connection.other.node if connection.other is not None else ""}
            if not connection.closed and one in ends and (other is None or ends == {one, other}):
                connection.lose("reset")
                lost += 1
        return lost

    def crash(self, node: str) -> None:
        """Close the ports of a node and reset its connections, as when its process is killed."""
        for listener in [each for each in self.listeners.values() if each.node == node]:
            listener.close()
        self.lose_connections(node)

    # --- for transports and connections

    def memory_of(self, node: str) -> MemoryBudget:
        """Return the memory budget of a node's connections."""
        return self._memory.setdefault(node, MemoryBudget())

    def is_cut(self, connection: MemoryConnection) -> bool:
        """Return True if nothing passes on the way to this end of the connection."""
        other = connection.other.node if connection.other is not None else connection.node
        return not self.passes(other, connection.node)

    def carry(self, sender: MemoryConnection, arrive: Callable[[], None]) -> None:
        """Take a frame from `sender`: call `arrive` when it has made its way, or lose the connection."""
        if self.faults.drop_chance and self._entropy is not None and self._entropy.fraction() < self.faults.drop_chance:
            self._after_latency(lambda: sender.lose("the network dropped it"))
        else:
            self._after_latency(arrive)

    def forget(self, connection: MemoryConnection) -> None:
        """The end is closed."""
        self.connections.pop(connection, None)

    def open_port(
        self, node: str, address: Address, accept: Accept, limits: Limits, tls: PretendedTls | None = None
    ) -> MemoryListener:
        """Listen; raises `TransportError` when the port is in use."""
        host, port = address
        address = (host, port or self._free_port())
        if address in self.listeners:
            raise TransportError(
                f"cannot listen on {host}:{port}: the port is in use; stop its process, or change `listeners`"
            )
        listener = MemoryListener(self, node, address, accept, limits, tls)
        self.listeners[address] = listener
        return listener

    def attempt(
        self,
        node: str,
        address: Address,
        opened: Opened,
        timeout_ms: float,
        limits: Limits,
        tls: PretendedTls | None = None,
    ) -> None:
        """Start to connect."""
        attempt = _Attempt(self, node, address, opened, limits, tls)
        self.attempts[attempt] = None
        timer = self.scheduler.call_later(
            timeout_ms, lambda: None if attempt.over else attempt.report_result(f"no answer within {timeout_ms:.0f} ms")
        )

        def meet() -> None:
            if not attempt.over:
                self._meet(attempt)
            if attempt.over:
                timer.cancel()

        self._after_latency(meet)

    def _meet(self, attempt: _Attempt) -> None:
        listener = self.listeners.get(attempt.address)
        if attempt.over or (listener is not None and not self._meets(attempt.node, listener.node)):
            return
        refused = self.faults.refuse_chance and self._entropy and self._entropy.fraction() < self.faults.refuse_chance
        if listener is None or refused:
            attempt.report_result("Connection refused")
            return
        if not self._shakes_hands(attempt, listener):
            return
        to_server, to_client = Pipe(), Pipe()
        client_address = (attempt.node, self._free_port())
        client = MemoryConnection(
            self, attempt.node, client_address, attempt.address, attempt.limits, to_server, to_client
        )
        server = MemoryConnection(
            self, listener.node, attempt.address, client_address, listener.limits, to_client, to_server
        )
        client.other, server.other = server, client
        if attempt.tls is not None and listener.tls is not None:
            client.is_encrypted = server.is_encrypted = True
            client.peer_subject, server.peer_subject = listener.tls.subject, attempt.tls.subject
        self.connections[client] = self.connections[server] = None
        self._accept(listener, server)
        attempt.report_result(client)

    def _shakes_hands(self, attempt: _Attempt, listener: MemoryListener) -> bool:
        """Return True if both ends use TLS, or neither; else report the result of the attempt."""
        mine, theirs = attempt.tls, listener.tls
        where = f"listener {listener.address[0]}:{listener.address[1]}"
        if (mine is None) != (theirs is None):
            self.report(f"{where}: a client {'without' if mine is None else 'with'} TLS was refused")
            attempt.report_result(f"the listener {'needs' if mine is None else 'has no'} TLS")
            return False
        if mine is not None and theirs is not None and theirs.requires_certificate and mine.subject is None:
            self.report(f"{where}: a client without a certificate was refused")
            attempt.report_result("the listener requires a client certificate", AuthenticationError)
            return False
        return True

    def _accept(self, listener: MemoryListener, server: MemoryConnection) -> None:
        if listener.open_connections >= listener.limits.connections_max:
            if not listener.refusing:
                listener.refusing = True
                self.report(
                    f"listener {listener.address[0]}:{listener.address[1]}: refusing connections while "
                    f"{listener.limits.connections_max} are open; raise max.connections if they are wanted"
                )
            server.close()
            return
        listener.refusing = False
        try:
            handler = listener.accept(server)
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self.report(f"cannot serve {server.peer[0]}:{server.peer[1]}: {one_line(error)}")
            server.close()
        else:
            listener.open_connections += 1
            server.start(handler, listener.forget_one)

    def _meets(self, one: str, other: str) -> bool:
        return self.passes(one, other) and self.passes(other, one)

    def _after_latency(self, callback: Callable[[], None]) -> None:
        low, high = self.faults.latency_ms_min, self.faults.latency_ms_max
        if high > low and self._entropy is not None:
            low += (high - low) * self._entropy.fraction()
        if low > 0:
            self.scheduler.call_later(low, callback)
        else:
            self.scheduler.call_soon(callback)

    def _free_port(self) -> int:
        self._last_port += 1
        return self._last_port


class MemoryTransport:
    """Fulfils `Transport` for one node of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, node: str) -> None:
        self._network = network
        self._node = node

    def listen(self, address: Address, accept: Accept, limits: Limits, tls: ServerTls | None = None) -> Listener:
        """Open a port (0: any free one). Raises `TransportError` when it is in use."""
        return self._network.open_port(self._node, address, accept, limits, _pretended(tls))

    def connect(
        self, address: Address, opened: Opened, *, timeout_ms: float, limits: Limits, tls: ClientTls | None = None
    ) -> None:
        """Connect; `opened` is called once, on a later turn, with the connection or a `TransportError`."""
        self._network.attempt(self._node, address, opened, timeout_ms, limits, _pretended(tls))


def _pretended(tls: ServerTls | ClientTls | None) -> PretendedTls | None:
    if tls is None or isinstance(tls, PretendedTls):
        return tls
    raise TypeError(f"a memory network takes PretendedTls, not {type(tls).__name__}")
