"""Connections inside one process: for clients in the process of their broker, for tests, and as the simulated network.

Everything runs on one scheduler; faults come from a seed, which replays them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ..core.traffic.memory_budget import Account, MemoryBudget
from ..ports.entropy import Entropy
from ..ports.errors import BarnabasError
from ..ports.scheduler import Scheduler, Timer
from ..ports.transport import (
    Address,
    AuthenticationError,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    Piece,
    ServerTls,
    TransportError,
)
from ..ports.values import frozen


@frozen(kw_only=True)
class NetworkFaults:
    """The default is a perfect network: no delay, no loss. Delays need an `Entropy` unless both ends are equal."""

    latency_ms_min: float = 0.0
    latency_ms_max: float = 0.0
    """Each frame, and each attempt to connect, takes a time between the two; frames of a connection stay in order."""
    drop_chance: float = 0.0
    """The chance, for each frame, that the connection is lost instead of the frame arriving."""
    refuse_chance: float = 0.0
    """The chance, for each attempt to connect, that it is refused."""


_GARBAGE = b"\xdd"
"""This byte fills a frame's memory after the handler has returned, so that a view kept of it shows wrong data."""
_FRAMES_PER_TURN = 32


class Pipe:
    """One direction: frames that were sent and not delivered, in order."""

    def __init__(self) -> None:
        self.frames: deque[bytearray] = deque()
        self._weights: deque[tuple[int, int]] = deque()
        self.memory_bytes = self.regions = 0
        """The bytes of the frames without those of regions, and the number of their regions."""
        self.arrived = 0
        """The number of `frames` that have arrived; the network may delay the others."""
        self.ended = False
        self.bytes = 0

    def add(self, content: bytearray, region_bytes: int, regions: int) -> None:
        """Send a frame on its way."""
        self.frames.append(content)
        self.bytes += len(content) + 4
        self._weights.append((len(content) + 4 - region_bytes, regions))
        self.memory_bytes += len(content) + 4 - region_bytes
        self.regions += regions

    def pop_frame(self) -> bytearray | None:
        """Return the next frame that has arrived."""
        if not self.arrived:
            return None
        self.arrived -= 1
        content = self.frames.popleft()
        self.bytes -= len(content) + 4
        memory_bytes, regions = self._weights.popleft()
        self.memory_bytes -= memory_bytes
        self.regions -= regions
        return content

    def clear(self) -> None:
        """Forget what is on the way."""
        self.frames.clear()
        self._weights.clear()
        self.arrived = self.bytes = self.memory_bytes = self.regions = 0


