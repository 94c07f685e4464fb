"""The quotas of requests (Kafka's `QuotaManagers`): bytes, time of the thread, changes of topics."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ....ports.broker_api.envelope import Caller, Origin, Request
from ....ports.broker_api.fetch import Fetch
from ....ports.broker_api.produce import Produce
from ....ports.broker_api.quotas import QuotaEntry
from ....ports.broker_api.share_groups import ShareFetch
from ....ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    WriteShareGroupState,
)
from ....ports.broker_api.transactions import WriteTxnMarkers
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.metrics import Metrics
from .client_quotas import ClientQuotas
from .entities import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from .quota_manager import ClientQuotaManager, Meter
from .rate import QuotaWindows, SampledRate, TokenBucket

_PERCENT_PER_MS = 0.1
"""A thread that is busy for all of a second has used 100 percent."""
_DEFAULT_WINDOWS = QuotaWindows()

BETWEEN_BROKERS = frozenset(
    {
        WriteTxnMarkers,
        InitializeShareGroupState,
        ReadShareGroupState,
        WriteShareGroupState,
        DeleteShareGroupState,
        ReadShareGroupStateSummary,
    }
)
"""Requests of brokers, whose answers have no place for a delay: they are not metered."""


class RequestUsage:
    """The bytes and the time that one request uses, until it is answered."""

    __slots__ = (
        "_began_ms",
        "_clock",
        "caller",
        "is_fetch",
        "is_produce",
        "is_share_fetch",
        "size_bytes",
        "thread_ms",
    )

    def __init__(self, request: Request[Any], caller: Caller, size_bytes: int, clock: Clock) -> None:
        self.caller = caller
        self.size_bytes = size_bytes
        self.is_produce = type(request) is Produce
        self.is_fetch = type(request) is Fetch
        self.is_share_fetch = type(request) is ShareFetch
        self.thread_ms = 0.0
        self._clock = clock
        self._began_ms: float | None = clock.monotonic_ms()

    def stop(self) -> None:
        """The thread turns to other work. Twice is harmless."""
        if self._began_ms is not None:
            self.thread_ms += self._clock.monotonic_ms() - self._began_ms
            self._began_ms = None


class ControllerMutationQuota:
    """The tokens of one CreateTopics, CreatePartitions or DeleteTopics request (KIP-599).

    A strict quota refuses a topic while tokens are missing. Older versions of a request cannot read that error: all of
    their topics pass, and the answer has the delay.
    """

    def __init__(self, manager: ClientQuotaManager, meter: Meter, clock: Clock, *, is_strict: bool) -> None:
        self._manager = manager
        self._meter = meter
        self._clock = clock
        self._is_strict = is_strict
        self._is_exceeded = False

    def record(self, partitions: int) -> None:
        """Take a token for each partition. Raises `ApiError(THROTTLING_QUOTA_EXCEEDED)`, and takes nothing then."""
        now_ms = self._clock.monotonic_ms()
        bucket = self._meter.measure
        if self._is_strict and bucket.throttle_ms(now_ms):
            self._is_exceeded = True
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.record(partitions, now_ms)
        if not self._is_strict and bucket.throttle_ms(now_ms):
            self._is_exceeded = True

    def throttle_ms(self) -> int:
        """Return the delay for the answer: until no tokens are missing, if some were missing for this request."""
        return self._manager.throttle(self._meter, self._clock.monotonic_ms()) if self._is_exceeded else 0


class RequestQuotas:
    """Measures the requests of all clients of a broker, and delays those beyond their limits. Owner thread only.

    The gate and the handlers ask for limits; the server of the wire protocol, which knows the sizes, reports each
    request, writes the delay into its answer, and reads nothing from the connection until it has passed. Requests of
    brokers are exempt.
    """

    def __init__(
        self,
        clock: Clock,
        windows: QuotaWindows = _DEFAULT_WINDOWS,
        controller_windows: QuotaWindows = _DEFAULT_WINDOWS,
    ) -> None:
        self._clock = clock
        self.produce = ClientQuotaManager(PRODUCER_BYTE_RATE, windows)
        self.fetch = ClientQuotaManager(CONSUMER_BYTE_RATE, windows)
        self.request = ClientQuotaManager(REQUEST_PERCENTAGE, windows, throttle_max_ms=windows.window_ms)
        self.controller_mutation = ClientQuotaManager(
            CONTROLLER_MUTATION_RATE, controller_windows, new_measure=TokenBucket
        )
        self._managers = (self.produce, self.fetch, self.request, self.controller_mutation)
        self.is_enabled = False
        """False while no user and no client id has a limit: then nothing has to be measured."""

    def update(self, entries: Iterable[QuotaEntry]) -> None:
        """Use these limits from now on."""
        quotas = ClientQuotas(entries)
        for manager in self._managers:
            manager.update_quotas(quotas)
        self.is_enabled = any(manager.is_enabled for manager in self._managers)

    def now_ms(self) -> float:
        """Return the time of the meters."""
        return self._clock.monotonic_ms()

    def start_request(self, request: Request[Any], caller: Caller, size_bytes: int) -> RequestUsage | None:
        """Return the usage of a request that begins now; None: it is exempt."""
        if caller.origin is Origin.BROKER or type(request) in BETWEEN_BROKERS:
            return None
        if type(request) is Fetch and request.replica_id >= 0:
            return None
        return RequestUsage(request, caller, size_bytes, self._clock)

    def has_limit(self, caller: Caller) -> bool:
        """Return True if the caller has a limit of any kind."""
        now_ms, user, client_id = self._clock.monotonic_ms(), caller.principal.name, caller.client_id or ""
        return any(
            manager.is_enabled and manager.find_meter(user, client_id, now_ms) is not None for manager in self._managers
        )

    def complete_request(self, usage: RequestUsage, response_bytes: int = 0) -> int:
        """Count a request that has its answer, and return its delay in milliseconds: the larger one of its quotas.

        The bytes of a fetch that is delayed do not count: its answer has to be an empty one. That of a share fetch has
        its records, which the member has acquired, and the connection is muted afterwards.
        """
        usage.stop()
        now_ms = self._clock.monotonic_ms()
        user, client_id = usage.caller.principal.name, usage.caller.client_id or ""
        throttle_ms = 0
        if self.request.is_enabled:
            throttle_ms = self.request.record(user, client_id, usage.thread_ms * _PERCENT_PER_MS, now_ms)
        if usage.is_produce and self.produce.is_enabled:
            throttle_ms = max(throttle_ms, self.produce.record(user, client_id, usage.size_bytes, now_ms))
        elif usage.is_fetch and self.fetch.is_enabled:
            throttle_ms = max(throttle_ms, self.fetch.record(user, client_id, response_bytes, now_ms))
            if throttle_ms:
                self.fetch.unrecord(user, client_id, response_bytes, now_ms)
        elif usage.is_share_fetch and self.fetch.is_enabled:
            throttle_ms = max(throttle_ms, self.fetch.record(user, client_id, response_bytes, now_ms))
        return throttle_ms

    def fetch_max_bytes(self, caller: Caller, max_bytes: int) -> int:
        """Return the bytes that one fetch may return: no more than the limit allows for all windows together."""
        limit = self.fetch.limit(caller.principal.name, caller.client_id or "")
        if limit is None:
            return max_bytes
        return min(max_bytes, max(1, int(limit * self.fetch.windows.full_ms / 1000.0)))

    def controller_mutations(self, caller: Caller, *, is_strict: bool) -> ControllerMutationQuota | None:
        """Return the tokens for a change of topics; None: the caller has no limit."""
        manager = self.controller_mutation
        if not manager.is_enabled or caller.origin is Origin.BROKER:
            return None
        meter = manager.find_meter(caller.principal.name, caller.client_id or "", self._clock.monotonic_ms())
        if meter is None:
            return None
        return ControllerMutationQuota(manager, meter, self._clock, is_strict=is_strict)

    def register_metrics(self, metrics: Metrics) -> None:
        """Show rates and delays by Kafka's names: type=Produce, Fetch, Request, ControllerMutation of kafka.server."""
        kinds = (("produce", "byte_rate", self.produce), ("fetch", "byte_rate", self.fetch))
        others = (("request", "request_time", self.request), ("controllermutation", "tokens", self.controller_mutation))
        for kind, measure, manager in (*kinds, *others):
            names = ("user", "client_id")
            what = f"kafka_server_{kind}"
            text = "Milliseconds of delay, a mean of the windows of its quota."
            metrics.gauges(f"{what}_throttle_time", text, names, partial(_shown, manager, self._throttle_time))
            metrics.gauges(f"{what}_{measure}", _TEXTS[measure], names, partial(_shown, manager, self._measured))

    def _throttle_time(self, meter: Meter) -> float:
        return meter.throttled.average(self._clock.monotonic_ms())

    def _measured(self, meter: Meter) -> float:
        now_ms, measure = self._clock.monotonic_ms(), meter.measure
        return measure.per_second(now_ms) if isinstance(measure, SampledRate) else measure.tokens(now_ms)


_TEXTS = {
    "byte_rate": "Bytes per second of a client with a quota.",
    "request_time": "Percent of the broker's thread that a client with a quota uses.",
    "tokens": "Partitions that a client with a quota may create or delete now.",
}


def _shown(manager: ClientQuotaManager, read: Callable[[Meter], float]) -> Iterable[tuple[Sequence[str], float]]:
    return [((meter.key.user or "", meter.key.client_id or ""), read(meter)) for meter in manager.meters()]
