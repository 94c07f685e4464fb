"""The client's end: a `BrokerLink` to any broker of the Kafka protocol."""

from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from struct import Struct
from typing import Any

from ...core.security.sasl.client import ClientAuthenticator, SaslFactory
from ...core.security.sasl.exchange import SaslAuthenticationError
from ...ports.broker_api.envelope import Caller, Reply, Request, ResultT
from ...ports.broker_api.features import DescribeFeatures
from ...ports.broker_api.fetch import Fetch
from ...ports.broker_api.groups import JoinGroup
from ...ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from ...ports.broker_api.sasl import SaslAuthenticate, SaslAuthenticateResult, SaslHandshake, SaslHandshakeResult
from ...ports.broker_api.share_groups import ShareFetch
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, Malformed
from ...ports.scheduler import Scheduler, Timer
from ...ports.transport import (
    Address,
    AuthenticationError,
    ClientTls,
    ClosedUnanswered,
    Connection,
    ConnectionHandler,
    Limits,
    Piece,
    Transport,
    TransportError,
)
from . import versions, wire
from .api import Api, in_order
from .features import DESCRIBE_FEATURES
from .sasl import SASL_BY_REQUEST
from .table import BY_REQUEST
from .wire import DECODE_ERRORS

ITEMS_MAX = 10_000_000
"""The maximum number of elements in all arrays of a response."""
FIRST_API_VERSIONS = 3
"""The version of ApiVersions that is tried first: what brokers of 2.4 and later know."""
TICKS = 8
"""A request timeout is noticed after at most 1 / TICKS more than it says."""

REAUTHENTICATION_SHARE = 0.9
"""The part of a session's lifetime after which the client authenticates again (KIP-368)."""

_UNANSWERED = (
    "closed by the broker before it answered a request; its listener may want another security.protocol: SSL, "
    "SASL_SSL or SASL_PLAINTEXT"
)
_HEADER = Struct(">hhi")
_CORRELATION_MASK = 0x7FFF_FFFF
_FETCHES = (Fetch, ShareFetch)
"""Requests that wait at the broker for records; their responses have records."""

Opened = Callable[["KafkaLink | TransportError"], None]