class MemoryConnection:
    """Fulfils `Connection`: one end. What the other end has not taken counts as unsent."""

    def __init__(
        self, network: "MemoryNetwork", node: str, local: Address, peer: Address, limits: Limits, out: Pipe, into: Pipe
    ) -> None:
        self.node = node
        self.local = local
        self.peer = peer
        self.is_encrypted = False
        self.peer_subject: str | None = None
        self.bytes_received = self.bytes_sent = 0
        self.other: MemoryConnection | None = None
        self.closed = False
        self._network = network
        self._scheduler = network.scheduler
        self._limits = limits
        self._frame_bytes_max = limits.frame_bytes_max
        self._out = out
        self._in = into
        self._handler: ConnectionHandler | None = None
        self._forget: Callable[[], None] | None = None
        self._handler_bytes = 0
        self._account = Account(network.memory_of(node), limits.all_held_bytes_max, self.ask_pump)
        self._paused = False
        self._delivering = False
        self._pump_asked = False
        self._used = False
        self._idle_timer: Timer | None = None

    def start(self, handler: ConnectionHandler, forget: Callable[[], None] | None = None) -> None:
        """Deliver to `handler` from now on; call `forget` at the end."""
        self._handler = handler
        self._forget = forget
        if self.closed:
            self._release()
            return
        if self._limits.idle_ms:
            self._idle_timer = self._scheduler.call_later(self._limits.idle_ms, self._check_idle)
        self.ask_pump()

    # --- Connection

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not taken yet."""
        return self._out.bytes

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send one frame; the buffers are copied here."""
        if self.closed or (self.other is not None and self.other.closed):
            return
        try:
            content, region_bytes, regions = _joined(pieces)
        except BarnabasError as error:
            self._fail(error)
            return
        self._used = True
        self.bytes_sent += len(content) + 4
        self._out.add(content, region_bytes, regions)
        self._count_memory()
        self._network.carry(self, self._arrive)

    def add_held_bytes(self, change: int) -> None:
        """Count `change` bytes more, or fewer, as held by the handler."""
        held_back = self._holds_too_much
        self._handler_bytes += change
        self._count_memory()
        if held_back and not self._holds_too_much:
            self.ask_pump()

    def limit_frames(self, bytes_max: int | None) -> None:
        """Bound the frames from now on; None: by the limits of the connection."""
        self._frame_bytes_max = self._limits.frame_bytes_max if bytes_max is None else bytes_max

    def pause(self) -> None:
        """Deliver no frames until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Undo `pause`; the next frame comes on a later turn."""
        if self._paused:
            self._paused = False
            self.ask_pump()

    def close(self, reason: str = "") -> None:
        """Close; what was sent still reaches the other end."""
        if self.closed:
            return
        if reason:
            self._network.report(f"closing the connection to {self.peer[0]}:{self.peer[1]}: {reason}")
        self._out.ended = True
        self._end(None)
        if self.other is not None:
            self.other.ask_pump()

    # --- memory

    @property
    def _holds_too_much(self) -> bool:
        out, limits = self._out, self._limits
        return out.memory_bytes + self._handler_bytes > limits.held_bytes_max or out.regions > limits.unsent_regions_max

    def _count_memory(self) -> None:
        if self._account.bytes_max and not self.closed:
            self._account.set_held(self._out.memory_bytes + self._handler_bytes)

    # --- the network's side

    def lose(self, reason: str) -> None:
        """Lose the connection at both ends; frames under way are gone."""
        for end in (self, self.other):
            if end is not None and not end.closed:
                end._out.clear()
                end._end(TransportError(f"connection to {end.peer[0]}:{end.peer[1]} lost: {reason}"))

    def ask_pump(self) -> None:
        """Deliver what has arrived, on a later turn."""
        if not self._pump_asked and not self._delivering:
            self._pump_asked = True
            self._scheduler.call_soon(self._pump)

    def _arrive(self) -> None:
        """A frame of this end has made its way to the other."""
        if self._out.frames:
            self._out.arrived += 1
            other = self.other
            if other is not None and not other._pump_asked and not other._delivering:
                other._pump()  # on this turn, which is the frame's own

    def _pump(self) -> None:
        self._pump_asked = False
        handler = self._handler
        if handler is None or self.closed or self._network.is_cut(self):
            return
        took = 0
        self._delivering = True
        try:
            while took < _FRAMES_PER_TURN and not (self._paused or self.closed or self._holds_too_much):
                if self._account.must_wait():
                    break
                content = self._in.pop_frame()
                if content is None:
                    break
                took += 1
                self._deliver(handler, content)
        finally:
            self._delivering = False
        if took == _FRAMES_PER_TURN:
            self.ask_pump()
        if took and self.other is not None:
            self.other.frames_taken()
        if self._in.ended and not self._in.frames and not self.closed:
            self._end(None)

    def frames_taken(self) -> None:
        """The other end has taken some, for which this one may have waited."""
        self._count_memory()
        if self._in.arrived or self._in.ended:
            self.ask_pump()

    def _deliver(self, handler: ConnectionHandler, content: bytearray) -> None:
        self._used = True
        size = len(content)
        self.bytes_received += size + 4
        if not 0 < size <= self._frame_bytes_max:
            self._fail(TransportError(f"a frame of {size} bytes is not allowed (1 to {self._frame_bytes_max})"))
            return
        try:
            handler.on_frame(memoryview(content))
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._fail(error)
        content[:] = _GARBAGE * size

    def _check_idle(self) -> None:
        if self._used or self._paused:
            self._used = False
            self._idle_timer = self._scheduler.call_later(self._limits.idle_ms, self._check_idle)
        else:
            self.close()

    def _fail(self, error: Exception) -> None:
        text = str(error) if isinstance(error, TransportError) else one_line(error)
        self._network.report(f"closing the connection to {self.peer[0]}:{self.peer[1]}: {text}")
        self.lose(text)

    def _end(self, error: TransportError | None) -> None:
        self.closed = True
        self._account.close()
        self._in.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._network.forget(self)
        self._release()
        self._scheduler.call_soon(lambda: self._notify_closed(error))

    def _release(self) -> None:
        forget, self._forget = self._forget, None
        if forget is not None:
            forget()

    def _notify_closed(self, error: TransportError | None) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(error)


def one_line(error: Exception) -> str:
    """Kind and text of an exception, without line breaks."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _joined(pieces: Sequence[Piece]) -> tuple[bytearray, int, int]:
    """Return the frame; how much of it were regions, and how many."""
    content = bytearray()
    region_bytes = regions = 0
    for piece in pieces:
        if isinstance(piece, (bytes, bytearray, memoryview)):
            content += piece
        else:
            part = piece.read()
            if len(part) != piece.size:
                raise TransportError(f"a file region of {piece.size} bytes ended after {len(part)}")
            content += part
            region_bytes += len(part)
            regions += 1
    return content, region_bytes, regions


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
        if not self._cuts:
            return False
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
