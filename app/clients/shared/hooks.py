"""The path through the classic hooks, for producers with an event handler or a callback handler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ....core.client.errors import ClientTimeout, HookError, QueueFull
from ....core.client.producer.handlers import (
    CallbackHandler,
    EventHandler,
    ProducerItem,
)
from ....core.client.producer.hook_queue import HookQueue
from ....core.client.producer.producer_batch import BatchFuture, DeliveryCallback
from ....core.message.message import Headers
from ....ports.errors import BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.values import frozen
from .delivery import DeliveryHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ....plugins.host import PluginHost
    from .blocking_shell import BlockingShell


@frozen(kw_only=True)
class QueueLimits:
    """The limits of the queue before the hooks. Times in ms."""

    batch_messages: int
    queue_ms: float
    queue_messages: int
    block_ms: float
    """The time that `send` waits for a place: 0 = not at all, negative = for ever."""
    hurry: bool
    """A batch need not fill up (`producer.type` sync)."""


def still_wait(count: int) -> str:
    """Return the part of an error text about messages that the event handler has not received."""
    return counted(count, "message still waits", "messages still wait") + " for the event handler"


class HandlerSettings(Protocol):
    """The names of the handlers, and their properties."""

    @property
    def event_handler(self) -> str: ...

    @property
    def event_handler_props(self) -> Mapping[str, object]: ...

    @property
    def callback_handler(self) -> str: ...

    @property
    def callback_handler_props(self) -> Mapping[str, object]: ...


@frozen(kw_only=True)
class HookOwner:
    """The functions of a producer that the hooks' path calls."""

    check_open: Callable[[], None]
    """Raises `ClosedError`."""
    fail_handle: Callable[[DeliveryHandle, BarnabasError | None], None]
    """Ends a message: it failed, or (None) a handler has taken care of it."""


class HookPath(ABC):
    """Implements `HookSink` for one producer."""

    def __init__(
        self,
        owner: HookOwner,
        shell: BlockingShell,
        events: EventHandler,
        callbacks: CallbackHandler | None,
        limits: QueueLimits,
    ) -> None:
        self._owner = owner
        self._shell = shell
        self._limits = limits
        self._handles: dict[int, DeliveryHandle] = {}
        self.queue = HookQueue(
            self,
            callbacks,
            events,
            batch_messages=limits.batch_messages,
            queue_ms=limits.queue_ms,
        )
        self.queue.hurry = int(limits.hurry)

    @staticmethod
    def handlers(
        host: PluginHost, settings: HandlerSettings, events: object, callbacks: object
    ) -> tuple[EventHandler, CallbackHandler | None] | None:
        """Return the configured handlers; None if there are none. Raises `ConfigError`."""
        made_events: Any = None if isinstance(events, str) else events
        made_callbacks: Any = None if isinstance(callbacks, str) else callbacks
        if made_events is None and settings.event_handler:
            made_events = host.event_handler(settings.event_handler, settings.event_handler_props)
        if made_callbacks is None and settings.callback_handler:
            made_callbacks = host.callback_handler(settings.callback_handler, settings.callback_handler_props)
        for made, kind, setting in (
            (made_events, EventHandler, "event_handler"),
            (made_callbacks, CallbackHandler, "callback_handler"),
        ):
            if made is not None and not isinstance(made, kind):
                raise ConfigError(f"{setting}: {made!r:.80} is no {kind.__name__}: derive its class from it")
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
        """Queue a message. If a hook raises, the handle fails. Raises `QueueFull`, `ClosedError`."""
        handle = DeliveryHandle(BatchFuture(), 0, self._shell)
        if on_delivery is not None:
            handle.batch_future.callbacks.append((0, on_delivery))
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
            self._owner.fail_handle(handle, error)
            return handle
        try:
            with self._shell.lock:
                self._owner.check_open()
                self._wait_for_place()
                self._handles[id(handle)] = handle
                self.queue.put(item)
                if self.queue.waiting == 1 or self.queue.waiting % self._limits.batch_messages == 0:
                    self._shell.wake()
        except QueueFull:
            self.queue.after_enqueue(item, False)
            raise
        self.queue.after_enqueue(item, True)
        return handle

    def _wait_for_place(self) -> None:
        limit_ms = self._limits.block_ms

        def place() -> bool:
            return self.queue.waiting < self._limits.queue_messages

        if place():
            return
        self._shell.wake()
        may_wait = limit_ms != 0 and not self._shell.connector.owns_thread()
        if may_wait and self._shell.wait(place, limit_ms / 1000 if limit_ms > 0 else None):
            self._owner.check_open()
            return
        raise QueueFull(f"{still_wait(self.queue.waiting)} (queue.size)")

    def drain(self, timeout: float | None) -> None:
        """Hand everything to the event handler, the last batch included. Raises `ClientTimeout`."""
        with self._shell.lock:
            self.queue.closing = True
            self._shell.wake()
            if not self._shell.wait(lambda: self.queue.drained, timeout):
                raise ClientTimeout(still_wait(self.queue.waiting))

    def close(self, closed: BarnabasError) -> None:
        """Close the handlers after all deliveries, and end the handles of the messages that they kept."""
        self.queue.close_handlers()
        error = None if self.queue.drained else closed
        for handle in list(self._handles.values()):
            self._owner.fail_handle(handle, error)
        self._handles.clear()

    # --- the reactor's thread

    @abstractmethod
    def route(self, item: ProducerItem) -> None:
        """See `HookSink`."""

    def failed(self, item: ProducerItem, error: BarnabasError) -> None:
        if isinstance(item.token, DeliveryHandle):
            self._handles.pop(id(item.token), None)
            self._owner.fail_handle(item.token, error)

    def handled(self, item: ProducerItem) -> None:
        if isinstance(item.token, DeliveryHandle):
            self._handles.pop(id(item.token), None)
            self._owner.fail_handle(item.token, None)

    def report(self, text: str, error: BaseException) -> None:
        self._shell.report(text, error)

    def progress(self) -> None:
        with self._shell.lock:
            self._shell.changed.notify_all()

    @abstractmethod
    def has_room(self) -> bool:
        """See `HookSink`."""

    def taken(self, item: ProducerItem) -> DeliveryHandle:
        """Return the handle of an item that is sent; an item made by a hook gets a new one."""
        handle = item.token if isinstance(item.token, DeliveryHandle) else DeliveryHandle(BatchFuture(), 0, self._shell)
        self._handles.pop(id(handle), None)
        return handle
