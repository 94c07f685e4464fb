"""One connection per broker, kept for a producer (facts A6). The classic wire has no answers to what it sends."""

from collections import deque
from collections.abc import Callable

from ....ports.broker_api.classic import ClassicOffsets, ClassicOffsetsResult, ClassicProduce, ClassicProduceResult
from ....ports.broker_api.envelope import BrokerLink, Caller
from ....ports.broker_api.offsets import LATEST
from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError, ClosedError
from ....ports.scheduler import Scheduler
from ....ports.transport import Address, TransportError
from ....ports.values import frozen
from ...client.network.connection import BrokerConnection, Connect

Done = Callable[[ClassicProduceResult | BarnabasError], None]

CONNECT_BACKOFF_MS = 1.0
"""The wait after the first failed attempt to connect; ten times as much after each further one, up to a minute."""
CONNECT_BACKOFF_MAX_MS = 60_000.0


@frozen(kw_only=True)
class PoolSettings:
    """Times in ms; the names are those of facts A6."""

    buffer_bytes: int = 102_400
    """`buffer.size`: while more than this waits in one connection to go out, further requests wait before it."""
    connect_timeout_ms: float = 5000
    reconnect_interval: int = 30_000
    """The number of requests after which the connection is replaced."""
    reconnect_time_interval_ms: float = 10_000_000
    """The time after which the connection is replaced; negative: never."""


