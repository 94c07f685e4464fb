"""`barnabas consume --group` with brokers of the current generation."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from ....core.classic.registry.topic_filter import TopicFilter
from ....ports.errors import BarnabasError, ConfigError
from ....ports.types import TopicPartition
from ...clients.consumer.consumer import Consumer
from ..classic import warn
from ..options import PATIENCE_MS
from ..reaching import check_reachable
from .progress import COMMIT_S, Extent, Progress, Show, stopping

LOOK_S = 0.2
"""Interval in which a waiting member checks for a signal to stop."""


def read_member(
    bootstrap: str, group: str, wanted: Mapping[str, str], extent: Extent, settings: Mapping[str, str], show: Show
) -> None:
    """Print the messages that a member of a group receives, until SIGTERM or Ctrl-C, or until `extent` is read.

    `wanted` has one of topic, whitelist and blacklist. Messages are committed after they are printed. Raises
    `BarnabasError`.
    """
    if extent.until_ms is not None or extent.start.last is not None:
        raise ConfigError("--until and --from -N are not allowed with --group")
    check_reachable(bootstrap)
    config = {
        "default.api.timeout.ms": PATIENCE_MS,
        "auto.offset.reset": extent.start.word or "latest",
        **settings,
        "group.id": group,
        "enable.auto.commit": False,
    }
    with stopping() as stopped, Consumer(bootstrap, config=config) as consumer:
        member = _Member(consumer, extent, show)
        member.subscribe(wanted)
        try:
            member.read(stopped)
        except BarnabasError:
            member.try_to_save()
            raise
        member.save()


class _Member:
    def __init__(self, consumer: Consumer, extent: Extent, show: Show) -> None:
        self._consumer = consumer
        self._extent = extent
        self._show = show
        self._new = False
        self._saved = time.monotonic()
        self._ends: dict[TopicPartition, int] = {}

    def subscribe(self, wanted: Mapping[str, str]) -> None:
        """Subscribe. Raises `BarnabasError` for an unreachable cluster, which a member would try to reach for ever."""
        self._consumer.committed([(wanted.get("topic", "any"), 0)])
        listeners: dict[str, Any] = {"on_assigned": self._assigned, "on_revoked": self._revoked, "on_lost": self._gone}
        if "topic" in wanted:
            self._consumer.subscribe(wanted["topic"], **listeners)
        else:
            (kind, text), *_ = wanted.items()
            self._consumer.subscribe(pattern=TopicFilter(text, white=kind == "whitelist").pattern, **listeners)

    def read(self, stopped: list[int]) -> None:
        """Print messages until the extent is read."""
        progress = Progress(self._extent)
        while True:
            for message in self._consumer.messages(stop_at_end=self._extent.stop_at_end, timeout=LOOK_S):
                self._show(message, None)
                self._new = True
                if progress.got() or stopped:
                    return
                if time.monotonic() - self._saved >= COMMIT_S:
                    self.try_to_save()
            if self._new:
                self.try_to_save()
            if stopped or progress.timed_out or (self._extent.stop_at_end and self._at_end):
                return

    @property
    def _at_end(self) -> bool:
        return self._consumer.settled and self._consumer.reached(self._ends)

    def save(self) -> None:
        """Flush the output, then commit the printed messages."""
        sys.stdout.buffer.flush()
        self._consumer.commit()
        self._new = False
        self._saved = time.monotonic()

    def try_to_save(self) -> None:
        try:
            self.save()
        except BarnabasError as error:
            self._saved = time.monotonic()
            warn("offset commit failed, and is retried: %s", error)

    def _assigned(self, places: list[TopicPartition]) -> None:
        start = self._extent.start
        if start.word is None:
            new = [place for place, at in self._consumer.committed(places).items() if at is None]
            if start.time_ms is not None:
                self._consumer.seek_to_time(start.time_ms, new)
            elif start.offset is not None:
                for place in new:
                    self._consumer.seek(place, start.offset)
        if self._extent.stop_at_end:
            self._ends |= self._consumer.end_offsets(places)

    def _revoked(self, places: list[TopicPartition]) -> None:
        self.try_to_save()
        self._gone(places)

    def _gone(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._ends.pop(place, None)
