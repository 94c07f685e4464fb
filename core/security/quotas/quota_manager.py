"""The meters of one kind of quota, Kafka's `ClientQuotaManager`."""

from collections.abc import Callable, Iterator

from .client_quotas import ClientQuotas, MeterKey
from .rate import QuotaWindows, SampledRate, SampledStat, TokenBucket

EXPIRATION_MS = 3_600_000.0
"""A meter goes when it was not used for this time."""
METERS_MAX = 10_000
"""With more meters the one goes that was not used for the longest time."""
_KNOWN_MAX = 20_000

NewMeasure = Callable[[QuotaWindows, float], SampledRate | TokenBucket]


class Meter:
    """The usage of one user, client id or pair, and the delays of its clients."""

    __slots__ = ("key", "measure", "throttled", "used_ms")

    def __init__(self, key: MeterKey, measure: SampledRate | TokenBucket, windows: QuotaWindows) -> None:
        self.key = key
        self.measure = measure
        self.throttled = SampledStat(windows)
        self.used_ms = 0.0


class ClientQuotaManager:
    """Measures the clients that have a limit for one key, and says how long to delay them. Owner thread only.

    key:         the key of the limit, as `producer_byte_rate`.
    throttle_max_ms: the longest delay; 0 = as long as the rate demands.
    """

    def __init__(
        self,
        key: str,
        windows: QuotaWindows,
        *,
        new_measure: NewMeasure = SampledRate,
        throttle_max_ms: float = 0.0,
        meters_max: int = METERS_MAX,
    ) -> None:
        self.key = key
        self.windows = windows
        self._new_measure = new_measure
        self._throttle_max_ms = throttle_max_ms
        self._meters_max = meters_max
        self._quotas = ClientQuotas()
        self._known: dict[tuple[str, str], Meter | None] = {}
        self._meters: dict[MeterKey, Meter] = {}
        self._swept_ms = 0.0
        self.is_enabled = False
        """False while no client has a limit for this key."""

    def update_quotas(self, quotas: ClientQuotas) -> None:
        """Use these limits from now on; meters keep what they have measured."""
        self._quotas = quotas
        self._known.clear()
        self.is_enabled = quotas.has(self.key)
        if not self.is_enabled:
            self._meters.clear()

    def record(self, user: str, client_id: str, value: float, now_ms: float) -> int:
        """Count what a client has used, and return its delay in milliseconds; 0 = it is within its limit."""
        meter = self.find_meter(user, client_id, now_ms)
        if meter is None:
            return 0
        meter.measure.record(value, now_ms)
        return self.throttle(meter, now_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: float) -> None:
        """Take back what was counted and not used."""
        meter = self.find_meter(user, client_id, now_ms)
        if meter is not None:
            meter.measure.record(-value, now_ms)

    def throttle(self, meter: Meter, now_ms: float) -> int:
        """Return the delay that a meter demands now, and count it."""
        throttle_ms = meter.measure.throttle_ms(now_ms)
        if self._throttle_max_ms and throttle_ms > self._throttle_max_ms:
            throttle_ms = round(self._throttle_max_ms)
        meter.throttled.record(throttle_ms, now_ms)
        return throttle_ms

    def limit(self, user: str, client_id: str) -> float | None:
        """Return the limit of a client; None = it has none."""
        found = self._quotas.find(self.key, user, client_id)
        return None if found is None else found.limit

    def find_meter(self, user: str, client_id: str, now_ms: float) -> Meter | None:
        """Return the meter of a client, a new one if it has none; None: it has no limit."""
        client = user, client_id
        if client in self._known:
            meter = self._known[client]
            if meter is None:
                return None
            if self._meters.get(meter.key) is meter:
                if now_ms - meter.used_ms < EXPIRATION_MS:
                    meter.used_ms = now_ms
                    return meter
                del self._meters[meter.key]
        found = self._quotas.find(self.key, user, client_id)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        if found is None:
            self._known[client] = None
            return None
        meter = self._meters.get(found.meter)
        if meter is None or now_ms - meter.used_ms >= EXPIRATION_MS:
            self._make_room(now_ms)
            measure = self._new_measure(self.windows, found.limit)
            meter = self._meters[found.meter] = Meter(found.meter, measure, self.windows)
        meter.measure.bound = found.limit
        meter.used_ms = now_ms
        self._known[client] = meter
        return meter

    def meters(self) -> Iterator[Meter]:
        """Return the meters in use."""
        return iter(list(self._meters.values()))

    def _make_room(self, now_ms: float) -> None:
        if now_ms - self._swept_ms >= EXPIRATION_MS / 10:
            self._swept_ms = now_ms
            for key, meter in list(self._meters.items()):
                if now_ms - meter.used_ms >= EXPIRATION_MS:
                    del self._meters[key]
        if len(self._meters) >= self._meters_max:
            by_use = sorted(self._meters.values(), key=lambda meter: meter.used_ms)
            for meter in by_use[: max(1, self._meters_max // 10)]:
                del self._meters[meter.key]
