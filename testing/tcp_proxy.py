"""A loopback proxy between a client and a server, to cut the network between them."""

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from ..app.reserve_port import reserve_port


class TcpProxy:
    """Forwards connections to `target` (host, port). `port` is its own.

    `cut()` closes all connections and refuses new ones; `stall()` keeps them open and forwards nothing; `restore()`
    ends both, after which stalled bytes flow on. `swallow()` loses what the server answers, until the next `cut()`;
    `swallowed` counts the bytes. `aim()` leads later connections to another server.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._to_server: set[socket.socket] = set()
        self._stalled = False
        self._swallowing = False
        self.swallowed = 0
        self._orders: list[tuple[Callable[[], None], threading.Event]] = []
        self._waker, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._ports = ExitStack()
        self.port = reserve_port("127.0.0.1", self._ports)
        self._listen()
        self._running = True
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._order(self._cut)

    def stall(self) -> None:
        self._order(self._stall)

    def restore(self) -> None:
        self._order(self._restore)

    def swallow(self) -> None:
        self._order(self._swallow)

    def aim(self, target: tuple[str, int]) -> None:
        self._target = target

    def inject(self, data: bytes) -> None:
        """Send bytes to the clients as if they came from the server."""
        self._order(partial(self._inject, data))

    def close(self) -> None:
        self._order(self._stop)
        self._thread.join()
        self._selector.close()
        self._waker.close()
        self._wakes.close()
        self._ports.close()

    def _order(self, what: Callable[[], None]) -> None:
        done = threading.Event()
        self._orders.append((what, done))
        self._waker.send(b"!")
        if not done.wait(10):
            raise TimeoutError("the proxy did not obey")

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _cut(self) -> None:
        self._swallowing = False
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        for each in list(self._peers):
            self._drop(each)

    def _swallow(self) -> None:
        self._swallowing = True
        self.swallowed = 0

    def _stall(self) -> None:
        self._stalled = True
        for each in self._peers:
            self._selector.unregister(each)

    def _restore(self) -> None:
        if self._listener is None:
            self._listen()
        if self._stalled:
            self._stalled = False
            for each in self._peers:
                self._selector.register(each, selectors.EVENT_READ)

    def _inject(self, data: bytes) -> None:
        for each in self._peers:
            if each not in self._to_server:
                each.sendall(data)

    def _stop(self) -> None:
        if self._stalled:
            self._restore()
        self._cut()
        self._running = False

    def _run(self) -> None:
        while self._running:
            for key, _ in self._selector.select():
                if key.fileobj is self._wakes:
                    self._wakes.recv(100)
                elif key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                    self._forward(key.fileobj)
            while self._orders:
                what, done = self._orders.pop(0)
                what()
                done.set()

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, 2)
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # be no slower than the network
        self._peers[client], self._peers[server] = server, client
        self._to_server.add(server)
        if not self._stalled:
            self._selector.register(client, selectors.EVENT_READ)
            self._selector.register(server, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
            if data and self._swallowing and source in self._to_server:
                self.swallowed += len(data)
                return
            if data:
                self._peers[source].sendall(data)
                return
        except OSError:
            pass  # either side is gone: drop both
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        if other is None:
            return
        del self._peers[other]
        for each in (one, other):
            self._to_server.discard(each)
            if not self._stalled:
                self._selector.unregister(each)
            each.close()
