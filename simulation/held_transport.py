"""The network as a process sees it that may stand still."""

from collections.abc import Callable

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
from .life import Life


class _Handler:
    """Hands on what comes over a connection when the process runs."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.handler: ConnectionHandler | None = None

    def on_frame(self, content: memoryview) -> None:
        handler = self.handler
        if self._life.still or handler is None:
            copy = bytearray(content)
            self._life.run(lambda: self.handler.on_frame(memoryview(copy)) if self.handler is not None else None)
        elif self._life.alive:
            self._life.enter(lambda: handler.on_frame(content))

    def on_closed(self, error: TransportError | None) -> None:
        self._life.run(lambda: self.handler.on_closed(error) if self.handler is not None else None)


class HeldTransport:
    """Fulfils `Transport` for a process that may stand still: what comes meanwhile waits."""

    def __init__(self, transport: Transport, life: Life) -> None:
        self._transport = transport
        self._life = life

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        def accepted(connection: Connection) -> ConnectionHandler:
            handler = _Handler(self._life)

            def hand_over() -> None:
                handler.handler = accept(connection)

            self._life.run(hand_over)
            return handler

        return self._transport.listen(address, accepted, limits, tls)

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection | TransportError], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
        tls: ClientTls | None = None,
    ) -> None:
        handler = _Handler(self._life)

        def on_opened(outcome: Connection | TransportError) -> ConnectionHandler | None:
            def hand_over() -> None:
                handler.handler = opened(outcome)
                if handler.handler is None and not isinstance(outcome, TransportError):
                    outcome.close()

            self._life.run(hand_over)
            return handler if self._life.alive else None

        self._transport.connect(address, on_opened, timeout_ms=timeout_ms, limits=limits, tls=tls)
