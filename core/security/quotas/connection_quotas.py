"""Limits of connections, Kafka's `ConnectionQuotas` (KIP-402, KIP-612): their number and rate, also by address."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ....ports.broker_api.quotas import QuotaEntry
from ....ports.clock import Clock
from ....ports.metrics import Counter as MetricCounter
from ....ports.scheduler import Scheduler, Timer
from ....ports.values import frozen
from .client_quotas import ClientQuotas
from .quota_manager import EXPIRATION_MS
from .rate import QuotaWindows, SampledRate

UNLIMITED = 2**31 - 1
_HOSTS_MAX = 10_000

Resume = Callable[[], None]


@frozen(kw_only=True)
class ConnectionLimits:
    """`max.connections` and `max.connection.creation.rate` of a broker or of one listener."""

    connections: int = UNLIMITED
    creation_rate: int = UNLIMITED


@frozen(kw_only=True)
class AddressLimits:
    """`max.connections.per.ip` and its overrides by address."""

    per_ip: int = UNLIMITED
    overrides: Mapping[str, int] = {}

    def of(self, host: str) -> int:
        """Return the limit for an address."""
        return self.overrides.get(host, self.per_ip)


class _Gauge:
    """The connections of a broker, or of one of its listeners."""

    __slots__ = ("_not_before_ms", "_rate", "_windows", "has_rate", "limits", "most", "open")

    def __init__(self, limits: ConnectionLimits, windows: QuotaWindows) -> None:
        self.limits, self.most = limits, limits.connections
        self.open = 0
        self._windows = windows
        self._rate = SampledRate(windows, limits.creation_rate)
        self.has_rate = limits.creation_rate < UNLIMITED
        self._not_before_ms = 0.0
        """When the next connection may be accepted; a delay is at most one window, as in Kafka."""

    def change(self, limits: ConnectionLimits) -> None:
        """Use other limits from now on."""
        if limits.creation_rate != self.limits.creation_rate:
            self._rate = SampledRate(self._windows, limits.creation_rate)
            self._not_before_ms = 0.0
        self.limits, self.most, self.has_rate = limits, limits.connections, limits.creation_rate < UNLIMITED

    def record(self, now_ms: float) -> None:
        """Record a new connection, where the rate is limited."""
        self._rate.record(1, now_ms)
        self._not_before_ms = now_ms + min(self._rate.throttle_ms(now_ms), self._windows.window_ms)

    def throttle_ms(self, now_ms: float) -> float:
        return max(0.0, self._not_before_ms - now_ms)


class ConnectionQuotas:
    """Counts the connections of all listeners of a broker. Owner thread only."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        *,
        broker: ConnectionLimits,
        addresses: AddressLimits,
        windows: QuotaWindows,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._windows = windows
        self._addresses = addresses
        self.broker = _Gauge(broker, windows)
        self._by_host: Counter[str] = Counter()
        self._host_rates: dict[str, tuple[SampledRate, float]] = {}
        self._quotas = ClientQuotas()
        self._waiting: list[Resume] = []
        self._timer: Timer | None = None

    def update(self, entries: Iterable[QuotaEntry]) -> None:
        """Use these quotas of addresses (`connection_creation_rate`) from now on."""
        self._quotas = ClientQuotas(entries)
        if not self._quotas.has_ips:
            self._host_rates.clear()

    def change(self, *, broker: ConnectionLimits, addresses: AddressLimits) -> None:
        """Use other limits of the broker and of addresses from now on; open connections stay, waiting ones are looked
        at again."""
        self._addresses = addresses
        self.broker.change(broker)
        self._resume()

    def of_listener(self, limits: ConnectionLimits, *, is_protected: bool) -> "ListenerConnectionQuotas":
        """Return the limits of one listener.

        `is_protected`: the limits of the broker do not hold for it, since other brokers use it.
        """
        return ListenerConnectionQuotas(self, _Gauge(limits, self._windows), is_protected=is_protected)

    def must_wait(self, gauges: Sequence[_Gauge], resume: Resume) -> bool:
        for gauge in gauges:
            if gauge.has_rate or gauge.open >= gauge.most:
                break
        else:
            return False  # as for nearly every connection
        now_ms = self._clock.monotonic_ms()
        is_full, throttle_ms = False, 0.0
        for gauge in gauges:
            is_full = is_full or gauge.open >= gauge.most
            throttle_ms = max(throttle_ms, gauge.throttle_ms(now_ms))
        if not is_full and not throttle_ms:
            return False
        self._waiting.append(resume)
        if not is_full and self._timer is None:
            self._timer = self._scheduler.call_later(throttle_ms, self._resume)
        return True

    def admit(self, gauges: Iterable[_Gauge], host: str) -> float | None:
        if self._by_host.get(host, 0) >= self._addresses.of(host):
            return 0.0
        if self._quotas.has_ips:
            throttle_ms = self._throttle_host(host, self._clock.monotonic_ms())
            if throttle_ms:
                return throttle_ms
        for gauge in gauges:
            gauge.open += 1
            if gauge.has_rate:  # rarely: only then the time counts
                gauge.record(self._clock.monotonic_ms())
        self._by_host[host] += 1
        return None

    def release(self, gauges: Iterable[_Gauge], host: str) -> None:
        for gauge in gauges:
            gauge.open -= 1
        left = self._by_host[host] - 1
        if left > 0:
            self._by_host[host] = left
        else:
            del self._by_host[host]
        if self._waiting:
            self._resume()

    def _throttle_host(self, host: str, now_ms: float) -> float:
        """Return the delay for a new connection of an address, at most one window; 0 = none. Then it is not counted."""
        limit = self._quotas.connection_rate(host)
        if limit is None:
            return 0.0
        found = self._host_rates.get(host)
        if found is None:
            self._make_room(now_ms)
        rate = SampledRate(self._windows, limit) if found is None else found[0]
        self._host_rates[host] = rate, now_ms
        rate.bound = limit
        rate.record(1, now_ms)
        throttle_ms = min(float(rate.throttle_ms(now_ms)), self._windows.window_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _make_room(self, now_ms: float) -> None:
        if len(self._host_rates) < _HOSTS_MAX:
            return
        used = {host: entry for host, entry in self._host_rates.items() if now_ms - entry[1] < EXPIRATION_MS}
        newest = sorted(used.items(), key=lambda item: item[1][1])
        self._host_rates = dict(newest[-(_HOSTS_MAX * 9 // 10) :])

    def _resume(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()


class ListenerConnectionQuotas:
    """Fulfils `ConnectionAdmission` for one listener."""

    failed_handshakes: MetricCounter | None = None
    """Counts TLS handshakes that fail; None: they are not counted."""

    def on_handshake_failed(self) -> None:
        if self.failed_handshakes is not None:
            self.failed_handshakes.add()

    def __init__(self, quotas: ConnectionQuotas, own: _Gauge, *, is_protected: bool) -> None:
        self._quotas = quotas
        self._own = own
        self._counted = (quotas.broker, own)
        self._limiting = (own,) if is_protected else (quotas.broker, own)

    def change(self, limits: ConnectionLimits) -> None:
        """Use other limits of this listener from now on; open connections stay."""
        self._own.change(limits)

    def must_wait(self, resume: Resume) -> bool:
        """Return True while the listener is full, or too many connections came lately."""
        return self._quotas.must_wait(self._limiting, resume)

    def admit(self, host: str) -> float | None:
        """Count a connection, unless its address has too many of them, or opens them too fast."""
        return self._quotas.admit(self._counted, host)

    def release(self, host: str) -> None:
        """Forget a connection that has closed."""
        self._quotas.release(self._counted, host)
