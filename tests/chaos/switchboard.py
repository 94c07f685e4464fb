"""The network between brokers, and between them and their coordination: each connection can be cut, one way or both."""

import multiprocessing
import re
import selectors
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

from attrs import define, field

BUFFER_MAX = 1 << 18
STOP_WAIT_S = 120
CLIENT = "client"
UNKNOWN = ""
"""The caller of a connection that has sent nothing yet."""

Name = str
Pair = tuple[Name, Name]
"""From whom, to whom."""


@define(eq=False)
class _End:
    """One side of a connection: what it has sent and the other side has not got yet, and whose it is."""

    socket: socket.socket
    sender: Name
    receiver: Name
    out: bytearray = field(factory=bytearray)
    """For this side."""
    first: bytearray = field(factory=bytearray)
    """The bytes that the caller has sent while it is `UNKNOWN`."""
    other: "_End | None" = None
    ended: bool = False


class Switchboard:
    """Forwards connections from ports of its own. Names are those of brokers, of coordination members, or `CLIENT`.

    A port that serves several brokers takes the name of each connection from the client id in its first request.

    What is cut from A to B stays where it is, as packets would that get no answer, and flows on once the cut is healed;
    `reset` besides breaks the connections that there are, and new ones while it lasts.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[socket.socket, tuple[Name | None, Name, tuple[str, int]]] = {}
        self._ends: set[_End] = set()
        self._cut: set[Pair] = set()
        self._reset: set[Pair] = set()
        self._orders: list[tuple[Callable[[], None], threading.Event]] = []
        self._waker, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._running = True
        self._thread = threading.Thread(target=self._run, name="switchboard", daemon=True)
        self._thread.start()

    def open(self, receiver: Name, target: tuple[str, int], sender: Name | None = None) -> int:
        """Return a port that leads to `target`; `sender` None: each connection names it."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        listener.setblocking(False)

        def add() -> None:
            self._listeners[listener] = sender, receiver, target
            self._selector.register(listener, selectors.EVENT_READ)

        self._order(add)
        port: int = listener.getsockname()[1]
        return port

    def cut(self, pairs: Iterable[Pair], *, reset: bool = False) -> None:
        def act() -> None:
            self._cut.update(pairs)
            if reset:
                self._reset.update(pairs)
                for end in list(self._ends):
                    if (end.sender, end.receiver) in self._reset:
                        self._drop(end)
            self._watch_all()

        pairs = list(pairs)
        self._order(act)

    def heal(self) -> None:
        def act() -> None:
            self._cut.clear()
            self._reset.clear()
            self._watch_all()

        self._order(act)

    def close(self) -> None:
        def act() -> None:
            self._running = False
            for end in list(self._ends):
                self._drop(end)
            for listener in self._listeners:
                listener.close()

        self._order(act)
        self._thread.join(STOP_WAIT_S)
        self._selector.close()
        self._waker.close()
        self._wakes.close()

    def _order(self, what: Callable[[], None]) -> None:
        done = threading.Event()
        self._orders.append((what, done))
        self._waker.send(b"!")
        if not done.wait(STOP_WAIT_S):
            raise TimeoutError("the switchboard does not obey")

    # --- on its own thread

    def _run(self) -> None:
        while self._running:
            for key, events in self._selector.select():
                if key.fileobj is self._wakes:
                    self._wakes.recv(1000)
                elif isinstance(key.data, _End):
                    if key.data in self._ends and events & selectors.EVENT_WRITE:
                        self._write(key.data)
                    if key.data in self._ends and events & selectors.EVENT_READ:
                        self._read(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj)
            while self._orders:
                what, done = self._orders.pop(0)
                what()
                done.set()

    def _accept(self, listener: socket.socket) -> None:
        sender, receiver, target = self._listeners[listener]
        try:
            mine, _ = listener.accept()
        except OSError:
            return  # it has gone again
        sender = sender or UNKNOWN
        if {(sender, receiver), (receiver, sender)} & self._reset:
            mine.close()
            return
        try:
            theirs = socket.create_connection(target, 1)
        except OSError:
            mine.close()
            return
        one, two = _End(mine, sender, receiver), _End(theirs, receiver, sender)
        one.other, two.other = two, one
        for end in (one, two):
            end.socket.setblocking(False)
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends.add(end)
            self._selector.register(end.socket, selectors.EVENT_READ, end)
        self._watch(one)
        self._watch(two)

    def _read(self, end: _End) -> None:
        assert end.other is not None
        try:
            data = end.socket.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            end.ended = True
            if not end.other.out:
                self._drop(end)
        elif end.sender != UNKNOWN:
            end.other.out += data
            self._write(end.other)
        else:
            self._ask_sender(end, data)
        self._watch(end)

    def _ask_sender(self, end: _End, data: bytes) -> None:
        """Take the sender from the first bytes, once they are enough; then forward them."""
        assert end.other is not None
        end.first += data
        sender = sender_of(end.first)
        if sender == UNKNOWN:
            return
        end.sender = end.other.receiver = sender
        if {(sender, end.receiver), (end.receiver, sender)} & self._reset:
            self._drop(end)
            return
        end.other.out += end.first
        end.first.clear()
        self._write(end.other)

    def _write(self, end: _End) -> None:
        assert end.other is not None
        if (end.other.sender, end.other.receiver) not in self._cut:
            try:
                del end.out[: end.socket.send(end.out)]
            except BlockingIOError:
                pass
            except OSError:
                self._drop(end)
                return
            if end.other.ended and not end.out:
                self._drop(end)
                return
        self._watch(end)
        self._watch(end.other)

    def _watch_all(self) -> None:
        for end in self._ends:
            self._watch(end)

    def _watch(self, end: _End) -> None:
        """Look for what can be done about it now."""
        if end not in self._ends:
            return
        assert end.other is not None
        events = 0
        if not end.ended and (end.sender, end.receiver) not in self._cut and len(end.other.out) < BUFFER_MAX:
            events |= selectors.EVENT_READ
        if end.out and (end.other.sender, end.other.receiver) not in self._cut:
            events |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(end.socket)
        if events and known is None:
            self._selector.register(end.socket, events, end)
        elif events and known is not None and known.events != events:
            self._selector.modify(end.socket, events, end)
        elif not events and known is not None:
            self._selector.unregister(end.socket)

    def _drop(self, end: _End) -> None:
        for each in (end, end.other):
            if each is not None and each in self._ends:
                self._ends.discard(each)
                if each.socket in self._selector.get_map():
                    self._selector.unregister(each.socket)
                each.socket.close()


