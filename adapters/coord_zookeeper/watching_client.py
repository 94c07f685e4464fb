"""A kazoo client with persistent recursive watches (ZooKeeper 3.6), the negotiated session timeout, and security."""

from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, socket
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped
from kazoo.protocol.connection import (
    CHANGED_EVENT,
    CLOSE_RESPONSE,
    CREATED_EVENT,
    DELETED_EVENT,
    ConnectionHandler,
)
from kazoo.protocol.serialization import SASL, Connect, Watch, int_struct, write_string

from ...core.security.sasl.exchange import SaslAuthenticationError
from ...ports.values import frozen
from ..session_heartbeat import SessionHeartbeat
from .security import TlsHandler, ZookeeperSecurity
from .translate import FAILURES

_PERSISTENT_RECURSIVE = 1

NodeTouched = Callable[[str, bool], None]
"""Called with the path of a node, and True if it was created or deleted."""


@frozen
class AddWatch:
    """A request of kazoo's kind: OpCode.addWatch of ZooKeeper."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> int:
        """Return the error of the answer, always 0: another one would stand in the header."""
        (error,) = int_struct.unpack_from(buffer, offset)
        return int(error)


class WatchingClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """`touched` is called for every event of a node, on the thread of the connection; set it before the start.

    `on_login_refused` gets the reason when the service refuses the login; the login is tried again all the same, as
    long as the session may last: its user may come back.
    """

    touched: NodeTouched
    on_login_refused: Callable[[str], None]

    def __init__(self, *, timeout: float, security: ZookeeperSecurity, **options: Any) -> None:
        if security.encrypt is not None:
            options["handler"] = TlsHandler(security.encrypt)
        super().__init__(timeout=timeout, **options)
        self.security = security
        self.last_failure = ""
        """The reason of the last connection that could not be made."""
        self.negotiated_timeout_ms = timeout * 1000
        self.heartbeat = SessionHeartbeat(self.negotiated_timeout_ms)
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)

    def watch_below_async(self, path: str) -> Any:
        """Events of the node and all below it, until the connection ends; kazoo's result, to wait for."""
        result = self.handler.async_result()
        self._call(AddWatch(path), result)
        return result

    def drop_connection(self) -> None:
        """Leave a server that does not answer, and continue the session on another one. Any thread may call."""
        self._connection.drop()


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    def drop(self) -> None:
        """Shut the socket down; the thread of the connection then reads the end of the stream."""
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # it is closed already
                # An SSLSocket's own method would make the other thread read without TLS.
                socket.shutdown(connection, SHUT_RDWR)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._host = host
        try:
            return super()._connect(host, hostip, port)
        except Exception as error:
            self.client.last_failure = str(error)
            raise

    def _read_socket(self, read_timeout: float) -> Any:
        """Read an answer, and all that TLS has decrypted with it: the poller does not know of them."""
        while True:
            answer = self._read_answer(read_timeout)
            pending = getattr(self._socket, "pending", None)
            if answer == CLOSE_RESPONSE or pending is None or not pending():
                return answer

    def _read_answer(self, read_timeout: float) -> Any:
        try:
            return super()._read_socket(read_timeout)
        except FAILURES:
            raise
        except Exception as error:
            # kazoo would give up, and the session with it. One answer is known to be left out now and then, as a server
            # loses its leader ("xids do not match"): on a new connection all is in order.
            raise ConnectionDropped(f"an answer that makes no sense: {error}") from error

    def _send_ping(self, connect_timeout: float) -> None:
        """Send a ping unless the user hangs: the service then ends the session."""
        if not self.client.heartbeat.is_overdue:
            super()._send_ping(connect_timeout)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.client.negotiated_timeout_ms = float(answer[0].time_out)
            if answer[0].time_out > 0 and self.client.security.login is not None:
                self._log_in(timeout)  # before kazoo says that it is connected
        return answer

    def _log_in(self, timeout: float) -> None:
        """Raises `ConnectionDropped` when the service refuses the login, so that it is tried again."""
        exchange = self.client.security.login(self._host)
        try:
            token, number = exchange.first(), 0
            while token is not None:
                number += 1
                self._submit(SASL(token), timeout, number)
                header, buffer, offset = self._read_header(timeout)
                if header.err:
                    raise EXCEPTIONS[header.err]()
                challenge, _ = SASL.deserialize(buffer, offset)
                token = exchange.next(challenge or b"")
        except (AuthFailedError, SaslAuthenticationError) as error:
            reason = f"the login of {self.client.security.user} is refused"
            if isinstance(error, SaslAuthenticationError):
                reason = f"the login of {self.client.security.user} failed: {error.message}"
            self.client.on_login_refused(reason)
            raise ConnectionDropped(reason) from error

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        if event.type in (CREATED_EVENT, DELETED_EVENT, CHANGED_EVENT):
            self.client.touched(event.path, event.type != CHANGED_EVENT)
        super()._read_watch_event(buffer, offset)
