"""The broker's end: frames become requests to a `BrokerApi`, its results frames, in the order of the requests."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from struct import Struct
from typing import Any, cast

from attrs import evolve

from ...core.security.quotas.request_quotas import RequestQuotas, RequestUsage
from ...core.security.sasl.exchange import AuthenticatedClient
from ...core.traffic.request_log import CompletedRequest, RequestLog, client_wait_ms
from ...core.traffic.socket_server_metrics import SocketServerMetrics
from ...core.traffic.steps import StepRunner, Steps
from ...ports.broker_api.cluster import ConnectionDescription
from ...ports.broker_api.envelope import ANONYMOUS, BrokerApi, Caller, Principal
from ...ports.broker_api.features import FeatureMetadata
from ...ports.broker_api.fetch import FetchResult
from ...ports.broker_api.produce import Produce, ProduceResult
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import BarnabasError, Malformed
from ...ports.scheduler import Outcome, Scheduler, Timer
from ...ports.storage import size_of
from ...ports.transport import Connection, ConnectionHandler, Piece, TransportError, memory_bytes
from . import versions, wire
from .api import Api
from .authentication import ConnectionAuthentication, ServerAuthentication, illegal_sasl_state
from .fetch import Answered
from .refused import not_offered, refusal
from .sasl import SASL_BY_KEY
from .schema import write_in_steps
from .table import BY_KEY
from .wire import DECODE_ERRORS, ENCODE_ERRORS, CompactReader, CompactWriter, Reader, Writer

IN_FLIGHT_MAX = 64
ITEMS_MAX = 100_000
"""Elements of all arrays of one request together; a request for more than that many partitions is refused."""

SOFTWARE_MAX, CLIENT_ID_MAX = 100, 250
"""The characters that are kept of the name and the version of a client's software, and described of a client id."""

_HEADER = Struct(">hhih")
_HEADER_BYTES = _HEADER.size
_CLIENT_FIELD = _HEADER_BYTES - 2
"""The position of the client id's length."""
_FLEXIBLE_ANSWER = Struct(">ib")
_VERSIONS = "ApiVersions"
_NO_ANSWER: Sequence[Piece] = ()
_DECODED = 8
"""A waiting request takes this many times the bytes of its frame: it consists of objects, one for a few bytes each."""
_NOTED_MAX = 4_096
_SMALL_BYTES = 256
"""Requests up to this size are not counted while they wait: their number is bounded."""
_numbers = count(1, 2)
"""The numbers of connections, for `Caller.connection`: odd ones; the classic protocol has the even ones."""


