"""The lock around state machines that the user's threads change too."""

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any

from ....core.client.effects import Part, Poll, ResponseCallback, Send
from ....core.client.producer.sender import Sender


def _nothing() -> None:
    pass


class Locked:
    """Polls and answers a machine with the condition's lock held, and notifies after each answer."""

    def __init__(self, part: Part, changed: Condition, after: Callable[[], None] = _nothing) -> None:
        """Wrap `part`. `after` runs after each step, without the lock: it notifies users of the decisions."""
        self._part = part
        self._changed = changed
        self._after = after

    def poll(self, now_ms: float) -> Poll:
        with self._changed:
            poll = self._part.poll(now_ms)
        self._after()
        return Poll(_guarded(poll.sends, self._changed, self._after), poll.wake_ms)


class LockedSender:
    """Works like `Locked`, but compresses batches without the lock, so that users fill other batches meanwhile."""

    def __init__(self, sender: Sender, changed: Condition, after: Callable[[], None]) -> None:
        self._sender = sender
        self._changed = changed
        self._after = after

    def poll(self, now_ms: float) -> Poll:
        with self._changed:
            ready = self._sender.drain_batches(now_ms)
        encoded = self._sender.encode(ready)
        with self._changed:
            poll = self._sender.end(encoded, now_ms)
        self._after()
        return Poll(_guarded(poll.sends, self._changed, self._after), poll.wake_ms)


def _guarded(sends: Sequence[Send], changed: Condition, after: Callable[[], None]) -> list[Send]:
    def behind(answer: ResponseCallback) -> ResponseCallback:
        def guarded(result: Any, now_ms: float) -> None:
            with changed:
                answer(result, now_ms)
                changed.notify_all()
            after()

        return guarded

    return [Send(send.node, send.request, behind(send.answer)) for send in sends]
