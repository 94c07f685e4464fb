"""The client's end: a `BrokerLink` to any broker of the classic protocol."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ...ports.broker_api.classic import ClassicFetch, ClassicProduce, ClassicProduceResult
from ...ports.broker_api.envelope import Caller, Reply, Request, ResultT
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, Malformed
from ...ports.scheduler import Scheduler, Timer
from ...ports.storage import size_of
from ...ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Piece,
    Transport,
    TransportError,
)
from . import answers
from .fields import DECODE_ERRORS, FRAME_BYTES_MAX, I32
from .requests import write_request

TICKS = 8
"""A request timeout is noticed after at most 1 / TICKS more than it says."""
CHECKS_AT_ONCE = 2
"""The link checks this often on the next turn whether a produce has gone out, then after longer and longer waits."""
CHECK_MS_MIN = 1.0
CHECK_MS_MAX = 20.0

Opened = Callable[["ClassicLink | TransportError"], None]


def connect_classic(
    transport: Transport,
    scheduler: Scheduler,
    address: Address,
    *,
    request_timeout_ms: float,
    connect_timeout_ms: float,
    opened: Opened,
    limits: Limits | None = None,
    tls: ClientTls | None = None,
) -> None:
    """Connect; `opened` is called once, later, with the link or the reason why there is none.

    `limits` bound the answers and the time without any traffic. Owner thread only.
    """

    def connected(outcome: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(outcome, TransportError):
            opened(outcome)
            return None
        link = ClassicLink(outcome, scheduler, request_timeout_ms=request_timeout_ms)
        opened(link)
        return link

    transport.connect(address, connected, timeout_ms=connect_timeout_ms, limits=limits or Limits(), tls=tls)


class _Waiting(NamedTuple):
    """A request whose answer is due."""

    request: Request[Any]
    reply: Reply[Any]
    last_tick: int


class _Leaving(NamedTuple):
    """A produce on its way to the network: it has gone out when `gone_at` bytes of the link have."""

    gone_at: int
    reply: Reply[Any]


class ClassicLink:
    """A connection to one broker. Made by `connect_classic`; usable from the moment `opened` gets it.

    Fetches and offsets are answered in the order of the requests. A produce is never answered by the broker; the link
    replies when all of it was handed to the network, so that a sender which waits for the replies is no faster than
    the broker. A request that is not answered within the request timeout, or a broker that takes no byte for as long,
    means that the connection is dead: it is closed, and every request on it fails.
    """

    def __init__(self, connection: Connection, scheduler: Scheduler, *, request_timeout_ms: float) -> None:
        self._connection = connection
        self._scheduler = scheduler
        self._failure: TransportError | None = None
        self._waiting: deque[_Waiting] = deque()
        self._tick_ms = max(1.0, request_timeout_ms / TICKS)
        self._tick = 0
        self._timer: Timer | None = None
        self._leaving: deque[_Leaving] = deque()
        self._given_bytes = 0
        self._gone_bytes = 0
        self._gone_tick = 0
        self._checking = False
        self._idle_checks = 0
        self._check_timer: Timer | None = None

    @property
    def is_open(self) -> bool:
        """False once the connection is gone; requests then fail at once."""
        return self._failure is None

    @property
    def address(self) -> Address:
        """The broker's end of the connection."""
        return self._connection.peer

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:  # noqa: ARG002
        """Send the request; see `BrokerApi.submit`. Knows `ClassicProduce`, `ClassicFetch` and `ClassicOffsets`.

        Replies with `TransportError` when the link is closed or breaks (it is unknown then whether a produce arrived),
        `ApiError(UNSUPPORTED_VERSION)` for other requests, `ApiError(INVALID_REQUEST)` for values that the protocol
        cannot carry.
        """
        if self._failure is not None:
            reply(self._failure)
            return
        try:
            pieces = write_request(request)
            size = _frame_bytes(pieces) if pieces is not None else 0
        except Exception as error:  # noqa: BLE001  # values of any type, which a user gave; who asked gets the error
            reply(ApiError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} cannot be encoded: {error}"))
            return
        if pieces is None:
            name = type(request).__name__
            reply(ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is not part of the classic protocol"))
            return
        self._given_bytes += size
        if isinstance(request, ClassicProduce):
            if not self._leaving:
                self._gone_tick = self._tick
            self._leaving.append(_Leaving(self._given_bytes, reply))
            self._connection.send(pieces)
            self._watch()
        else:
            self._waiting.append(_Waiting(request, reply, self._tick + TICKS + 1))
            self._connection.send(pieces)
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._tick_ms, self._next_tick)

    def close(self) -> None:
        """Hang up, once what was sent has gone out; requests on their way fail with `TransportError`.

        Twice is harmless.
        """
        self._fail("closed by this side")

    def on_frame(self, content: memoryview) -> None:
        if self._failure is not None:
            return
        if not self._waiting:
            self._fail("the broker sent a response without a request")
            return
        request = self._waiting[0].request
        try:
            result: Any
            if isinstance(request, ClassicFetch):
                result = answers.read_fetch(request, content)
            else:
                result = answers.read_offsets(content)
        except (Malformed, *DECODE_ERRORS) as error:
            self._fail(f"malformed response to {type(request).__name__}: {error}")
            return
        self._waiting.popleft().reply(result)

    def on_closed(self, error: TransportError | None) -> None:
        self._fail(str(error) if error is not None else "closed by the broker")

    # --- produces leave

    def _watch(self) -> None:
        """Look now how much has gone out, and believe it on the next turn.

        A connection that broke has nothing unsent either, but says `closed` before that turn.
        """
        if self._checking:
            return
        self._checking = True
        self._idle_checks = 0
        self._check_unsent()

    def _check_unsent(self) -> None:
        self._check_timer = None
        if self._failure is not None:
            return
        gone = self._given_bytes - self._connection.unsent_bytes
        if gone > self._gone_bytes:
            self._gone_bytes = gone
            self._gone_tick = self._tick
            self._idle_checks = 0
        else:
            self._idle_checks += 1
        self._scheduler.call_soon(lambda: self._release(gone))

    def _release(self, gone_bytes: int) -> None:
        """Reply to the produces that have gone out, and look again if there are more."""
        try:
            while self._leaving and self._leaving[0].gone_at <= gone_bytes:
                self._leaving.popleft().reply(ClassicProduceResult())
        finally:  # an error in a reply is the caller's own; the others still get theirs
            self._check_again()

    def _check_again(self) -> None:
        if not self._leaving or self._failure is not None:
            self._checking = False
        elif self._idle_checks <= CHECKS_AT_ONCE:
            self._check_unsent()
        else:
            delay_ms = min(CHECK_MS_MAX, CHECK_MS_MIN * 2.0 ** (self._idle_checks - CHECKS_AT_ONCE - 1))
            self._check_timer = self._scheduler.call_later(delay_ms, self._check_unsent)

    # --- ends

    def _next_tick(self) -> None:
        self._timer = None
        self._tick += 1
        if self._waiting and self._waiting[0].last_tick <= self._tick:
            self._fail(f"{type(self._waiting[0].request).__name__} was not answered within the request timeout")
        elif self._leaving and self._gone_tick + TICKS + 1 <= self._tick:
            self._fail("the broker took nothing within the request timeout")
        elif self._waiting or self._leaving:
            self._timer = self._scheduler.call_later(self._tick_ms, self._next_tick)

    def _fail(self, reason: str) -> None:
        if self._failure is not None:
            return
        host, port = self._connection.peer
        failure = self._failure = TransportError(f"connection to {host}:{port}: {reason}")
        for timer in (self._timer, self._check_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._check_timer = None
        self._connection.close()
        while self._leaving:
            self._leaving.popleft().reply(failure)
        while self._waiting:
            self._waiting.popleft().reply(failure)


def _frame_bytes(pieces: list[Piece]) -> int:
    """Return the bytes that the transport counts for a frame, with the length before it. Raises `OverflowError`."""
    size = sum(map(size_of, pieces))
    if size > FRAME_BYTES_MAX:
        raise OverflowError(f"it has {size} bytes, more than one frame carries")
    return I32.size + size