class KafkaServer:
    """Serves a broker to connections of the Kafka protocol.

    listener: the name that the broker knows the listener by (`Caller.listener`).
    report:   takes one line for each connection that is closed because of what came over it.
    max_in_flight: with this many requests waiting for answers, nothing further is read from a connection.
    gone:     gets the number (`Caller.connection`) of each connection that has closed.
    watch:    looks at how long requests take; None costs nothing.
    steps:    where long answers are written between other work; without it they are written in one go.
    topic_name: the name of the topic with an id, empty where there is none: newer fetch versions carry ids only.
    is_appending: true while records that came over a connection (`Caller.connection`) are being opened. Nothing further
              is read from it until its Produce is answered, as Kafka reads one request at a time.
    identity: the ids of the cluster and of this broker, which clients may ask for; None: every client is right here.
    authentication: the SASL that every client has to pass; None: the listener has none.
    quotas:   the limits of clients; a client beyond its limit is answered at once, and its connection is muted for the
              delay in the answer, as with Kafka (KIP-219). Needs the `scheduler`.
    principal_of: the principal of a connection without SASL, by its client certificate; without it, ANONYMOUS.
    metrics:  counts connections and logins; None: they are not counted.
    features: the features of the cluster, for ApiVersions; the same object until they change.
    clock:    the time at which a connection was accepted; None: it is unknown (-1).
    """

    def __init__(
        self,
        api: BrokerApi,
        *,
        listener: str,
        report: Callable[[str], None],
        max_in_flight: int = IN_FLIGHT_MAX,
        gone: Callable[[int], None] | None = None,
        watch: RequestLog | None = None,
        steps: StepRunner | None = None,
        topic_name: Callable[[bytes], str] = lambda _: "",
        is_appending: Callable[[int], bool] = lambda _: False,
        identity: tuple[str, int] | None = None,
        authentication: ServerAuthentication | None = None,
        principal_of: Callable[[Connection], Principal] | None = None,
        quotas: RequestQuotas | None = None,
        scheduler: Scheduler | None = None,
        metrics: SocketServerMetrics | None = None,
        clock: Clock | None = None,
        features: Callable[[], FeatureMetadata] = lambda: versions.NO_FEATURES,
    ) -> None:
        if max_in_flight < 1:
            raise ValueError("max_in_flight must be at least 1")
        self.api = api
        self.listener = listener
        self.report = report
        self.max_in_flight = max_in_flight
        self.gone = gone
        self.watch = watch
        self.steps = steps
        self.topic_name = topic_name
        self.is_appending = is_appending
        self.identity = identity
        self.authentication = authentication
        self.principal_of = principal_of
        self.quotas = None if scheduler is None else quotas
        self.scheduler = scheduler
        self.metrics = metrics
        self.clock = clock
        self.features = features
        self._described = versions.NO_FEATURES
        """The features in `_bodies`."""
        self._bodies: dict[tuple[int, bool], bytes] = {}
        """The answers to ApiVersions by version, and whether they are for our own client."""
        self.connections: dict[int, _ServerConnection] = {}
        """The open connections by `Caller.connection`, the oldest first."""

    def accept(self, connection: Connection) -> ConnectionHandler:
        """Return the handler of a new connection, for `Transport.listen`."""
        handler = _ServerConnection(self, connection)
        if self.metrics is not None:
            self.metrics.connections_created.add()
            if self.authentication is None:
                self.metrics.authenticated.add()
        return handler

    def close(self, reason: str) -> int:
        """Close every connection once what was answered has gone out; returns how many have not gone yet."""
        for connection in tuple(self.connections.values()):
            connection.close(reason)
        return len(self.connections)

    def misrouted(self, cluster_id: str | None, node_id: int) -> ErrorCode:
        """Return the error for a client that means another broker or cluster than this (KIP-1242); NONE if it names
        neither, or this one."""
        if self.identity is None or (cluster_id is None and node_id == versions.NO_NODE):
            return ErrorCode.NONE
        if cluster_id is None or node_id == versions.NO_NODE:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE if (cluster_id, node_id) == self.identity else ErrorCode.REBOOTSTRAP_REQUIRED

    def api_versions(self, version: int, *, to_own_client: bool = False) -> bytes:
        """Return the body of the answer to ApiVersions; our own clients get our own APIs, too."""
        features = self.features()
        if features is not self._described:
            self._described = features
            self._bodies.clear()
        asked = version, to_own_client
        body = self._bodies.get(asked)
        if body is None:
            body = self._bodies[asked] = _api_versions(*asked, features)
        return body


def _api_versions(version: int, to_own_client: bool, features: FeatureMetadata = versions.NO_FEATURES) -> bytes:
    low, high = versions.VERSIONS
    if not low <= version <= high:
        return versions.unknown_version_body()
    listed = [api for api in BY_KEY.values() if not api.is_unlisted and (to_own_client or not api.is_own)]
    ranges = [(api.key, *api.advertised) for api in listed]
    ranges += [(api.key, *api.versions) for api in SASL_BY_KEY.values()]
    return versions.response_body(version, [*ranges, (versions.KEY, *versions.VERSIONS)], features)


