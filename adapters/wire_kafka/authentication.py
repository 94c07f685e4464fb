"""The authentication of a connection: its frames until the client is known, and again when its session ends."""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol

from ...core.security.sasl.exchange import AuthenticatedClient, Offloaded
from ...core.security.sasl.server_authenticator import SaslListener, ServerAuthenticator, State
from ...core.traffic.socket_server_metrics import SocketServerMetrics
from ...ports.broker_api.sasl import SaslAuthenticateResult
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, Malformed
from ...ports.scheduler import Outcome, Scheduler
from ...ports.transport import Connection, Piece
from ...ports.values import frozen
from . import versions, wire
from .api import Api
from .sasl import SASL_AUTHENTICATE, SASL_BY_KEY, SASL_HANDSHAKE
from .table import BY_KEY
from .wire import DECODE_ERRORS, CompactReader, Reader

ITEMS_MAX = 1000
"""Elements of all arrays of one request of a client that is not authenticated."""
_KEY = Struct(">h")
_VERSION_AND_CORRELATION = Struct(">hhi")


@frozen(kw_only=True)
class ServerAuthentication:
    """The SASL of a listener, with what its delays and work off the owner thread need."""

    listener: SaslListener
    scheduler: Scheduler
    clock: Clock


class ResponseSlot(Protocol):
    """The place of an answer among those of the connection's requests."""

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Send the answer when it is its turn."""
        ...


class Authenticates(Protocol):
    """The part of a server's connection that the authentication works on."""

    @property
    def connection(self) -> Connection: ...

    def reserve(self, version: int, correlation_id: int) -> ResponseSlot:
        """Return the place of the answer to a request."""
        ...

    def read_client(self, content: memoryview, size: int) -> int:
        """Take over the client id of a request header; return where it ends."""
        ...

    def on_authenticated(self, client: AuthenticatedClient, *, watch_requests: bool) -> None:
        """Serve requests as this client from now on. Without `watch_requests` frames bypass the authentication."""
        ...

    def close_unauthenticated(self, reason: str) -> None:
        """Close the connection, with a line in the log if there is a reason."""
        ...


