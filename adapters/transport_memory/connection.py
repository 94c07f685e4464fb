"""The two ends of a connection inside the process."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ...core.traffic.memory_budget import Account, MemoryBudget
from ...ports.errors import BarnabasError
from ...ports.scheduler import Scheduler, Timer
from ...ports.transport import Address, ConnectionHandler, Limits, Piece, TransportError

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


class CarryingNetwork(Protocol):
    """The part of `MemoryNetwork` that a connection uses."""

    scheduler: Scheduler
    report: Callable[[str], None]

    def memory_of(self, node: str) -> MemoryBudget: ...

    def is_cut(self, connection: "MemoryConnection") -> bool: ...

    def carry(self, sender: "MemoryConnection", arrive: Callable[[], None]) -> None: ...

    def forget(self, connection: "MemoryConnection") -> None: ...


class MemoryConnection:
    """Fulfils `Connection`: one end. What the other end has not taken counts as unsent."""

    def __init__(
        self, network: CarryingNetwork, node: str, local: Address, peer: Address, limits: Limits, out: Pipe, into: Pipe
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
            if self.other is not None:
                self.other.ask_pump()

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