def _with_client_id(caller: Caller, client_id: str | None) -> Caller:
    """Return the caller with this client id. Every connection needs that once; `evolve` costs some times as much."""
    return Caller(
        client_id=client_id,
        host=caller.host,
        listener=caller.listener,
        connection=caller.connection,
        principal=caller.principal,
        origin=caller.origin,
        is_token_authenticated=caller.is_token_authenticated,
        is_encrypted=caller.is_encrypted,
    )


class _ServerConnection:
    """One client. Answers that are ready before their turn are held in `_in_flight`, oldest request first."""

    def __init__(self, server: KafkaServer, connection: Connection) -> None:
        self._server = server
        self._api = server.api
        self.connection = self._connection = connection
        self._in_flight: deque[_InFlight] = deque()
        self._max_in_flight = server.max_in_flight
        """One for a client with a quota, as in Kafka: the delays of its requests follow one another."""
        self._watch = server.watch
        self._paused = False
        self._unmute_timer: Timer | None = None
        """Set while the connection is muted, since a client is beyond its quota."""
        self._muted_until_ms = 0.0
        self._long: _InFlight | None = None
        """The request that is being made ready, or whose answer is; the others are not read meanwhile."""
        self._open = True
        self._client_field, self._client_end = b"none yet", 8
        """The client id as headers have it, with its length, and where it ends in them."""
        self._refused: set[int] = set()
        self._caller = Caller(
            client_id="",
            host=connection.peer[0],
            listener=server.listener,
            connection=next(_numbers),
            principal=ANONYMOUS if server.principal_of is None else server.principal_of(connection),
            is_encrypted=connection.is_encrypted,
        )
        self._authentication: ConnectionAuthentication | None = None
        """Takes every frame first; None where requests need no look at the authentication."""
        if server.authentication is not None:
            self._authentication = ConnectionAuthentication(
                self, server.authentication, server.listener, server.metrics
            )
        self._software: tuple[str, str] = ("", "")
        """Name and version of the client's software (KIP-511)."""
        self._connected_at_ms = -1 if server.clock is None else server.clock.now_ms()
        self._requests = 0
        server.connections[self._caller.connection] = self

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
            client_id=None if caller.client_id is None else caller.client_id[:CLIENT_ID_MAX],
            software_name=self._software[0],
            software_version=self._software[1],
            connected_at_ms=self._connected_at_ms,
            requests=self._requests,
            in_flight=len(self._in_flight),
            bytes_in=connection.bytes_received,
            bytes_out=connection.bytes_sent,
        )

    @property
    def software(self) -> tuple[str, str]:
        """Name and version of the client's software; empty if it does not say them."""
        return self._software

    def on_frame(self, content: memoryview) -> None:
        if not self._open:
            return
        self._requests += 1
        try:
            if self._authentication is not None and self._authentication.on_frame(content):
                return
            slot, request = self._read(content)
        except (Malformed, *DECODE_ERRORS) as error:
            self._close_connection(f"refused a request: {error}")
            return
        self._in_flight.append(slot)
        watch = self._watch
        if watch is not None:
            slot.caller = self._caller
            slot.size_bytes = len(content)
            slot.request = None if type(request) is Produce else request
            slot.began_ms = watch.now_ms()
        if request is not None:
            quotas = self._server.quotas
            if quotas is not None and quotas.is_enabled:
                slot.usage = quotas.start_request(request, self._caller, len(content))
                one_by_one = slot.usage is not None and quotas.has_limit(self._caller)
                self._max_in_flight = 1 if one_by_one else self._server.max_in_flight
            elif self._max_in_flight != self._server.max_in_flight:
                self._max_in_flight = self._server.max_in_flight
            self._api.submit(request, self._caller, partial(self.answered, slot))
            if watch is not None and slot.pieces is None and self._open:
                watch.on_handled(watch.now_ms() - slot.began_ms, slot.completed_request)
            if slot.pieces is None and self._open:
                if slot.usage is not None:
                    slot.usage.stop()
                size = len(content)
                if type(request) is Produce:  # of most of them no records are kept
                    if self._server.is_appending(self._caller.connection):
                        slot.is_held = True
                        self._keep(slot, size)
                elif size > _SMALL_BYTES:
                    self._keep(slot, _DECODED * size)
        else:
            if watch is not None:
                self._was_answered(slot, watch, watch.now_ms() - slot.began_ms)
                slot.request = None
            self._flush()
        self._long = slot if (slot.is_long or slot.is_held) and slot.pieces is None else None
        if not self._paused and self._open and (self._long or len(self._in_flight) >= self._max_in_flight):
            self._paused = True
            self._connection.pause()

    def on_closed(self, error: TransportError | None) -> None:  # noqa: ARG002
        self._open = False
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._authentication is not None:
            self._authentication.close()
        self._in_flight.clear()
        self._server.connections.pop(self._caller.connection, None)
        if self._server.metrics is not None:
            self._server.metrics.connections_closed.add()
        if self._server.gone is not None:
            self._server.gone(self._caller.connection)

    def close(self, reason: str) -> None:
        """Take no further requests, let the sent answers go out, and close."""
        self._open = False
        self._in_flight.clear()
        self._connection.close(reason)

    def reserve(self, version: int, correlation_id: int) -> "_InFlight":
        slot = _InFlight(self, None, version, correlation_id)
        self._in_flight.append(slot)
        return slot

    def on_authenticated(self, client: AuthenticatedClient, *, watch_requests: bool) -> None:
        self._caller = evolve(
            self._caller, principal=client.principal, is_token_authenticated=client.is_token_authenticated
        )
        if not watch_requests:
            self._authentication = None

    def close_unauthenticated(self, reason: str) -> None:
        if reason:
            self._close_connection(reason)
        else:
            self.close("")

    def flush(self) -> None:
        """Send the answers whose turn it is."""
        self._flush()

    def _read(self, content: memoryview) -> tuple["_InFlight", Any]:
        """Return the place of the request in the queue, and the request; None where the answer is already known."""
        key, version, correlation_id, client_size = _HEADER.unpack_from(content)
        api = BY_KEY.get(key)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            return self._read_other(content, key, version, correlation_id, client_size), None
        if content[_CLIENT_FIELD : self._client_end] == self._client_field:
            body = self._client_end
        else:
            body = self.read_client(content, client_size)
        if version >= api.flexible_from:
            reader: Reader = CompactReader(content, body, ITEMS_MAX)
            if content[body]:
                reader.skip_tags()
            else:
                reader.position = body + 1
        else:
            reader = Reader(content, body, ITEMS_MAX)
        slot = _InFlight(self, api, version, correlation_id)
        try:
            request = api.request.read(reader, version)
        except Answered as answered:
            slot.pieces = slot.encode(answered.result)
            return slot, None
        if api.named is not None:
            request = api.named(request, self._server.topic_name)
        elif version >= api.ids_since and api.resolved is not None:
            request, slot.answer = api.resolved(request, self._server.topic_name)
        slot.silent = type(request) is Produce and request.acks == 0
        return slot, request

    def _read_other(
        self, content: memoryview, key: int, version: int, correlation_id: int, client_size: int
    ) -> "_InFlight":
        """Return the place of a request that is none for the broker: it is answered here."""
        if key == versions.KEY:
            return self._read_api_versions(content, version, correlation_id, client_size)
        if key in SASL_BY_KEY:
            return self._refuse_sasl(content, SASL_BY_KEY[key], version, correlation_id, client_size)
        return self._refuse(content, key, version, correlation_id, client_size)

    def _read_api_versions(self, content: memoryview, version: int, correlation_id: int, size: int) -> "_InFlight":
        low, high = versions.VERSIONS
        error = ErrorCode.NONE
        if low <= version <= high:
            body = self.read_client(content, size)
            if version >= versions.FLEXIBLE:
                reader = CompactReader(content, body, ITEMS_MAX)
                reader.skip_tags()
                error = self._introduced(versions.read_request(reader, version))
        slot = _InFlight(self, None, version, correlation_id)
        is_own = self._software[0] == versions.SOFTWARE
        answer = versions.refusal_body(error) if error else self._server.api_versions(version, to_own_client=is_own)
        slot.pieces = [wire.I32.pack(correlation_id) + answer]
        return slot

    def _introduced(self, request: versions.ApiVersionsRequest) -> ErrorCode:
        """Note the client's software; return the error for a client that is wrong here, or names it illegally."""
        if not request.is_valid:
            return ErrorCode.INVALID_REQUEST
        self._software = (request.software_name[:SOFTWARE_MAX], request.software_version[:SOFTWARE_MAX])
        return self._server.misrouted(request.cluster_id, request.node_id)

    def _refuse_sasl(self, content: memoryview, api: Api, version: int, correlation_id: int, size: int) -> "_InFlight":
        """Return the place of a request to authenticate where none is due: answered with ILLEGAL_SASL_STATE, as by
        Kafka."""
        if not api.versions[0] <= version <= api.versions[1]:
            raise Malformed(f"{api.name} has no version {version}")
        reader = api.reader(version, content, self.read_client(content, size), ITEMS_MAX)
        if version >= api.flexible_from:
            reader.skip_tags()
        slot = _InFlight(self, None, version, correlation_id)
        slot.pieces = illegal_sasl_state(api, version, correlation_id, reader)
        return slot

    def _refuse(self, content: memoryview, key: int, version: int, correlation_id: int, size: int) -> "_InFlight":
        """Return the place of what is not offered, with the answer that says so. Raises `Malformed` where there is
        none."""
        body = self.read_client(content, size)
        text = f"client {self._caller.client_id!r} asks for {not_offered(key, version)}"
        slot = _InFlight(self, None, version, correlation_id)
        try:
            slot.pieces = refusal(content, body, key, version, wire.I32.pack(correlation_id), ITEMS_MAX)
        except (Malformed, *DECODE_ERRORS) as error:
            raise Malformed(f"{text}; {error}") from error
        if slot.pieces is None:
            raise Malformed(text)
        if key not in self._refused:
            self._refused.add(key)
            host, port = self._connection.peer
            self._server.report(f"{host}:{port} on {self._server.listener}: {text}")
        return slot

    def read_client(self, content: memoryview, size: int) -> int:
        """Takes the client id, which has the old encoding in every version of the header; returns where it ends."""
        end = _HEADER_BYTES + size if size > 0 else _HEADER_BYTES
        if size < -1 or end > len(content):
            raise Malformed(f"a client id of {size} bytes is claimed")
        field = content[_CLIENT_FIELD:end]
        if field != self._client_field:
            client_id = None if size < 0 else str(content[_HEADER_BYTES:end], "utf-8")
            self._client_field, self._client_end = bytes(field), end
            self._caller = _with_client_id(self._caller, client_id)
        return end

    def answered(self, slot: "_InFlight", result: object) -> None:
        """The broker has answered; ignored when the connection has gone meanwhile."""
        if not self._open or slot.pieces is not None:
            return
        watch = self._watch
        if watch is not None:
            took_ms = watch.now_ms() - slot.began_ms
            if took_ms > watch.threshold_ms or watch.unobserved is not None:
                self._was_answered(slot, watch, took_ms)
            slot.request = None
        if slot.is_held and self._long is slot:
            self._long = None
        if slot.usage is not None and not isinstance(result, BarnabasError):
            result = self._throttled(slot.usage, slot, result)
        named = result
        if slot.answer is not None and not isinstance(result, BarnabasError):
            result = slot.answer(result)
        if isinstance(result, BarnabasError):
            self._close_connection(f"{slot.name} failed: {result}")
        elif slot.silent:
            slot.pieces = _NO_ANSWER
            outcomes = [*cast(ProduceResult, named).partitions, *cast(ProduceResult, result).partitions]
            refused = next((p for p in outcomes if p.error is not ErrorCode.NONE), None)
            if refused is not None:
                # Without an answer, this is how a producer learns that messages are lost.
                where = f"{refused.topic}-{refused.partition}"
                self._close_connection(f"Produce without acknowledgement to {where} failed: {refused.error.name}")
                return
            self._flush()
        elif slot.is_long and self._server.steps is not None:
            owner = self._caller.connection
            self._server.steps.run(slot.encode_in_steps(result), lambda made: self._encoded(slot, made), owner)
        else:
            try:
                slot.pieces = pieces = slot.encode(result)
            except Exception as error:  # noqa: BLE001  reported; an answer that never came would hold up all behind it
                self._not_encoded(slot, error)
                return
            if self._long is slot:
                self._long = None
            waiting = self._in_flight
            if len(waiting) == 1 and not self._paused and not slot.held_bytes:  # as with most requests
                waiting.clear()
                slot.is_sent = True
                self._connection.send(pieces)
                return
            self._flush()
            if not slot.is_sent:
                self._keep(slot, memory_bytes(pieces))

    def _throttled(self, usage: RequestUsage, slot: "_InFlight", result: Any) -> Any:
        """Count what a request has used; return its result with its delay, and mute the connection meanwhile."""
        quotas = self._server.quotas
        assert quotas is not None
        slot.usage = None
        response_bytes = 0
        if usage.is_fetch or usage.is_share_fetch:
            try:
                response_bytes = sum(map(size_of, slot.encode(result)))
            except ENCODE_ERRORS:
                return result  # the same error follows, with a report
        throttle_ms = quotas.complete_request(usage, response_bytes)
        if throttle_ms and usage.is_fetch:
            result = FetchResult(partitions=(), throttle_ms=throttle_ms)
        elif throttle_ms > result.throttle_ms:
            # The bytes of a cached answer have another delay, and are those of other clients.
            own = {"encoded": None} if getattr(result, "encoded", None) is not None else {}
            result = evolve(result, throttle_ms=throttle_ms, **own)
        if result.throttle_ms > 0:
            self._mute(result.throttle_ms)
        return result

    def _mute(self, delay_ms: float) -> None:
        """Read nothing from the connection during the delay; waiting requests are answered in between."""
        scheduler, quotas = self._server.scheduler, self._server.quotas
        assert scheduler is not None and quotas is not None
        until_ms = quotas.now_ms() + delay_ms
        if until_ms <= self._muted_until_ms:
            return
        self._muted_until_ms = until_ms
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = scheduler.call_later(delay_ms, self._unmute)
        if not self._paused:
            self._paused = True
            self._connection.pause()

    def _unmute(self) -> None:
        self._unmute_timer = None
        if self._open:
            self._flush()

    def _encoded(self, slot: "_InFlight", outcome: Outcome[Sequence[Piece]]) -> None:
        if not self._open:
            return
        if outcome.error is not None:
            self._not_encoded(slot, outcome.error)
            return
        slot.pieces = outcome.get()
        if self._long is slot:
            self._long = None
        self._flush()
        if not slot.is_sent:
            self._keep(slot, memory_bytes(slot.pieces))

    def _not_encoded(self, slot: "_InFlight", error: BaseException) -> None:
        what = str(error) if isinstance(error, ENCODE_ERRORS) else f"{type(error).__name__}: {error}"
        self._close_connection(f"the answer to {slot.name} cannot be encoded: {what}")

    def _was_answered(self, slot: "_InFlight", watch: RequestLog, took_ms: float) -> None:
        lately = watch.unobserved
        if lately is not None:
            lately.append((slot.api.name if slot.api is not None else _VERSIONS, took_ms))
            if len(lately) >= _NOTED_MAX:
                watch.observe_times()
        if took_ms > watch.threshold_ms:
            patience = 0.0 if slot.request is None else client_wait_ms(slot.request)
            watch.on_response(took_ms, patience, slot.completed_request)

    def _keep(self, slot: "_InFlight", size: int) -> None:
        """Count `size` bytes as held for the request in this place."""
        before, slot.held_bytes = slot.held_bytes, size
        self._connection.add_held_bytes(size - before)

    def _flush(self) -> None:
        """Send the answers whose turn it is."""
        waiting, freed = self._in_flight, 0
        while waiting:
            slot = waiting[0]
            pieces = slot.pieces
            if pieces is None:
                break
            waiting.popleft()
            slot.is_sent = True
            freed += slot.held_bytes
            if pieces:
                self._connection.send(pieces)
        if freed:
            self._connection.add_held_bytes(-freed)
        if self._paused and self._long is None and self._unmute_timer is None and len(waiting) < self._max_in_flight:
            self._paused = False
            self._connection.resume()

    def _close_connection(self, reason: str) -> None:
        self._open = False
        self._in_flight.clear()
        host, port = self._connection.peer
        self._server.report(f"closing the connection from {host}:{port} on {self._server.listener}: {reason}")
        self._connection.close()  # without the reason, which the transport would report once more


