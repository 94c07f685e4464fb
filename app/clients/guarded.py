"""A state machine that the user's threads change too: the lock around it."""

from threading import Condition
from typing import Any

from ...core.client.effects import Answer, Part, Poll, Send


class Guarded:
    """Polls and answers a machine with the condition's lock held, and notifies after each answer."""

    def __init__(self, part: Part, changed: Condition) -> None:
        self._part = part
        self._changed = changed

    def poll(self, now_ms: float) -> Poll:
        with self._changed:
            sends, wake_ms = self._part.poll(now_ms)
        return Poll([Send(send.node, send.request, self._behind(send.answer)) for send in sends], wake_ms)

    def _behind(self, answer: Answer) -> Answer:
        def guarded(result: Any, now_ms: float) -> None:
            with self._changed:
                answer(result, now_ms)
                self._changed.notify_all()

        return guarded