class ConnectionAuthentication:
    """Handles the frames of a connection that are not requests of an authenticated client."""

    def __init__(
        self,
        owner: Authenticates,
        settings: ServerAuthentication,
        listener: str,
        metrics: SocketServerMetrics | None = None,
    ) -> None:
        self._owner = owner
        self._listener = settings.listener
        self._scheduler = settings.scheduler
        self._clock = settings.clock
        connection = owner.connection
        self._machine = ServerAuthenticator(
            settings.listener, host=connection.peer[0], listener=listener, subject=connection.peer_subject
        )
        self._is_waiting = False
        """True while work is done off the owner thread, or a refusal is delayed."""
        self._is_over = False
        self._metrics = metrics
        self._is_known = False
        """True after the first login: what follows continues the session."""
        connection.limit_frames(settings.listener.max_receive_bytes)
        timeout_ms = settings.listener.timeout_ms
        self._deadline = settings.scheduler.call_later(timeout_ms, self._time_out)

    def _time_out(self) -> None:
        """Close a connection whose client says nothing, or a byte now and then."""
        if not self._is_over and self._machine.client is None:
            self._end(f"the client did not authenticate within {self._listener.timeout_ms:.0f} ms")

    def close(self) -> None:
        """Forget the connection, which is gone."""
        self._is_over = True
        self._deadline.cancel()

    def on_frame(self, content: memoryview) -> bool:
        """Handle a frame; return False for a request of the broker. Raises `Malformed` or a decoding error."""
        machine, now_ms = self._machine, self._clock.monotonic_ms()
        if self._is_over or self._is_waiting:
            return True
        if machine.state is State.AUTHENTICATE and machine.expects_raw_tokens:
            self._on_raw_token(bytes(content))
            return True
        (key,) = _KEY.unpack_from(content)
        if machine.state is State.AUTHENTICATED:
            if key == SASL_HANDSHAKE.key and machine.allow_reauthentication(now_ms):
                self._owner.connection.limit_frames(self._listener.max_receive_bytes)
                self._on_handshake(content)
                return True
            if machine.is_expired(now_ms):
                if self._metrics is not None:
                    self._metrics.expired_connections_killed += 1
                self._end("")
                return True
            return False
        if key == versions.KEY and machine.allow_api_versions():
            low, high = versions.VERSIONS
            if low <= _VERSION_AND_CORRELATION.unpack_from(content)[1] <= high:
                machine.on_api_versions_answered()
            return False
        if machine.state is State.HANDSHAKE and machine.client is None:
            if key != SASL_HANDSHAKE.key:
                self._end(f"{_name(key)} came before the authentication")
                return True
            self._on_handshake(content)
        elif key == SASL_AUTHENTICATE.key:
            self._on_authenticate(content)
        else:
            self._on_illegal_request(content, key)
        return True

    def _on_handshake(self, content: memoryview) -> None:
        api, version, correlation_id, reader = self._header(content, SASL_HANDSHAKE)
        request = api.request.read(reader, version)
        result = self._machine.on_handshake(request.mechanism, version, self._clock.monotonic_ms())
        pieces = encode(api, version, correlation_id, result)
        slot = self._owner.reserve(version, correlation_id)
        if result.error is ErrorCode.NONE:
            slot.fill(pieces)
            return
        enabled = ", ".join(result.mechanisms)
        self._refuse(slot, pieces, f"SASL mechanism {request.mechanism[:100]!r} is not enabled; {enabled} are")

    def _on_authenticate(self, content: memoryview) -> None:
        api, version, correlation_id, reader = self._header(content, SASL_AUTHENTICATE)
        request = api.request.read(reader, version)
        slot = self._owner.reserve(version, correlation_id)

        def answer(result: SaslAuthenticateResult) -> None:
            pieces = encode(api, version, correlation_id, result)
            if result.error is not ErrorCode.NONE:
                self._refuse(slot, pieces, result.error_message or "")
                return
            slot.fill(pieces)
            self._look_if_done()

        self._evaluate(request.auth_bytes, answer)

    def _on_raw_token(self, token: bytes) -> None:
        slot = self._owner.reserve(0, 0)

        def answer(result: SaslAuthenticateResult) -> None:
            if result.error is not ErrorCode.NONE:
                self._refuse(None, (), result.error_message or "")
                return
            slot.fill([result.auth_bytes])
            self._look_if_done()

        self._evaluate(token, answer)

    def _on_illegal_request(self, content: memoryview, key: int) -> None:
        self._machine.on_illegal_request()
        _, version, correlation_id = _VERSION_AND_CORRELATION.unpack_from(content)
        slot = self._owner.reserve(version, correlation_id)
        name = _name(key)
        self._refuse(slot, self._illegal_state(content, key), f"{name} came during the authentication")

    def _illegal_state(self, content: memoryview, key: int) -> Sequence[Piece] | None:
        """Return ILLEGAL_SASL_STATE in the form of the API that was asked for; None where there is no such form."""
        _, version, correlation_id = _VERSION_AND_CORRELATION.unpack_from(content)
        if key == versions.KEY:
            return [wire.I32.pack(correlation_id) + versions.error_body(version, ErrorCode.ILLEGAL_SASL_STATE)]
        api = SASL_BY_KEY.get(key) or BY_KEY.get(key)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            return None
        try:
            api, version, correlation_id, reader = self._header(content, api)
            return illegal_sasl_state(api, version, correlation_id, reader)
        except (Malformed, *DECODE_ERRORS):
            return None

    def _header(self, content: memoryview, api: Api) -> tuple[Api, int, int, Reader]:
        _, version, correlation_id = _VERSION_AND_CORRELATION.unpack_from(content)
        if not api.versions[0] <= version <= api.versions[1]:
            raise Malformed(f"{api.name} has no version {version}")
        position = self._owner.read_client(content, wire.I16.unpack_from(content, _VERSION_AND_CORRELATION.size)[0])
        reader = (CompactReader if version >= api.flexible_from else Reader)(content, position, ITEMS_MAX)
        if version >= api.flexible_from:
            reader.skip_tags()
        return api, version, correlation_id, reader

    def _evaluate(self, token: bytes, answer: Callable[[SaslAuthenticateResult], None]) -> None:
        found = self._machine.on_token(token, self._clock.monotonic_ms(), self._clock.now_ms())
        if not isinstance(found, Offloaded):
            answer(found)
            return
        offloaded = found
        self._wait()

        def done(outcome: Outcome[object]) -> None:
            if self._is_over:
                return
            now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            result = self._machine.on_offloaded(offloaded, outcome, now_ms, wall_ms)
            self._resume()
            answer(result)

        self._scheduler.offload(offloaded.work, done)

    def _look_if_done(self) -> None:
        machine = self._machine
        client = machine.client
        if machine.state is not State.AUTHENTICATED or client is None:
            return
        self._deadline.cancel()
        if self._metrics is not None:
            (self._metrics.reauthenticated if self._is_known else self._metrics.authenticated).add()
        self._is_known = True
        self._owner.connection.limit_frames(None)
        self._owner.on_authenticated(client, watch_requests=machine.has_lifetime)

    def _refuse(self, slot: ResponseSlot | None, pieces: Sequence[Piece] | None, reason: str) -> None:
        """Answer after the delay, and close: who guesses passwords waits, other connections do not."""
        self._wait()
        metrics = self._metrics
        if metrics is not None:
            (metrics.reauthentication_failed if self._is_known else metrics.authentication_failed).add()

        def refuse() -> None:
            if self._is_over:
                return
            if slot is not None and pieces is not None:
                slot.fill(pieces)
            self._end(f"failed authentication: {reason}")

        self._scheduler.call_later(self._listener.failed_delay_ms, refuse)

    def _wait(self) -> None:
        self._is_waiting = True
        self._owner.connection.pause()

    def _resume(self) -> None:
        self._is_waiting = False
        self._owner.connection.resume()

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._owner.close_unauthenticated(reason)


def illegal_sasl_state(api: Api, version: int, correlation_id: int, reader: Reader) -> Sequence[Piece] | None:
    """Return the answer to a request that its connection's authentication does not allow; None: it has no answer."""
    request = api.request.read(reader, version)
    result = request.failed(ApiError(ErrorCode.ILLEGAL_SASL_STATE, "the request is not valid in the SASL state"))
    return None if isinstance(result, BarnabasError) else encode(api, version, correlation_id, result)


def encode(api: Api, version: int, correlation_id: int, result: object) -> Sequence[Piece]:
    """Return the frame of an answer."""
    writer = api.writer(version)
    writer.out += wire.I32.pack(correlation_id)
    if version >= api.flexible_from:
        writer.end()
    api.result.write(writer, version, result)
    return writer.pieces()


def _name(key: int) -> str:
    api = SASL_BY_KEY.get(key) or BY_KEY.get(key)
    return "ApiVersions" if key == versions.KEY else f"API key {key}" if api is None else api.name
