"""The way through the classic hooks, for producers that have an event handler or a callback handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.client.batch import DeliveryCallback, Home
from ...core.client.errors import ClientTimeout, HookError, QueueFull
from ...core.client.handlers import CallbackHandler, EventHandler, ProducerItem
from ...core.client.hook_queue import HookQueue
from ...core.message.message import Headers
from ...ports.errors import BarnabasError
from .encoding import checked_headers, checked_timestamp
from .handle import DeliveryHandle

if TYPE_CHECKING:
    from ...plugins.host import PluginHost
    from .producer import Producer
    from .settings import ProducerSettings


class HookPath:
    """Fulfils `HookSink` for one producer."""

    def __init__(self, producer: Producer, events: EventHandler, callbacks: CallbackHandler | None) -> None:
        self._producer = producer
        self._shell = producer._shell
        settings = producer.settings
        self._handles: dict[int, DeliveryHandle] = {}
        self.queue = HookQueue(
            self,
            callbacks,
            events,
            batch_messages=settings.batch_num_messages,
            queue_ms=settings.linger_ms,
            lock=producer._lock,
        )
        self.queue.hurry = int(producer._sync)

    @staticmethod
    def handlers(
        host: PluginHost, settings: ProducerSettings, events: object, callbacks: object
    ) -> tuple[EventHandler, CallbackHandler | None] | None:
        """The handlers that are wanted; None when there are none. Raises `ConfigError`."""
        made_events: Any = None if isinstance(events, str) else events
        made_callbacks: Any = None if isinstance(callbacks, str) else callbacks
        if made_events is None and settings.event_handler:
            made_events = host.event_handler(settings.event_handler, settings.event_handler_props)
        if made_callbacks is None and settings.callback_handler:
            made_callbacks = host.callback_handler(settings.callback_handler, settings.callback_handler_props)
        if made_events is None and made_callbacks is None:
            return None
        return made_events or EventHandler(), made_callbacks

    # --- the thread that sends

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> DeliveryHandle:
        """Queue a message. A hook that fails fails the handle; raises `QueueFull`, `ClosedError`."""
        handle = DeliveryHandle(Home(), 0, self._shell)
        if on_delivery is not None:
            handle.home.callbacks.append((0, on_delivery))
        item = ProducerItem(
            topic=topic,
            value=value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            token=handle,
        )
        try:
            item = self.queue.before_enqueue(item)
        except HookError as error:
            self._producer.fail_handle(handle, error)
            return handle
        try:
            with self._producer._lock:
                self._producer._check_open()
                self._wait_for_place()
                self._handles[id(handle)] = handle
                self.queue.put(item)
                if self.queue.waiting == 1 or self.queue.waiting % self._producer.settings.batch_num_messages == 0:
                    self._shell.wake()
        except QueueFull:
            self.queue.after_enqueue(item, False)
            raise
        self.queue.after_enqueue(item, True)
        return handle

    def _wait_for_place(self) -> None:
        settings = self._producer.settings
        limit_ms = settings.max_block_ms

        def place() -> bool:
            return self.queue.waiting < settings.queue_buffering_max_messages

        if place():
            return
        self._shell.wake()
        may_wait = limit_ms != 0 and not self._shell.connector.owns_thread()
        if may_wait and self._shell.wait(place, limit_ms / 1000 if limit_ms > 0 else None):
            self._producer._check_open()
            return
        raise QueueFull(f"{self.queue.waiting} messages wait for the event handler (queue.size)")

    def drain(self, timeout: float | None) -> None:
        """Hand everything to the event handler, the last batch included. Raises `ClientTimeout`."""
        with self._producer._lock:
            self.queue.closing = True
            self._shell.wake()
            if not self._shell.wait(lambda: self.queue.drained, timeout):
                raise ClientTimeout(f"{self.queue.waiting} messages still wait for the event handler")

    def close(self, closed: BarnabasError) -> None:
        """Everything is delivered, or has failed: tell the handlers, and the handles of what they kept."""
        self.queue.close_handlers()
        error = None if self.queue.drained else closed
        for handle in list(self._handles.values()):
            self._producer.fail_handle(handle, error)
        self._handles.clear()

    # --- the reactor's thread

    def route(self, item: ProducerItem) -> None:
        producer = self._producer
        handle = item.token if isinstance(item.token, DeliveryHandle) else DeliveryHandle(Home(), 0, self._shell)
        self._handles.pop(id(handle), None)
        try:
            headers = checked_headers(item.headers) if item.headers else ()
            if item.timestamp_ms is not None:
                checked_timestamp(item.timestamp_ms)
            data, key = producer._encoding.encode(item.topic, item.value, item.key)
            producer._take(item.topic, (data, key, headers, item.timestamp_ms), item.partition, handle)
        except BarnabasError as error:
            producer.fail_handle(handle, error)

    def failed(self, item: ProducerItem, error: BarnabasError) -> None:
        if isinstance(item.token, DeliveryHandle):
            self._handles.pop(id(item.token), None)
            self._producer.fail_handle(item.token, error)

    def handled(self, item: ProducerItem) -> None:
        if isinstance(item.token, DeliveryHandle):
            self._handles.pop(id(item.token), None)
            self._producer.fail_handle(item.token, None)

    def report(self, text: str, error: BaseException) -> None:
        self._shell.report(text, error)

    def progress(self) -> None:
        with self._producer._lock:
            self._shell.changed.notify_all()

    def has_room(self) -> bool:
        return self._producer._accumulator.has_room(1)