class BrokerPool:
    """Sends requests to brokers, in order per broker. Owner thread only.

    `done` of a request is called when the link replies: over the wire when all of it was handed to the network, which
    is all that can be known; a link to a broker in the same process hands on what became of it.
    """

    def __init__(
        self, scheduler: Scheduler, clock: Clock, entropy: Entropy, connect: Connect, settings: PoolSettings
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.entropy = entropy
        self.connect = connect
        self.settings = settings
        self.closed = False
        self._channels: dict[int, _Channel] = {}
        self._retired: list[_Channel] = []
        """The channels to former addresses of brokers that still have requests left."""

    def submit(self, broker_id: int, address: Address, request: ClassicProduce, size: int, done: Done) -> None:
        """Send a request of about `size` bytes, behind those submitted before for the broker."""
        if self.closed:
            done(ClosedError("the producer is closed"))
            return
        channel, lost_error = self._channels.get(broker_id), None
        if channel is not None and channel.address != address:
            lost_error = channel.retire()  # the broker came back elsewhere
            self._retired = [each for each in (*self._retired, channel) if each.has_left]
            channel = None
        if channel is None:
            channel = self._channels[broker_id] = _Channel(self, address, lost_error)
        channel.add(_Sending(request, size, done))

    def prove(self, done: Callable[[BarnabasError | None], None]) -> None:
        """Find out that the brokers have dealt with everything handed to them since the last proof.

        A broker answers the requests of a connection in their order, and closes it where an append failed: an answer to
        a question asked after them proves those before. With an error some may not have arrived. Messages that are
        larger than a broker allows are the exception: it drops them in silence (facts A1).
        """
        channels = list(self._channels.values())
        waiting = len(channels)
        failure: BarnabasError | None = None

        def answered(error: BarnabasError | None) -> None:
            nonlocal waiting, failure
            waiting -= 1
            failure = failure or error
            if not waiting:
                done(failure)

        for channel in channels:
            channel.prove(answered)
        if not channels:
            done(None)

    def close(self) -> None:
        """Hang up; what has not gone out fails with `ClosedError`."""
        self.closed = True
        for channel in (*self._channels.values(), *self._retired):
            channel.close(ClosedError("the producer was closed before the request had gone out"))
        self._channels.clear()
        self._retired.clear()


class _Sending:
    """One request. Not an attrs class: there is one for each `send` of a synchronous producer."""

    __slots__ = ("again", "done", "request", "size")

    def __init__(self, request: ClassicProduce, size: int, done: Done) -> None:
        self.request = request
        self.size = size
        self.done = done
        self.again = False
        """It met a connection that was dead already, and was put back."""


class _Channel:
    """The connection to one broker, or the way there."""

    def __init__(self, pool: BrokerPool, address: Address, lost_error: BarnabasError | None) -> None:
        self.address = address
        self._pool = pool
        self._connection = BrokerConnection(
            address, pool.scheduler, pool.connect, opened=self._opened, failed=self._not_opened
        )
        self._waiting: deque[_Sending] = deque()
        self._out: deque[_Sending] = deque()
        """Given to the link, and not known to have gone out."""
        self._out_bytes = 0
        self._connect_began_ms = 0.0
        self._backoff_ms = CONNECT_BACKOFF_MS
        self._requests = 0
        # A random beginning, so that a fleet of producers does not reconnect at one time.
        self._since_ms = self._now() - pool.entropy.fraction() * max(0.0, pool.settings.reconnect_time_interval_ms)
        self._retired = False
        self._unproven: ClassicProduce | None = None
        """The last request that went out on this connection since a proof."""
        self._asking = False
        """True while the broker confirms what came over the connection, before that is replaced."""
        self._lost_error = lost_error
        """The reason why something sent since a proof may not have arrived."""

    def prove(self, done: Callable[[BarnabasError | None], None]) -> None:
        link, last, lost_error = self._connection.link, self._unproven, self._lost_error
        self._lost_error = None
        if lost_error is not None or last is None or link is None:
            self._unproven = None
            done(lost_error)
            return

        def on_answer(error: BarnabasError | None) -> None:
            if error is not None:
                self._lost_error = None  # it is reported now
            done(error)

        self._ask(link, last, on_answer)

    def _ask(self, link: BrokerLink, last: ClassicProduce, on_answer: Callable[[BarnabasError | None], None]) -> None:
        """Ask the broker something that it answers after `last`, the last request on the link."""

        def reply(result: ClassicOffsetsResult | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                self._lost(link, result)
                on_answer(result)
                return
            if self._unproven is last:
                self._unproven = None
            on_answer(None)

        entry = last.partitions[-1]
        question = ClassicOffsets(topic=entry.topic, partition=max(0, entry.partition), time_ms=LATEST, max_offsets=1)
        link.submit(question, _CALLER, reply)

    @property
    def has_left(self) -> bool:
        """Something is under way, or waits."""
        return bool(self._waiting or self._out)

    def add(self, sending: _Sending) -> None:
        self._waiting.append(sending)
        self._pump()

    def retire(self) -> BarnabasError | None:
        """Stop using this address of the broker; return the error if the outcome of some messages is unknown."""
        self._retired = True
        if not self.has_left:
            self._close_connection()
        elif self._lost_error is None:
            self._lost_error = TransportError(f"{self._name()} is given up")
        return self._lost_error

    def close(self, error: BarnabasError) -> None:
        """Hang up for good; everything that is left fails."""
        self._fail(error)
        self._connection.close()

    def _fail(self, error: BarnabasError) -> None:
        """Hang up; everything that is left fails."""
        left = [*self._out, *self._waiting]
        self._out.clear()
        self._waiting.clear()
        self._out_bytes = 0
        self._close_connection()
        for sending in left:
            sending.done(error)

    # --- connecting

    def _connect(self) -> None:
        if not self._connection.is_opening:
            self._connect_began_ms = self._now()
            self._backoff_ms = CONNECT_BACKOFF_MS
            self._connection.open()

    def _not_opened(self, error: TransportError) -> float | None:
        backoff_ms = self._backoff_ms
        if self._now() - self._connect_began_ms + backoff_ms > self._pool.settings.connect_timeout_ms:
            self._fail(error)
            return None
        self._backoff_ms = min(CONNECT_BACKOFF_MAX_MS, 10 * backoff_ms)
        return backoff_ms

    def _opened(self, _: BrokerLink) -> None:
        self._requests = 0
        self._pump()

    def _close_connection(self) -> None:
        if self._connection.disconnect() and self._unproven is not None:
            self._unproven = None
            self._lost_error = TransportError(f"{self._name()} was closed; what was sent last may not have arrived")

    # --- sending

    def _pump(self) -> None:
        while self._waiting and self._out_bytes < self._pool.settings.buffer_bytes:
            link = self._connection.link
            if link is None:
                self._connect()
                return
            if self._due_to_reconnect():
                if self._out or not self._proven_on(link):
                    return
                self._since_ms = self._now()
                self._close_connection()
                continue
            self._hand_over(link, self._waiting.popleft())
        if self._retired and not self.has_left:
            self._close_connection()

    def _proven_on(self, link: BrokerLink) -> bool:
        """Return True if the broker has confirmed the requests of the last connection, or else ask it to.

        Otherwise it could take what comes over the next one first, and the pool would not know what it took of this.
        """
        if self._unproven is None:
            return True
        if not self._asking:
            self._asking = True
            self._ask(link, self._unproven, self._asked)
        return False

    def _asked(self, _: BarnabasError | None) -> None:
        self._asking = False
        self._pump()

    def _due_to_reconnect(self) -> bool:
        settings = self._pool.settings
        if self._requests >= settings.reconnect_interval:
            return True
        limit_ms = settings.reconnect_time_interval_ms
        return self._requests > 0 and 0 <= limit_ms <= self._now() - self._since_ms

    def _hand_over(self, link: BrokerLink, sending: _Sending) -> None:
        self._out.append(sending)
        self._out_bytes += sending.size
        self._requests += 1
        submitting = True

        def reply(result: ClassicProduceResult | BarnabasError) -> None:
            if submitting and isinstance(result, TransportError) and not sending.again:
                # The connection was lost before: nothing of this request has gone out.
                sending.again = True
                self._remove_sent(sending)
                self._waiting.appendleft(sending)
                self._lost(link, result)
            elif self._remove_sent(sending):
                if isinstance(result, TransportError | ClosedError):
                    self._lost(link, result)
                elif self._connection.link is link:
                    self._unproven = sending.request
                sending.done(result)
                if not submitting:
                    self._pump()

        link.submit(sending.request, _CALLER, reply)
        submitting = False

    def _lost(self, link: BrokerLink, error: BarnabasError) -> None:
        """Fail what is under way, which may have arrived or not: its sender decides on a retry."""
        if self._connection.link is not link:
            return
        self._close_connection()
        lost = list(self._out)
        self._out.clear()
        self._out_bytes = 0
        for sending in lost:
            sending.done(error)

    def _remove_sent(self, sending: _Sending) -> bool:
        if sending not in self._out:
            return False
        self._out.remove(sending)
        self._out_bytes -= sending.size
        return True

    def _name(self) -> str:
        return f"the connection to {self.address[0]}:{self.address[1]}"

    def _now(self) -> float:
        return self._pool.clock.monotonic_ms()


_CALLER = Caller()
