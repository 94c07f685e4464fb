"""The reports of a mirror's stream on the messages that it copies; they are sent along with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.message.message import Message
from ...ports.errors import BarnabasError
from ..clients.admin.admin import Admin
from ..clients.shared.blocking_shell import logger

if TYPE_CHECKING:
    from ...core.client.message_counter import MessageCounter
    from ...ports.types import TopicPartition
    from ..clients.consumer.consumer import Consumer
    from .taken import Taken

LOOK_S = 5.0
"""The interval at which the ends of the source are looked up, and reported when nothing is copied."""
_ADMIN_MS = 5000


class StreamCount:
    """Counts one stream of a current cluster. Used by its thread alone."""

    def __init__(self, counter: MessageCounter, bootstrap: object, consumer: Consumer) -> None:
        self._counter = counter
        self._consumer = consumer
        self._admin = Admin(bootstrap, default_api_timeout_ms=_ADMIN_MS)
        self._looked_s = -LOOK_S

    def reports(self, batch: Sequence[Taken]) -> Sequence[Message]:
        """Return the reports to send with the batch; an empty batch can have some, too."""
        due = time.monotonic() - self._looked_s >= LOOK_S
        if not batch and not due:
            return ()
        if due:
            self._look()
            self._looked_s = time.monotonic()
        messages = [taken.message for taken in batch if isinstance(taken.message, Message)]
        return self._counter.reports(messages, self._positions())

    def _look(self) -> None:
        places = self._counter.unprobed(self._consumer.assignment)
        if not places:
            return
        now_ms = time.time_ns() // 1_000_000
        try:
            ends = self._admin.list_offsets(dict.fromkeys(places, "latest"))
            topics = self._admin.describe_topics(sorted({place.topic for place in places}))
        except BarnabasError as error:
            logger.info("mirror: the ends of the source cannot be looked up now: %s", error)
            return
        self._counter.probed(now_ms, ends, {topic.name or "": len(topic.partitions) for topic in topics})

    def _positions(self) -> dict[TopicPartition, int]:
        positions = {}
        for place in self._consumer.assignment:
            try:
                positions[place] = self._consumer.position(place, 0)
            except BarnabasError as error:
                logger.debug("mirror: %s has no position yet: %s", place, error)
        return positions

    def close(self) -> None:
        self._admin.close()
