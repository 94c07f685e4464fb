"""The classic hook points of a producer (facts A6), with the meaning that they were meant to have.

With a handler configured, messages pass through one queue before they are encoded and routed: `before_enqueue` → queue
→ `after_enqueue`; then `after_dequeue` per message builds a batch, which `before_send` may change when it is full
(`batch.size` messages) or `queue.time` has passed; the event handler gets it and normally hands it to `send`, which
encodes, partitions and delivers. A hook that raises is reported; the messages it was called with fail (after
`after_enqueue` they are on their way already, and go on), and the producer goes on.

Unlike the 2011 producer, `CallbackHandler.close` is called after everything was sent, not before.

Besides these, a callback handler of a producer of the current generation may see whole batches: `before_batch` and
`after_batch`. One that sees nothing else costs the messages no queue.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attrs import define, field

from ....ports.errors import BarnabasError
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
    """Whose handle is told of the delivery. An item made by a hook has None; a copy may carry it on, once."""


class BatchOutcome(NamedTuple):
    """What became of a batch, or of a part of one, that has a header from `before_batch`."""

    topic: str
    messages: int
    time_ms: int
    """When it began, as `before_batch` was told."""
    numbered: NumberedHeader
    error: BarnabasError | None
    """None: it has arrived. Otherwise it is not known to have arrived, though it may have."""


class CallbackHandler:
    """Watches and changes messages on their way. Subclass it and override what you need; this one changes nothing.

    `before_enqueue`, `after_enqueue`, `start` and `close` run on the thread that makes, sends or closes, the others on
    the producer's.
    """

    def start(self, bootstrap: object) -> None:
        """The producer is about to begin; `bootstrap` is what it was given. What this raises, its constructor does."""

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        """The item to put into the queue instead of `item`; may be the same."""
        return item

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        """`added` is False when the queue was full; the sender then gets `QueueFull`."""

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        """What to add to the batch for this item: itself, nothing (dropped, or kept for later), or several.

        Called with None when `queue.time` has passed without a full batch: time to give back what was kept.
        """
        return () if item is None else (item,)

    def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
        """The batch to hand to the event handler instead of `items`."""
        return items

    def last_batch_before_close(self) -> Sequence[ProducerItem]:
        """More items for the last batch, when the queue has been emptied for closing."""
        return ()

    def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader | None:  # noqa: ARG002
        """A header for the messages of a batch that is about to go out for the first time; `time_ms` is its beginning.

        Current generation. If it raises, the batch fails.
        """
        return None

    def after_batch(self, outcome: BatchOutcome) -> None:
        """A batch that `before_batch` gave a header to has arrived, or has failed; a split one is told in parts.

        One of a transaction has arrived when that is committed, which is told on the thread that commits.
        """

    def close(self) -> None:
        """The producer is closed; nothing follows."""


_OF_MESSAGES = ("before_enqueue", "after_enqueue", "after_dequeue", "before_send", "last_batch_before_close")


def sees_messages(handler: CallbackHandler) -> bool:
    """True if the handler has one of the classic hook points, so that messages have to pass through a queue."""
    return any(getattr(type(handler), name) is not getattr(CallbackHandler, name) for name in _OF_MESSAGES)


def gives_headers(handler: object) -> bool:
    """True if the handler wants to give messages a header, batch by batch."""
    return isinstance(handler, CallbackHandler) and type(handler).before_batch is not CallbackHandler.before_batch


SendItems = Callable[[Sequence[ProducerItem]], None]


class EventHandler:
    """Gets each batch that is about to go out. This one, the default, sends it; runs on the producer's own thread."""

    def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
        """Do with the batch what is to be done; `send` encodes, partitions and delivers the items it is given.

        Items that are never given to `send` count as handled here: their handles tell offset -1.
        """
        send(items)

    def close(self) -> None:
        """The producer is closed; nothing follows."""