_CLIENT_ID = struct.Struct(">ihhih")
"""The beginning of a request of Kafka's protocol: size, API, version, correlation id, length of the client id."""


def sender_of(request: bytes | bytearray) -> Name:
    """Return the broker whose client id begins a request, `CLIENT` for another one, `UNKNOWN` while more must come."""
    if len(request) < _CLIENT_ID.size:
        return UNKNOWN
    length = _CLIENT_ID.unpack_from(request)[-1]
    if len(request) < _CLIENT_ID.size + length:
        return UNKNOWN
    client_id = bytes(request[_CLIENT_ID.size : _CLIENT_ID.size + max(0, length)])
    found = re.match(rb"broker-[0-9]+(?=-)", client_id)
    return found[0].decode() if found else CLIENT


class SwitchboardProcess:
    """A `Switchboard` in a process of its own.

    The sessions of the brokers last as long as their pings arrive in time. In one process with all producers and
    readers they would wait for its interpreter lock.
    """

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._orders, theirs = spawn.Pipe()
        self._asking = threading.Lock()
        self._process = spawn.Process(target=_serve, args=(theirs,), name="switchboard", daemon=True)
        self._process.start()
        theirs.close()

    def open(self, receiver: Name, target: tuple[str, int], sender: Name | None = None) -> int:
        """See `Switchboard.open`."""
        port: int = self._ask("open", receiver, target, sender)
        return port

    def cut(self, pairs: Iterable[Pair], *, reset: bool = False) -> None:
        """See `Switchboard.cut`."""
        self._ask("cut", list(pairs), reset=reset)

    def heal(self) -> None:
        """See `Switchboard.heal`."""
        self._ask("heal")

    def close(self) -> None:
        """End the process and all connections."""
        self._orders.close()
        self._process.join(STOP_WAIT_S)
        self._process.kill()

    def _ask(self, order: str, *arguments: object, **named: object) -> Any:
        with self._asking:
            self._orders.send((order, arguments, named))
            if not self._orders.poll(STOP_WAIT_S):
                raise TimeoutError("the switchboard does not obey")
            return self._orders.recv()


def _serve(orders: Connection) -> None:
    """Obey until the other end of the pipe is closed, or its process has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent ends this process
    board = Switchboard()
    try:
        while True:
            order, arguments, named = orders.recv()
            orders.send(getattr(board, order)(*arguments, **named))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        board.close()
