"""The broker's end: frames become requests to a `BrokerApi`, one of a connection at a time, its results frames."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

from ...core.traffic.request_log import CompletedRequest, RequestLog
from ...ports.broker_api.classic import ClassicFetch, ClassicFetchResult, ClassicOffsetsResult, ClassicProduceResult
from ...ports.broker_api.cluster import ConnectionDescription
from ...ports.broker_api.envelope import ANONYMOUS, BrokerApi, Caller, Principal, Request
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import BarnabasError, Malformed
from ...ports.transport import Connection, ConnectionHandler, Piece, TransportError
from . import answers
from .fields import DECODE_ERRORS, ENCODE_ERRORS, MULTI_FETCH, NAMES, OFFSETS, one_line
from .requests import read_request

_numbers = count(2, 2)
"""The numbers of connections, for `Caller.connection`: even ones; the Kafka protocol has the odd ones."""


class ClassicServer:
    """Serves a broker to connections of the classic protocol (facts A1, A3).

    listener: the name that the broker knows the listener by (`Caller.listener`).
    report:   takes one line for each connection that is closed because of what came over it, and for each message set
              that was refused for its size, which leaves the connection open.
    max_in_flight: has no effect here: the protocol allows one request of a connection at a time.
    gone:     gets the number (`Caller.connection`) of each connection that has closed.
    watch:    looks at how long requests take; None costs nothing.
    principal_of: the principal of a connection by its client certificate; without it, ANONYMOUS.
    clock:    the time at which a connection was accepted; None: it is unknown (-1).
    """

    def __init__(
        self,
        api: BrokerApi,
        *,
        listener: str,
        report: Callable[[str], None],
        max_in_flight: int = 1,  # noqa: ARG002  servers of all protocols are made with it
        gone: Callable[[int], None] | None = None,
        watch: RequestLog | None = None,
        principal_of: Callable[[Connection], Principal] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.api = api
        self.clock = clock
        self.principal_of = principal_of
        self.listener = listener
        self.report = report
        self.gone = gone
        self.watch = watch
        self.connections: dict[int, _ServerConnection] = {}
        """The open connections by `Caller.connection`, the oldest first."""

    def accept(self, connection: Connection) -> ConnectionHandler:
        """Return the handler of a new connection, for `Transport.listen`."""
        return _ServerConnection(self, connection)

    def close(self, reason: str) -> int:
        """Close every connection once what was answered has gone out; returns how many have not gone yet."""
        for connection in tuple(self.connections.values()):
            connection.close(reason)
        return len(self.connections)


class _ServerConnection:
    """One client. It is not read from while a request of it waits for its answer."""

    def __init__(self, server: ClassicServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._waiting: _Waiting | None = None
        self._paused = False
        self._open = True
        self._caller = Caller(
            host=connection.peer[0],
            listener=server.listener,
            connection=next(_numbers),
            principal=ANONYMOUS if server.principal_of is None else server.principal_of(connection),
            is_encrypted=connection.is_encrypted,
        )
        self._connected_at_ms = -1 if server.clock is None else server.clock.now_ms()
        self._requests = 0
        server.connections[self._caller.connection] = self

    software = ("", "")
    """The classic protocol has no place for the name of a client's software."""

    def describe(self) -> ConnectionDescription:
        """Describe the connection for operators."""
        caller, connection = self._caller, self._connection
        return ConnectionDescription(
            connection_id=caller.connection,
            listener=caller.listener,
            host=connection.peer[0],
            port=connection.peer[1],
            principal=str(caller.principal),
            is_encrypted=caller.is_encrypted,
            client_id=None,
            software_name="",
            software_version="",
            connected_at_ms=self._connected_at_ms,
            requests=self._requests,
            in_flight=int(self._waiting is not None),
            bytes_in=connection.bytes_received,
            bytes_out=connection.bytes_sent,
        )

    def on_frame(self, content: memoryview) -> None:
        if not self._open:
            return
        self._requests += 1
        try:
            request_id, request = read_request(content)
        except (Malformed, *DECODE_ERRORS) as error:
            self._close_connection(f"refused a request: {error}")
            return
        waiting = self._waiting = _Waiting(self, request_id, request)
        if self._server.watch is not None:
            waiting.began_ms, waiting.size_bytes = self._server.watch.now_ms(), len(content)
        self._server.api.submit(request, self._caller, waiting.reply)
        if self._waiting is waiting and self._open:
            self._paused = True
            self._connection.pause()

    def on_closed(self, error: TransportError | None) -> None:  # noqa: ARG002
        self._open = False
        self._waiting = None
        self._server.connections.pop(self._caller.connection, None)
        if self._server.gone is not None:
            self._server.gone(self._caller.connection)

    def close(self, reason: str) -> None:
        """Take no further requests, let the sent answers go out, and close."""
        self._open = False
        self._waiting = None
        self._connection.close(reason)

    def answered(self, waiting: "_Waiting", result: object) -> None:
        """The broker has answered; ignored when the connection has gone meanwhile."""
        if self._waiting is not waiting:
            return
        self._waiting = None
        name = NAMES[waiting.request_id]
        self._was_answered(waiting, name)
        if isinstance(result, BarnabasError):
            self._close_connection(f"{name} failed: {result}")
            return
        if isinstance(result, ClassicProduceResult):
            self._look_for_refusals(name, result)
        elif waiting.request_id == OFFSETS and cast(ClassicOffsetsResult, result).error is not ErrorCode.NONE:
            # The answer has a place for an error, but no broker of Kafka 0.7 used it (facts A3).
            self._close_connection(f"{name} failed: {cast(ClassicOffsetsResult, result).error.name}")
        else:
            try:
                pieces = waiting.encode(result)
            except Exception as error:  # noqa: BLE001  reported; an answer that never came would be waited for
                what = str(error) if isinstance(error, ENCODE_ERRORS) else f"{type(error).__name__}: {error}"
                self._close_connection(f"the answer to {name} cannot be encoded: {what}")
                return
            self._connection.send(pieces)
        if self._paused and self._open:
            self._paused = False
            self._connection.resume()

    def _was_answered(self, waiting: "_Waiting", name: str) -> None:
        watch = self._server.watch
        if watch is not None:
            seen = CompletedRequest(api=name, version=0, caller=self._caller, size_bytes=waiting.size_bytes)
            watch.on_response(watch.now_ms() - waiting.began_ms, 0.0, lambda: seen)

    def _look_for_refusals(self, name: str, result: ClassicProduceResult) -> None:
        """Report refused message sets. No answer can carry an error: only a closed connection shows one (facts A1)."""
        refused = [part for part in result.partitions if part.error is not ErrorCode.NONE]
        if not refused:
            return
        grave = [part for part in refused if part.error is not ErrorCode.MESSAGE_TOO_LARGE]
        first = (grave or refused)[0]
        others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        why = f": {first.error_message}" if first.error_message else ""
        text = f"{name} to {first.topic!r} partition {first.partition} failed with {first.error.name}{others}{why}"
        if grave:
            self._close_connection(text)
        else:
            host, port = self._connection.peer
            self._server.report(one_line(f"messages from {host}:{port} on {self._server.listener} are lost: {text}"))

    def _close_connection(self, reason: str) -> None:
        self._open = False
        self._waiting = None
        host, port = self._connection.peer
        self._server.report(one_line(f"closing the connection from {host}:{port} on {self._server.listener}: {reason}"))
        self._connection.close()  # without the reason, which the transport would report once more


class _Waiting:
    """The request of a connection that waits for its answer."""

    __slots__ = ("_connection", "_request", "began_ms", "request_id", "size_bytes")

    def __init__(self, connection: _ServerConnection, request_id: int, request: Request[Any]) -> None:
        self._connection = connection
        self._request = request
        self.request_id = request_id
        self.began_ms, self.size_bytes = 0.0, 0

    def reply(self, result: object) -> None:
        """The `Reply` given to the broker."""
        self._connection.answered(self, result)

    def encode(self, result: object) -> Sequence[Piece]:
        if self.request_id == OFFSETS:
            return answers.write_offsets(cast(ClassicOffsetsResult, result))
        request = cast(ClassicFetch, self._request)
        return answers.write_fetch(request, cast(ClassicFetchResult, result), multi=self.request_id == MULTI_FETCH)