def connect_kafka(
    transport: Transport,
    scheduler: Scheduler,
    address: Address,
    *,
    client_id: str | None,
    request_timeout_ms: float,
    connect_timeout_ms: float,
    opened: Opened,
    limits: Limits | None = None,
    software_version: str = "unknown",
    sasl: SaslFactory | None = None,
    tls: ClientTls | None = None,
) -> None:
    """Connect, agree on versions and authenticate; `opened` is called once, later, with the link or the reason why
    there is none.

    The connection, and then the negotiation, may take `connect_timeout_ms` each. `sasl` makes the authenticator for
    the host; where the broker refuses it, or it refuses the broker, the reason is an `AuthenticationError`, as where
    the handshake of `tls` fails. `limits` bound the answers, by default without a limit of idle time, which is the
    broker's to set. `software_version` is sent to the broker. Owner thread only. Raises `ValueError` for a client id
    that the protocol cannot carry.
    """
    if client_id is not None and len(client_id.encode()) > wire.TEXT_BYTES_MAX:
        raise ValueError(f"a client id has at most {wire.TEXT_BYTES_MAX} bytes")

    def connected(outcome: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(outcome, TransportError):
            opened(outcome)
            return None
        link = KafkaLink(
            outcome,
            scheduler,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            opened=opened,
            make_authenticator=None if sasl is None else lambda: sasl(address[0]),
        )
        link.negotiate(connect_timeout_ms, software_version)
        return link

    transport.connect(address, connected, timeout_ms=connect_timeout_ms, limits=limits or Limits(idle_ms=0), tls=tls)


class _Waiting:
    """A request in flight."""

    __slots__ = ("answer", "api", "correlation_id", "last_tick", "reply", "request", "version")

    def __init__(
        self,
        correlation_id: int,
        api: Api,
        version: int,
        request: Any,
        reply: Reply[Any],
        last_tick: int,
        answer: Callable[[Any], Any] | None,
    ) -> None:
        self.correlation_id = correlation_id
        self.api = api
        self.version = version
        self.request = request
        self.reply = reply
        self.last_tick = last_tick
        self.answer = answer
        """The function that converts the response into the result, where they differ."""


class KafkaLink:
    """A connection to one broker. Made by `connect_kafka`; usable from the moment `opened` gets it.

    The broker responds in the order of the requests. If a response takes longer than the request timeout (for a fetch
    and a join: plus their own wait), the connection is dead: it is closed, and all its requests fail.
    """

    def __init__(
        self,
        connection: Connection,
        scheduler: Scheduler,
        *,
        client_id: str | None,
        request_timeout_ms: float,
        opened: Opened,
        make_authenticator: Callable[[], ClientAuthenticator] | None = None,
    ) -> None:
        self._connection = connection
        self._make_authenticator = make_authenticator
        self._authenticator: ClientAuthenticator | None = None
        """The SASL exchange in progress; meanwhile other requests wait in `_held`."""
        self._held: deque[Callable[[], None]] = deque()
        self._reauthentication: Timer | None = None
        self._throttle_timer: Timer | None = None
        """Set while the broker reads nothing, since this client is beyond its quota; requests wait in `_held`."""
        self._has_versions = self._has_answered = False
        self._scheduler = scheduler
        self._client_id = client_id
        self._client_field: tuple[str | None, bytes] = (None, wire.I16.pack(-1))
        """The client id of the last request, and its field in the header."""
        self._opened: Opened | None = opened
        self._ranges: versions.Ranges = {}
        self._negotiating = FIRST_API_VERSIONS
        self._software_version = ""
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._failure: TransportError | None = None
        self._tick_ms = max(1.0, request_timeout_ms / TICKS)
        self._tick = 0
        self._timer: Timer | None = None

    @property
    def is_open(self) -> bool:
        """False once the connection is gone; requests then fail at once."""
        return self._failure is None

    @property
    def address(self) -> Address:
        """The broker's end of the connection."""
        return self._connection.peer

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """Send the request; see `BrokerApi.submit`. The caller's client id takes the place of the link's if it has one.

        Replies with `TransportError` when the link is closed or breaks, `ApiError(UNSUPPORTED_VERSION)` when the broker
        has no version of the API that can express the request, `ApiError(INVALID_REQUEST)` for values that the protocol
        cannot carry. Records of a request are kept until it has been sent.
        """
        if (self._authenticator is not None or self._throttle_timer is not None) and self._failure is None:
            self._held.append(lambda: self._submit(request, caller, reply))
            return
        self._submit(request, caller, reply)

    def _submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        if self._failure is not None:
            reply(self._failure)
            return
        try:
            api, version = self._choose(request)
            client_id = self._client_id if caller.client_id is None else caller.client_id
            self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
            sent: Any = request
            answer = None
            if isinstance(request, DescribeFeatures):
                sent = versions.ApiVersionsRequest(versions.SOFTWARE, self._software_version)
            if version >= api.ids_since and api.by_id is not None:
                sent, answer = api.by_id(request)
            pieces = self._encode(api, version, self._correlation_id, client_id, sent)
        except ApiError as error:
            reply(error)
            return
        except Exception as error:  # noqa: BLE001  # values of any type from the user; the caller gets the error
            reply(ApiError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} cannot be encoded: {error}"))
            return
        if isinstance(request, Produce) and request.acks == 0:
            self._connection.send(pieces)
            nothing_known = [ProduceResultPartition(part.topic, part.partition) for part in request.partitions]
            reply(ProduceResult(partitions=nothing_known))  # type: ignore[arg-type]  # the result type of Produce
            return
        last_tick = self._tick + self._patience(request)
        if self._waiting:
            last_tick = max(last_tick, self._waiting[-1].last_tick)  # brokers respond in the order of the requests
        self._waiting.append(_Waiting(self._correlation_id, api, version, request, reply, last_tick, answer))
        self._connection.send(pieces)
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._tick_ms, self._next_tick)

    def close(self) -> None:
        """Close the connection; requests in flight fail with `TransportError`. Twice is harmless."""
        self._fail("closed by this side")

    def negotiate(self, timeout_ms: float, software_version: str) -> None:
        """Ask for the broker's versions; `opened` is called when they are there. Called once, by `connect_kafka`."""
        self._software_version = software_version
        self._timer = self._scheduler.call_later(timeout_ms, self._negotiation_timed_out)
        self._ask_versions()

    def on_frame(self, content: memoryview) -> None:
        if self._failure is not None:
            return
        if not self._has_versions:
            self._negotiated(content)
            return
        try:
            waiting, result = self._read(content)
        except (Malformed, *DECODE_ERRORS) as error:
            self._fail(f"malformed response: {error}")
            return
        self._has_answered = True
        self._waiting.popleft()
        if not isinstance(result, BarnabasError) and getattr(result, "throttle_ms", 0) > 0:
            self._throttle(result.throttle_ms)
        waiting.reply(result)

    def _throttle(self, delay_ms: int) -> None:
        """Send nothing during the delay that the broker demands (KIP-219): it would not read it."""
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._throttle_timer = self._scheduler.call_later(delay_ms, self._end_throttling)

    def _end_throttling(self) -> None:
        self._throttle_timer = None
        self._submit_held()

    def on_closed(self, error: TransportError | None) -> None:
        if isinstance(error, AuthenticationError):  # the broker refused the certificate after the client's handshake
            self._fail(str(error), AuthenticationError)
        elif error is None and not self._has_answered:
            self._fail(_UNANSWERED, ClosedUnanswered)
        else:
            self._fail(str(error) if error is not None else "closed by the broker")

    def _choose(self, request: Request[Any]) -> tuple[Api, int]:
        kind = type(request)
        api = BY_REQUEST.get(kind) or SASL_BY_REQUEST.get(kind)
        if kind is DescribeFeatures:
            api = DESCRIBE_FEATURES
        if api is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not part of the protocol")
        broker_low, broker_high = self._ranges.get(api.key, (0, -1))
        least, most = api.versions
        if api.most_version is not None:
            most = api.most_version(request)
        if api.least_version is not None and (wanted := api.least_version(request)) > least:
            least = wanted
        least = least if least >= broker_low else broker_low
        if most < least:
            text = f"{api.name} has fields of version {least} or later, and others of version {most} or earlier"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        version = most if most < broker_high else broker_high
        if version < least:
            offers = f"offers {broker_low} to {broker_high}" if broker_high >= 0 else "does not offer it"
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"{api.name} needs version {least} or later; the broker {offers}"
            )
        return api, version

    def _encode(
        self, api: Api, version: int, correlation_id: int, client_id: str | None, request: Any
    ) -> Sequence[Piece]:
        writer = api.writer(version)
        writer.out += self._header(api.key, version, correlation_id, client_id)
        if version >= api.flexible_from:
            writer.end()
        api.request.write(writer, version, request)
        return writer.pieces()

    def _header(self, key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
        if client_id != self._client_field[0]:
            client = b"" if client_id is None else client_id.encode()
            self._client_field = client_id, wire.I16.pack(-1 if client_id is None else len(client)) + client
        return _HEADER.pack(key, version, correlation_id) + self._client_field[1]

    def _ask_versions(self) -> None:
        version = self._negotiating
        self._correlation_id += 1
        header = self._header(versions.KEY, version, self._correlation_id, self._client_id)
        tags = b"\x00" if version >= versions.FLEXIBLE else b""
        body = versions.request_body(version, versions.SOFTWARE, self._software_version)
        self._connection.send([header + tags + body])

    def _negotiated(self, content: memoryview) -> None:
        try:
            (correlation_id,) = wire.I32.unpack_from(content)
            if correlation_id != self._correlation_id:
                raise Malformed(f"correlation id {correlation_id}, expected {self._correlation_id}")
            error, ranges = versions.read_response(content, 4, self._negotiating, ITEMS_MAX)
        except (Malformed, *DECODE_ERRORS) as cause:
            self._fail(f"malformed response: {cause}")
            return
        if error == ErrorCode.UNSUPPORTED_VERSION and self._negotiating > 0:
            # Brokers before KIP-511 leave out which versions they know.
            known = ranges.get(versions.KEY, (0, 0))[1]
            self._negotiating = max(0, min(self._negotiating - 1, known))
            self._ask_versions()
            return
        if error != ErrorCode.NONE:
            self._fail(f"the broker answered ApiVersions with error {error}")
            return
        self._ranges = ranges
        self._has_versions = True
        if self._make_authenticator is not None:
            self._authenticate()
            return
        self._open()

    def _open(self) -> None:
        """Pass the link to the `opened` callback."""
        opened, self._opened = self._opened, None
        if opened is not None:
            self._stop_timer()
            opened(self)

    def _negotiation_timed_out(self) -> None:
        self._timer = None
        what = "authenticate this client" if self._has_versions else "answer ApiVersions"
        self._fail(f"the broker did not {what} in time")

    # --- authentication

    def _authenticate(self) -> None:
        """Begin an authentication, or a re-authentication (KIP-368)."""
        assert self._make_authenticator is not None
        self._reauthentication = None
        if self._failure is not None or self._authenticator is not None:
            return
        try:
            authenticator = self._authenticator = self._make_authenticator()
            authenticator.prepare(self._scheduler, self._on_prepared)
        except BarnabasError as error:
            self._refuse(str(error))

    def _on_prepared(self, error: BarnabasError | None) -> None:
        authenticator = self._authenticator
        if self._failure is not None or authenticator is None:
            return
        if error is not None:
            self._refuse(f"no credentials for SASL mechanism {authenticator.mechanism}: {error}")
            return
        self._submit(SaslHandshake(mechanism=authenticator.mechanism), Caller(client_id=None), self._on_handshake)

    def _on_handshake(self, result: SaslHandshakeResult | BarnabasError) -> None:
        authenticator = self._authenticator
        if self._failure is not None or authenticator is None:
            return
        if isinstance(result, BarnabasError):
            self._refuse(f"the broker does not offer SASL: {result}")
        elif result.error is not ErrorCode.NONE:
            enabled = ", ".join(result.mechanisms) or "none"
            text = f"the broker refuses SASL mechanism {authenticator.mechanism} with {result.error.name}"
            self._refuse(f"{text}; it enables {enabled}")
        else:
            self._send_token(authenticator.first)

    def _send_token(self, make_token: Callable[[], bytes | None]) -> None:
        """Send the next message of the exchange, unless it was the last one."""
        try:
            token = make_token()
        except SaslAuthenticationError as error:
            self._refuse(error.message)
            return
        if token is not None:
            self._submit(SaslAuthenticate(auth_bytes=token), Caller(client_id=None), self._on_token)

    def _on_token(self, result: SaslAuthenticateResult | BarnabasError) -> None:
        authenticator = self._authenticator
        if self._failure is not None or authenticator is None:
            return
        if isinstance(result, BarnabasError):
            self._refuse(str(result))
            return
        if result.error is not ErrorCode.NONE:
            text = f"{result.error.name}: {result.error_message or 'the broker gives no reason'}"
            self._refuse(f"authentication with SASL mechanism {authenticator.mechanism} failed: {text}")
            return

        def next_token() -> bytes | None:
            token = authenticator.next(result.auth_bytes)
            if token is None:
                self._on_authenticated(result.session_lifetime_ms)
            return token

        self._send_token(next_token)

    def _on_authenticated(self, lifetime_ms: int) -> None:
        self._authenticator = None
        if lifetime_ms > 0:
            delay_ms = lifetime_ms * REAUTHENTICATION_SHARE
            self._reauthentication = self._scheduler.call_later(delay_ms, self._authenticate)
        self._open()
        self._submit_held()

    def _submit_held(self) -> None:
        while self._held and self._authenticator is None and self._throttle_timer is None:
            self._held.popleft()()

    def _refuse(self, reason: str) -> None:
        self._fail(reason, AuthenticationError)

    def _read(self, content: memoryview) -> tuple[_Waiting, Any]:
        (correlation_id,) = wire.I32.unpack_from(content)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            raise Malformed(f"unexpected correlation id {correlation_id}")
        waiting = self._waiting[0]
        if waiting.api.request_type in _FETCHES:
            content = memoryview(bytes(content))  # the records outlive the frame
        reader = waiting.api.reader(waiting.version, content, 4, ITEMS_MAX)
        if waiting.version >= waiting.api.flexible_from and waiting.api.key != versions.KEY:
            reader.skip_tags()
        codec = waiting.api.result
        if waiting.api.result_of is not None:
            codec = waiting.api.result_of(waiting.request, waiting.version)
        result = codec.read(reader, waiting.version)
        if waiting.answer is not None:
            result = waiting.answer(result)
        if waiting.api.by_partition:
            result = in_order(waiting.request, result)
        if waiting.api.completed is not None:
            result = waiting.api.completed(waiting.request, result)
        return waiting, result

    def _patience(self, request: Request[Any]) -> int:
        own_wait_ms = 0
        if isinstance(request, _FETCHES):
            own_wait_ms = request.max_wait_ms
        elif isinstance(request, JoinGroup):
            own_wait_ms = max(request.rebalance_timeout_ms, request.session_timeout_ms)
        return TICKS + 1 + (ceil(own_wait_ms / self._tick_ms) if own_wait_ms > 0 else 0)

    def _next_tick(self) -> None:
        self._timer = None
        self._tick += 1
        if not self._waiting:
            return
        first = self._waiting[0]
        if first.last_tick <= self._tick:
            self._fail(f"{first.api.name} was not answered within the request timeout")
            return
        self._timer = self._scheduler.call_later(self._tick_ms, self._next_tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, reason: str, kind: type[TransportError] = TransportError) -> None:
        if self._failure is not None:
            return
        host, port = self._connection.peer
        failure = self._failure = kind(f"connection to {host}:{port}: {reason}")
        self._stop_timer()
        if self._reauthentication is not None:
            self._reauthentication.cancel()
            self._reauthentication = None
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        self._connection.close()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened(failure)
        while self._waiting:
            self._waiting.popleft().reply(failure)
        while self._held:
            self._held.popleft()()
