"""The classic hook points of a producer (facts A6), with the meaning that they were meant to have.

With a handler configured, messages pass through one queue before they are encoded and routed: `before_enqueue` → queue
→ `after_enqueue`; then `after_dequeue` per message builds a batch, which `before_send` may change when it is full
(`batch.size` messages) or `queue.time` has passed; the event handler gets it and normally passes it to `send`, which
encodes, partitions and delivers. If a hook raises, the error is reported and the messages of that call fail, except in
`after_enqueue`, where they are queued already and stay so. The producer continues.

Unlike the 2011 producer, `CallbackHandler.close` is called after everything was sent, not before.

In addition, a callback handler of a producer of the current generation may see whole batches: `before_batch` and
`after_batch`. One that sees nothing else costs the messages no queue.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attrs import field

from ....ports.errors import BarnabasError
from ....ports.values import define
from ...message.numbered_header import NumberedHeader


@define(kw_only=True, eq=False)
class ProducerItem:
    """One message on its way, before it is encoded; hooks may change every public field, or make new items."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    token: object = field(default=None, repr=False)
    """The message whose handle gets the delivery. An item made by a hook has None; one copy may take it over."""


class BatchOutcome(NamedTuple):
    """The outcome of a batch, or of a part of one, that has a header from `before_batch`."""

    topic: str
    messages: int
    time_ms: int
    """The beginning of the batch, the `time_ms` of `before_batch`."""
    numbered: NumberedHeader
    error: BarnabasError | None
    """None: the batch was delivered. Otherwise its delivery is not confirmed, though it may have happened."""


class CallbackHandler:
    """Watches and changes messages on their way. Subclass it and override what you need; this one changes nothing.

    `before_enqueue`, `after_enqueue`, `start` and `close` run on the thread that makes, sends or closes, the others on
    the producer's.
    """

    def start(self, bootstrap: object) -> None:
        """Called before the producer begins, with its `bootstrap`. The producer's constructor raises its errors."""

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        """Return the item to put into the queue instead of `item`; may be `item`."""
        return item

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        """`added` is False when the queue was full for `item`; the sender then gets `QueueFull`."""

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        """Return the items to add to the batch for this one: itself, none (dropped, or held back), or several.

        Called with None when `queue.time` has passed without a full batch, so that it returns what it held back.
        """
        return () if item is None else (item,)

    def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
        """Return the batch to pass to the event handler instead of `items`."""
        return items

    def last_batch_before_close(self) -> Sequence[ProducerItem]:
        """Return further items for the last batch, when the queue has been emptied for closing."""
        return ()

    def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader | None:  # noqa: ARG002
        """Return a header for the `count` messages of a batch before its first attempt; `time_ms` is its beginning.

        Current generation. If it raises, the batch fails.
        """
        return None

    def after_batch(self, outcome: BatchOutcome) -> None:
        """A batch with a header from `before_batch` has an `outcome`; the parts of a split one come one by one.

        A batch of a transaction is delivered when the transaction commits; this runs on the thread that commits.
        """

    def close(self) -> None:
        """The producer is closed; nothing follows."""


_OF_MESSAGES = ("before_enqueue", "after_enqueue", "after_dequeue", "before_send", "last_batch_before_close")


def sees_messages(handler: CallbackHandler) -> bool:
    """Return True if the handler has one of the classic hook points, so that messages have to pass through a queue."""
    return any(getattr(type(handler), name) is not getattr(CallbackHandler, name) for name in _OF_MESSAGES)


def gives_headers(handler: object) -> bool:
    """Return True if the handler wants to give messages a header, batch by batch."""
    return isinstance(handler, CallbackHandler) and type(handler).before_batch is not CallbackHandler.before_batch


SendItems = Callable[[Sequence[ProducerItem]], None]


class EventHandler:
    """Takes each batch before it is sent. The default sends it. Runs on the producer's own thread."""

    def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
        """Process the batch; `send` encodes, partitions and delivers the items it is given.

        Items that are never passed to `send` count as handled here: their handles return offset -1.
        """
        send(items)

    def close(self) -> None:
        """The producer is closed; nothing follows."""
