"""The audit tier of a broker or cluster: reads its topics as a consumer group, and counts their messages.

It is separate from the broker, whose request path does not change.
"""

import threading
from collections.abc import Callable, Sequence

from ..app.clients.shared.blocking_shell import logger
from ..ports.errors import BarnabasError
from .consuming import INTERVAL_S, AuditedConsumer, passes
from .publishing import wall_ms
from .reports import BROKER, PRODUCER, TOPIC, WINDOW_MS

ALL_TOPICS = rf"(?!__|{TOPIC}$).*"
"""All but internal topics."""
_POLL_S = 0.5
_AT_ONCE = 5000
_METADATA_MS = 5000
"""Maximum delay before a new topic is counted."""


class Auditor:
    """Counts the messages of a cluster's topics exactly once, until it is stopped.

    topics:   topics to count; default: all but internal ones, including new ones.
    instance: its name among the auditors of this tier, which share the partitions; a restart under its name causes
              no rebalance. Raises `BarnabasError`.
    """

    def __init__(
        self,
        bootstrap: object,
        *,
        tier: str = BROKER,
        after: str = PRODUCER,
        topics: Sequence[str] = (),
        window_ms: int = WINDOW_MS,
        interval_s: float = INTERVAL_S,
        instance: str = "1",
    ) -> None:
        self._audited = AuditedConsumer(
            bootstrap,
            group_id=f"{TOPIC}-{tier}",
            tier=tier,
            after=after,
            window_ms=window_ms,
            interval_s=interval_s,
            group_instance_id=f"{TOPIC}-{tier}-{instance}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=_METADATA_MS,
            skip_damaged=True,  # unreadable messages are lost, and reported as such
        )
        self._stopping = threading.Event()
        self.counted = 0
        if topics:
            self._audited.subscribe(list(topics))
        else:
            self._audited.subscribe(pattern=ALL_TOPICS)

    def run(self, on_counted: Callable[[int], object]) -> None:
        """Count until `stop`. `on_counted` receives the number of counted messages. Raises permanent errors."""
        while not self._stopping.is_set():
            self.step()
            on_counted(self.counted)

    def step(self) -> None:
        """Count the available messages, and commit if due."""
        try:
            self.counted += len(self._audited.poll_many(_AT_ONCE, _POLL_S))
        except BarnabasError as error:
            if not passes(error):
                raise
            logger.warning("audit of %s: %s", self._audited.tier, error)
            self._stopping.wait(_POLL_S)
        self._audited.commit_if_due()

    def count_to_end(self) -> None:
        """Count and commit all current messages of this auditor's partitions; others may have the rest."""
        begun_ms = wall_ms()
        consumer = self._audited.consumer
        while not self._stopping.is_set():
            self.step()
            if consumer.settled:
                self._audited.commit_if_due(now=True)
                if self._audited.upto_ms >= begun_ms:
                    return

    def stop(self) -> None:
        """End `run`. Any thread; also a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Commit and leave the group."""
        self._audited.close()