class _InFlight:
    """A request that waits for its answer, or for its turn.

    Where requests are watched it has what the watch will ask for: `caller`, `size_bytes`, `began_ms` and, unless it is
    a Produce, whose records are not kept, or answered, the `request`.
    """

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_version",
        "answer",
        "api",
        "began_ms",
        "caller",
        "held_bytes",
        "is_held",
        "is_long",
        "is_sent",
        "pieces",
        "request",
        "silent",
        "size_bytes",
        "usage",
    )
    caller: Caller
    size_bytes: int
    began_ms: float
    request: Any

    def __init__(self, connection: _ServerConnection, api: Api | None, version: int, correlation_id: int) -> None:
        self._connection = connection
        self.api = api
        self._version = version
        self._correlation_id = correlation_id
        self.silent = False
        self.is_long = api is not None and api.long_answers
        """True if the answer may take long to write."""
        self.is_held = False
        """True for a Produce whose records are being opened."""
        self.answer: Callable[[Any], Any] | None = None
        """The function that turns the broker's result into the answer, where they differ."""
        self.pieces: Sequence[Piece] | None = None
        self.is_sent = False
        self.held_bytes = 0
        self.usage: RequestUsage | None = None
        """The usage of the request, where there are quotas."""

    @property
    def name(self) -> str:
        return self.api.name if self.api is not None else _VERSIONS

    def completed_request(self) -> CompletedRequest:
        """Describe the request for a watch."""
        return CompletedRequest(api=self.name, version=self._version, caller=self.caller, size_bytes=self.size_bytes)

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Send these pieces as the answer, when it is its turn."""
        self.pieces = pieces
        self._connection.flush()

    def encode(self, result: object) -> Sequence[Piece]:
        api, version = self.api, self._version
        assert api is not None
        if version >= api.flexible_from:
            writer: Writer = CompactWriter()
            writer.out += _FLEXIBLE_ANSWER.pack(self._correlation_id, 0)  # no tagged fields
        else:
            writer = Writer()
            writer.out += wire.I32.pack(self._correlation_id)
        api.result.write(writer, version, result)
        return writer.pieces()

    def encode_in_steps(self, result: object) -> Steps[Sequence[Piece]]:
        api = self.api
        assert api is not None
        writer = self._writer(api)
        yield from write_in_steps(api.result, writer, self._version, result)
        return writer.pieces()

    def _writer(self, api: Api) -> Writer:
        """Return a writer that has the header of the answer."""
        if self._version >= api.flexible_from:
            writer: Writer = CompactWriter()
            writer.out += wire.I32.pack(self._correlation_id) + b"\x00"  # no tagged fields
        else:
            writer = Writer()
            writer.out += wire.I32.pack(self._correlation_id)
        return writer
