"""The hooks of a producer of the current generation: event handlers and callback handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.client.errors import HookError
from ....core.client.producer.handlers import (
    BatchOutcome,
    CallbackHandler,
    EventHandler,
    ProducerItem,
    gives_headers,
    sees_messages,
)
from ....core.message.message import Message
from ....ports.errors import BarnabasError, ClosedError
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.encoding import checked_headers, checked_timestamp
from ..shared.hooks import HookOwner, HookPath, QueueLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....core.client.producer.producer_batch import ProducerBatch
    from ....core.message.numbered_header import NumberedHeader
    from .record_appender import RecordAppender


class ProducerHooks(HookPath):
    """The hook path to the accumulator of the current generation."""

    def __init__(
        self, owner: HookOwner, appender: RecordAppender, events: EventHandler, callbacks: CallbackHandler | None
    ) -> None:
        settings = appender.settings
        limits = QueueLimits(
            batch_messages=settings.batch_num_messages,
            queue_ms=settings.linger_ms,
            queue_messages=settings.queue_buffering_max_messages,
            block_ms=settings.max_block_ms,
            hurry=settings.producer_type == "sync",
        )
        super().__init__(owner, appender.shell, events, callbacks, limits)
        self._appender = appender

    def send_many(self, topic: str, values: Sequence[Any], partition: int | None, key: Any) -> ManyHandle:
        """Queue messages, one after the other. Raises the errors of `send`."""
        return ManyHandle(self._shell, [], [self._send_one(topic, value, key, partition) for value in values])

    def _send_one(self, topic: str, value: Any, key: Any, partition: int | None) -> DeliveryHandle:
        if type(value) is Message:
            own_key = value.key if key is None else key
            return self.send(topic, value.value, own_key, partition, value.headers, value.timestamp_ms, None)
        return self.send(topic, value, key, partition, (), None, None)

    def route(self, item: ProducerItem) -> None:
        appender = self._appender
        handle = self.taken(item)
        try:
            headers = checked_headers(item.headers) if item.headers else ()
            if item.timestamp_ms is not None:
                checked_timestamp(item.timestamp_ms)
            data, key = appender.encoding.encode(item.topic, item.value, item.key)
            appender.append(item.topic, (data, key, headers, item.timestamp_ms), item.partition, handle)
        except BarnabasError as error:
            self._owner.fail_handle(handle, error)
        except (TypeError, ValueError) as error:  # a hook may have changed the topic
            self._owner.fail_handle(handle, HookError(f"an event handler sent what cannot be sent: {error}"))

    def has_room(self) -> bool:
        return self._appender.accumulator.has_room(1)


Handlers = tuple[EventHandler, CallbackHandler | None]


def needs_queue(handlers: Handlers | None) -> bool:
    """True if messages have to pass through the classic hook points."""
    if handlers is None:
        return False
    events, callbacks = handlers
    return type(events) is not EventHandler or callbacks is None or sees_messages(callbacks)


class BatchHooks:
    """Calls `before_batch` and `after_batch` of a callback handler, for whole batches."""

    def __init__(
        self, handlers: Handlers | None, report: Callable[[str, BaseException], None], *, transactional: bool
    ) -> None:
        callbacks = handlers[1] if handlers is not None else None
        self._callbacks = callbacks if isinstance(callbacks, CallbackHandler) else CallbackHandler()
        self._closes = handlers is not None and not needs_queue(handlers)
        self._report = report
        self._transactional = transactional
        self._in_transaction: list[BatchOutcome] = []

    @property
    def stamp(self) -> Callable[[str, int, int], NumberedHeader | None] | None:
        """Return the function that gives a batch its header; None without such a handler."""
        return self._callbacks.before_batch if gives_headers(self._callbacks) else None

    def start(self, bootstrap: object) -> None:
        """Start the handler, when the producer begins. Raises the handler's errors."""
        self._callbacks.start(bootstrap)

    def on_batch_done(self, batch: ProducerBatch) -> None:
        """Report a batch whose outcome is known. Call it on the reactor, or when that has stopped."""
        if batch.numbered is None:
            return
        outcome = BatchOutcome(batch.tp.topic, batch.count, batch.wall_ms, batch.numbered, batch.error)
        if self._transactional:
            self._in_transaction.append(outcome)
        else:
            self._call_after_batch(outcome)

    def transaction_ended(self, error: BarnabasError | None) -> None:
        """Report the batches of a transaction: delivered, or failed with `error`."""
        outcomes, self._in_transaction = self._in_transaction, []
        for outcome in outcomes:
            self._call_after_batch(outcome._replace(error=outcome.error or error))

    def _call_after_batch(self, outcome: BatchOutcome) -> None:
        try:
            self._callbacks.after_batch(outcome)
        except Exception as error:  # noqa: BLE001  # reported; the messages are where they are
            self._report("callback handler: after_batch failed", error)

    def close(self) -> None:
        """Close the handler, unless the handler queue closes it."""
        self.transaction_ended(ClosedError("the producer was closed before it knew of the end of the transaction"))
        if self._closes:
            try:
                self._callbacks.close()
            except Exception as error:  # noqa: BLE001  # reported
                self._report("callback handler: close failed", error)
