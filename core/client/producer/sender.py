"""Sends the batches of an accumulator to the leaders, and again while that may help (facts C4, C6).

Each attempt names the topic by the id in the present metadata (KIP-516), so that a leader that has not heard of a
deletion does not append records for the topic that has the name now to the log of the deleted one. A batch whose topic
was deleted and created again goes to the new one with the sequence numbers that it has, as in Kafka's Sender: a log
that does not know a producer accepts any first number (KIP-360). If the numbers restarted at 0, they could look like
repetitions, when metadata of a broker that lags arrives between two attempts.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from ....ports.broker_api.transactions import TransactionSupportedOperation
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...message.codec import Codec
from ...message.numbered_header import NumberedHeader
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import EncodeError
from .identity import DUPLICATE, SEQUENCE_LOST
from .producer_batch import ProducerBatch
from .record_accumulator import RecordAccumulator
from .sequence_numbers import SequenceAssigner

_DEFAULT = TransactionSupportedOperation.DEFAULT_ERROR
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@frozen(kw_only=True)
class SenderSettings:
    """Times in ms."""

    acks: int = -1
    retries: int = 2_147_483_647
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    delivery_timeout_ms: float = 120_000
    request_timeout_ms: int = 30_000
    max_in_flight: int = 5
    """Produce requests per broker; per partition it is always one."""
    max_request_size: int = 1_048_576
    """The size of the batches in one request; a larger batch gets a request of its own."""
    transactional_id: str | None = None


class Ready(NamedTuple):
    """The result of `begin`: batches with the brokers to send them to, and the time of the next poll."""

    batches: Sequence[tuple[int, ProducerBatch]]
    wake_ms: float


class Encoded(NamedTuple):
    """The result of `encode`: encoded batches, and those that could not be encoded."""

    batches: Sequence[tuple[int, ProducerBatch, bytearray]]
    refused: Sequence[tuple[ProducerBatch, BarnabasError]]
    wake_ms: float


class Sender:
    """Drives batches to their outcome.

    Polling has three steps, for users that share the accumulator and the view with other threads: `begin`, `end` and
    answers touch them; `encode`, which takes long when it compresses, touches only batches that are in flight.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        view: ClusterView,
        entropy: Entropy,
        settings: SenderSettings,
        *,
        codec_for: Callable[[str], Codec | None],
        settled: Callable[[Sequence[ProducerBatch]], None],
        identity: SequenceAssigner | None = None,
        stamp: Callable[[str, int, int], NumberedHeader | None] | None = None,
    ) -> None:
        """`codec_for` returns a topic's codec. `settled` takes batches with a known outcome, in all steps but `encode`.

        `identity` numbers the batches of an idempotent producer, or of a transactional one. `stamp` gives a batch a
        header for its messages before its first attempt (see `CallbackHandler.before_batch`).
        """
        self._accumulator = accumulator
        self._view = view
        self._entropy = entropy
        self._settings = settings
        self._codec_for = codec_for
        self._settled = settled
        self._identity = identity
        self._stamp = stamp
        self._in_flight: dict[int, int] = {}

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return sum(self._in_flight.values())

    def poll(self, now_ms: float) -> Poll:
        return self.end(self.encode(self.drain_batches(now_ms)), now_ms)

    def drain_batches(self, now_ms: float) -> Ready:
        """Take the batches to send now."""
        late, wake_late = self._accumulator.expire(now_ms)
        self._give_up(late)
        for tp in self._accumulator.waiting():
            if self._view.leader(*tp) is None:
                self._view.request_refresh()
                break
        identity = self._identity
        if identity is not None and self._settings.transactional_id is not None:
            for tp in self._accumulator.waiting():
                identity.admits(tp)  # those that linger too: the coordinator is asked meanwhile
        nodes: dict[TopicPartition, int] = {}

        def sendable(tp: TopicPartition) -> bool:
            node = self._view.leader(*tp)
            if identity is not None and not identity.admits(tp):
                return False
            if node is None or self._in_flight.get(node, 0) >= self._settings.max_in_flight:
                return False
            nodes[tp] = node
            return True

        ready, wake = list[ProducerBatch](), NEVER
        if identity is None or identity.prepare():
            ready, wake = self._accumulator.drain_ready(now_ms, sendable, self._has_moved)
            for batch in ready:
                batch.tried = self._view.leadership(*batch.tp)
        if late:
            self._finish(late, self._expired())
        return Ready([(nodes[batch.tp], batch) for batch in ready], min(wake, wake_late))

    def encode(self, ready: Ready) -> Encoded:
        """Number the batches and encode them."""
        encoded: list[tuple[int, ProducerBatch, bytearray]] = []
        refused: list[tuple[ProducerBatch, BarnabasError]] = []
        transactional = self._settings.transactional_id is not None
        for node, batch in ready.batches:
            try:
                if self._identity is not None:
                    self._identity.number(batch)
                if self._stamp is not None and batch.numbered is None and not batch.attempts:
                    batch.numbered = self._stamp(batch.tp.topic, batch.count, batch.wall_ms)
                encoded.append((node, batch, batch.encode(self._codec_for(batch.tp.topic), transactional)))
            except Exception as error:  # noqa: BLE001  # a codec may be a plug-in; the handles get the error
                refused.append((batch, _encode_error(batch, error)))
        return Encoded(encoded, refused, ready.wake_ms)

    def end(self, encoded: Encoded, now_ms: float) -> Poll:
        """Fail the refused batches, and return the requests to send."""
        for batch, error in encoded.refused:
            self._refused(batch, error)
        sends, wake = self._requests(encoded.batches), encoded.wake_ms
        if self._identity is not None:
            refusal = self._identity.take_refusal()
            if refusal is not None:
                self.fail_waiting(refusal.error, tried=refusal.tried)
            asking = self._identity.poll(now_ms)
            sends, wake = sends + asking.sends, min(wake, asking.wake_ms)
        return Poll(sends, wake)

    def _has_moved(self, batch: ProducerBatch) -> bool:
        """Return True if the metadata has a leader of a later epoch, so that a retry need not wait (KIP-951)."""
        node, epoch = self._view.leadership(*batch.tp)
        return node >= 0 and epoch > batch.tried[1]

    def fail_waiting(self, error: BarnabasError, *, tried: bool = True) -> None:
        """Give up what is not in flight; without `tried` only what was never sent."""
        batches = self._accumulator.drain_all(tried=tried)
        self._give_up(batches)
        self._finish(batches, error)

    def _give_up(self, batches: Sequence[ProducerBatch]) -> None:
        if self._identity is not None:
            for batch in batches:
                self._identity.give_up(batch)

    def _expired(self) -> BarnabasError:
        text = f"not delivered within delivery.timeout.ms ({self._settings.delivery_timeout_ms:g} ms){self._view.why}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _requests(self, encoded: Sequence[tuple[int, ProducerBatch, bytearray]]) -> list[Send]:
        groups: dict[int, list[tuple[ProducerBatch, bytearray]]] = {}
        sends: list[Send] = []
        sizes: dict[int, int] = {}
        for node, batch, records in encoded:
            size = sizes.get(node, 0)
            if size and size + len(records) > self._settings.max_request_size:
                sends.append(self._request(node, groups.pop(node)))
                size = 0
            sizes[node] = size + len(records)
            groups.setdefault(node, []).append((batch, records))
        sends += [self._request(node, group) for node, group in groups.items()]
        return sends

    def _request(self, node: int, group: Sequence[tuple[ProducerBatch, bytearray]]) -> Send:
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        batches = [batch for batch, _ in group]
        request = Produce(
            partitions=[
                ProducePartition(*batch.tp, memoryview(records), self._view.topic_id(batch.tp.topic))
                for batch, records in group
            ],
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            transactional_id=self._settings.transactional_id,
            supported_operation=_DEFAULT if self._identity is None else self._identity.supported_operation,
        )

        def answered(result: Any, now_ms: float) -> None:
            self._in_flight[node] -= 1
            self._answered(batches, result, now_ms)

        return Send(node, request, answered)

    def _answered(self, batches: Sequence[ProducerBatch], result: Any, now_ms: float) -> None:
        if isinstance(result, ProduceResult):
            for batch, outcome in zip(batches, result.partitions, strict=True):
                self._view.update_leader(batch.tp, outcome.current_leader, result.nodes)
                self._outcome(batch, outcome, now_ms)
            return
        again = not isinstance(result, ApiError) or result.retriable
        for batch in batches:
            self._failed(batch, result, now_ms, again=again, refresh=True)

    def _outcome(self, batch: ProducerBatch, outcome: ProduceResultPartition, now_ms: float) -> None:
        code, numbered = outcome.error, batch.base_sequence >= 0
        if code is ErrorCode.NONE or (code is DUPLICATE and numbered):
            batch.base_offset = outcome.base_offset
            batch.log_append_time_ms = outcome.log_append_time_ms
            self._complete_batch(batch, None)
        elif code in _TOO_LARGE and batch.count > 1:
            if self._identity is not None:
                self._identity.release_numbers(batch)
            self._accumulator.split(batch)
        else:
            text = outcome.error_message or str(batch.tp)
            text += "".join(f"; record {r.index}: {r.message or 'refused'}" for r in outcome.record_errors)
            again = code.retriable
            if self._identity is not None and numbered and code in SEQUENCE_LOST:
                again = self._identity.lost_count(batch)
            self._failed(batch, ApiError(code, text), now_ms, again=again, refresh=code.refresh_metadata)

    def _failed(self, batch: ProducerBatch, error: BarnabasError, now_ms: float, *, again: bool, refresh: bool) -> None:
        settings = self._settings
        if refresh:
            self._view.request_refresh()
        late = now_ms >= batch.created_ms + settings.delivery_timeout_ms
        if not again:
            self._refused(batch, error)
            return
        if late or batch.attempts >= settings.retries:
            self._give_up([batch])
            self._complete_batch(batch, error)
            return
        batch.attempts += 1
        batch.failure = error
        batch.not_before_ms = now_ms + backoff_ms(
            batch.attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )
        self._accumulator.give_back(batch)

    def _refused(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """The batch fails for good. If it was never tried before, it is certain that it has not been appended."""
        if self._identity is not None:
            if not batch.attempts and _is_certain(error):
                self._identity.release_numbers(batch)
            else:
                self._identity.give_up(batch)
        self._complete_batch(batch, error)

    def _complete_batch(self, batch: ProducerBatch, error: BarnabasError | None) -> None:
        self._accumulator.complete_batch(batch)
        self._finish([batch], error)

    def _finish(self, batches: Sequence[ProducerBatch], error: BarnabasError | None) -> None:
        for batch in batches:
            batch.finish(error)
        if error is not None and batches and self._identity is not None:
            self._identity.failed(error)
        self._settled(batches)


def _is_certain(error: BarnabasError) -> bool:
    """Return True if this error of a request proves that it changed nothing."""
    return isinstance(error, EncodeError) or (
        isinstance(error, ApiError) and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR
    )


def _encode_error(batch: ProducerBatch, error: Exception) -> BarnabasError:
    if isinstance(error, BarnabasError):
        return error
    made = EncodeError(f"a batch of {batch.tp} could not be encoded: {error!r}")
    made.__cause__ = error
    return made
