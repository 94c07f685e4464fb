"""The queue of the classic producer, with its hook points (facts A6; the right order of closing)."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from ....ports.errors import BarnabasError
from ..effects import NEVER, Poll
from ..errors import HookError
from .handlers import CallbackHandler, EventHandler, ProducerItem

IDLE_MS = 100.0
"""The shortest interval at which an idle callback handler is asked for items that it held back."""


class HookSink(Protocol):
    """The destination of items; called by `poll`."""

    def route(self, item: ProducerItem) -> None:
        """Encode the item and put it into a batch. Its failures go to the item's handle."""
        ...

    def failed(self, item: ProducerItem, error: BarnabasError) -> None:
        """Fail an item that will not be sent. An item without a token has no handle to fail."""
        ...

    def handled(self, item: ProducerItem) -> None:
        """Complete an item that the event handler has handled without sending it."""
        ...

    def report(self, text: str, error: BaseException) -> None: ...

    def progress(self) -> None:
        """Wake the threads that wait for a change."""
        ...

    def has_room(self) -> bool:
        """Return False while routed messages fill the memory."""
        ...


class HookQueue:
    """Items between `send` and the event handler.

    `put` may be called by several threads, one at a time, while `poll` runs on another, with the hooks in it: they
    share a deque, of which each has one end, and counts that only one of them changes.
    """

    def __init__(
        self,
        sink: HookSink,
        callbacks: CallbackHandler | None,
        events: EventHandler,
        *,
        batch_messages: int,
        queue_ms: float,
    ) -> None:
        self._sink = sink
        self._callbacks = callbacks or CallbackHandler()
        self._events = events
        self._batch_messages = batch_messages
        self._queue_ms = queue_ms
        self._idle_ms = NEVER if callbacks is None else max(queue_ms, IDLE_MS)
        self._queue: deque[ProducerItem] = deque()
        self._batch: list[ProducerItem] = []
        self._last_ms = -NEVER
        self._dequeued_count = 0
        self._sent: set[int] = set()
        self.put_count = 0
        self.dispatched_count = 0
        """The number of items put that have left the queue and the batch, in order."""
        self.hurry = 0
        """While > 0 a batch need not fill up."""
        self.closing = False
        self.drained = False
        """Closing, and everything has been handed to the event handler."""

    @property
    def waiting(self) -> int:
        """Items not yet handed to the event handler."""
        return self.put_count - self.dispatched_count

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        """Run the hook. Raises `HookError`."""
        try:
            changed = self._callbacks.before_enqueue(item)
        except Exception as error:
            self._sink.report("callback handler: before_enqueue failed", error)
            raise HookError(f"before_enqueue failed: {error!r}") from error
        if not isinstance(changed, ProducerItem):
            raise HookError(f"before_enqueue returned {changed!r}, not an item")
        return changed

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        """Run the hook; the item is on its way, or refused, whatever the hook does."""
        try:
            self._callbacks.after_enqueue(item, added)
        except Exception as error:  # noqa: BLE001  # reported
            self._sink.report("callback handler: after_enqueue failed", error)

    def put(self, item: ProducerItem) -> None:
        """Queue an item."""
        self._queue.append(item)
        self.put_count += 1

    def poll(self, now_ms: float) -> Poll:
        if self.drained:
            return Poll([], NEVER)
        if self._last_ms == -NEVER:
            self._last_ms = now_ms
        while self._sink.has_room():
            if not self._queue:
                break
            item = self._queue.popleft()
            self._dequeued_count += 1
            self._batch += self._dequeued(item)
            if len(self._batch) >= self._batch_messages:
                self._dispatch(now_ms)
        if not self._sink.has_room():
            return Poll([], NEVER)  # an answer frees memory, and comes back here
        if self.closing:
            self._drain(now_ms)
            return Poll([], NEVER)
        limit = self._queue_ms if self._batch else self._idle_ms
        if now_ms >= self._last_ms + limit or (self.hurry and self._dequeued_count > self.dispatched_count):
            self._batch += self._dequeued(None)
            self._dispatch(now_ms)
            limit = self._idle_ms
        return Poll([], self._last_ms + limit)

    def close_handlers(self) -> None:
        """Close the handlers, after everything was delivered."""
        for name, close in (("event handler", self._events.close), ("callback handler", self._callbacks.close)):
            try:
                close()
            except Exception as error:  # noqa: BLE001  # reported, and the other one is to be closed
                self._sink.report(f"{name}: close failed", error)

    def _dequeued(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        try:
            return _items(self._callbacks.after_dequeue(item), "after_dequeue")
        except Exception as error:  # noqa: BLE001  # reported; the message's handle gets it
            self._hook_failed("after_dequeue", error, () if item is None else (item,))
            return ()

    def _drain(self, now_ms: float) -> None:
        self._batch += self._dequeued(None)
        try:
            self._batch += _items(self._callbacks.last_batch_before_close(), "last_batch_before_close")
        except Exception as error:  # noqa: BLE001  # reported; what is in the batch goes out
            self._sink.report("callback handler: last_batch_before_close failed", error)
        self._dispatch(now_ms)
        self.drained = True
        self._sink.progress()

    def _dispatch(self, now_ms: float) -> None:
        self._last_ms = now_ms
        batch, self._batch = self._batch, []
        if batch:
            try:
                items: Sequence[ProducerItem] = _items(self._callbacks.before_send(tuple(batch)), "before_send")
            except Exception as error:  # noqa: BLE001  # reported; the messages' handles get it
                self._hook_failed("before_send", error, batch)
            else:
                self._hand_over(batch, items)
        self.dispatched_count = self._dequeued_count
        self._sink.progress()

    def _hand_over(self, batch: Sequence[ProducerItem], items: Sequence[ProducerItem]) -> None:
        self._sent.clear()
        tokens = {id(item.token): item for item in (*batch, *items) if item.token is not None}
        try:
            if items:
                self._events.handle(items, self._send)
        except Exception as error:  # noqa: BLE001  # reported; the messages' handles get it
            left = [item for key, item in tokens.items() if key not in self._sent]
            self._hook_failed("handle", error, left)
            return
        for key, item in tokens.items():
            if key not in self._sent:
                self._sink.handled(item)

    def _send(self, items: Iterable[ProducerItem]) -> None:
        for item in _items(items, "send"):
            if item.token is not None:
                if id(item.token) in self._sent:
                    raise HookError("an item was sent twice; give a copy no token")
                self._sent.add(id(item.token))
            self._sink.route(item)

    def _hook_failed(self, hook: str, error: Exception, items: Iterable[ProducerItem]) -> None:
        self._sink.report(f"handler: {hook} failed", error)
        failure = HookError(f"{hook} failed: {error!r}")
        failure.__cause__ = error
        for item in items:
            self._sink.failed(item, failure)


def _items(given: object, hook: str) -> list[ProducerItem]:
    if isinstance(given, Iterable):
        items = list(given)
        if all(isinstance(item, ProducerItem) for item in items):
            return items
    raise HookError(f"{hook} gave {given!r}, not a sequence of items")
