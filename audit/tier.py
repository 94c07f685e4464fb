"""The reach of a tier, and its numbered reports.

The reach is the time up to which everything in its source is counted. A probe records the end of a partition at some
time. When the reader gets there, all messages that the partition had at that time are counted.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from attrs import define, evolve, field

from ..app.clients.shared.bootstrap import Bootstrap
from ..core.message.message import Message
from ..ports.errors import ConfigError
from ..ports.types import TopicPartition
from .counting import MessageCounts
from .publishing import ensure_topic, in_sizes, messages_of, wall_ms
from .reports import BROKER, TOPIC, WINDOW_MS, ReachReport, Report, Reporter, TopicReach
from .words import positive

MIRROR = "mirror"
_PROPS = ("tier", "after", "window.ms")


@define
class ReachTracker:
    """The probes of one reader, and their results since the last report. Times in ms."""

    partitions: dict[str, int] = field(factory=dict)
    """Topic of the source → number of partitions."""
    _probes: dict[TopicPartition, tuple[int, int]] = field(factory=dict)
    _upto_ms: dict[TopicPartition, int] = field(factory=dict)
    _reached_ms: dict[TopicPartition, int] = field(factory=dict)
    _since_ms: dict[str, int] = field(factory=dict)

    def unprobed(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose end must be looked up."""
        return [tp for tp in topic_partitions if tp not in self._probes]

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Add end offsets of partitions, at this time or later."""
        self._probes |= {tp: (time_ms, end) for tp, end in ends.items()}

    def read_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Handle the positions of the reader: everything before them is counted."""
        for tp, position in positions.items():
            probe = self._probes.get(tp)
            if probe is not None and position >= probe[1]:
                self._upto_ms[tp] = self._reached_ms[tp] = probe[0]
                del self._probes[tp]

    def begins(self, topic: str, time_ms: int) -> None:
        """Start a topic: earlier messages are not counted."""
        self._since_ms[topic] = max(time_ms, self._since_ms.get(topic, 0))

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are no longer read, or read again from an earlier offset."""
        for tp in topic_partitions:
            self._probes.pop(tp, None)
            self._upto_ms.pop(tp, None)
            self._reached_ms.pop(tp, None)

    def reached_ms(self, topic_partitions: Iterable[TopicPartition]) -> int:
        """Return the time up to which these partitions are counted; -1: unknown."""
        return min((self._reached_ms.get(tp, -1) for tp in topic_partitions), default=2**63)

    @property
    def has_news(self) -> bool:
        """Return True if there is something to report."""
        return bool(self._upto_ms)

    def take_reach(self) -> dict[str, TopicReach]:
        """Return the new results for a report."""
        upto, self._upto_ms = self._upto_ms, {}
        found: dict[str, TopicReach] = {}
        for topic in sorted({tp.topic for tp in upto}):
            of_topic = {tp.partition: time_ms for tp, time_ms in upto.items() if tp.topic == topic}
            count = max(self.partitions.get(topic, 0), max(of_topic) + 1)
            found[topic] = TopicReach(partitions=count, upto_ms=of_topic, since_ms=self._since_ms.get(topic, 0))
        return found


class TierReportBuilder:
    """Builds the messages for the audit topic from the counts and the reach of a tier."""

    def __init__(self, tier: str, after: str, *, writes: bool = False) -> None:
        self.tier = tier
        self.reaching = ReachTracker()
        self._after = after
        self._writes = writes
        self._by = f"{tier}/{secrets.token_hex(6)}"
        self._numbered = 0

    def messages(self, counts: MessageCounts) -> list[Message]:
        """Return the messages of these counts, which are then empty."""
        reporter = Reporter(tier=self.tier, after=self._after, writes=self._writes, by=self._by, time_ms=wall_ms())
        reports: list[Report] = [*counts.take_reports(reporter)]
        reach = self.reaching.take_reach()
        if reach:
            reports.append(ReachReport(origin=reporter, topics=reach))
        numbered = []
        for report in in_sizes(reports):
            numbered.append(evolve(report, origin=evolve(reporter, number=self._numbered)))
            self._numbered += 1
        return messages_of(numbered)


class TierCounter:
    """Counts messages that pass a tier such as a mirror's stream. Implements `MessageCounter`.

    `props`: `tier` (mirror), `after` (the previous tier; broker), `window.ms`. Raises `ConfigError`.
    """

    def __init__(self, props: Mapping[str, object]) -> None:
        given = {str(key).replace("_", "."): value for key, value in props.items()}
        unknown = sorted(given.keys() - set(_PROPS))
        if unknown:
            raise ConfigError(f"audit: unknown {', '.join(unknown)}; known: {', '.join(_PROPS)}")
        self._width_ms = positive(given.get("window.ms", WINDOW_MS), "window.ms")
        tier, after = str(given.get("tier", MIRROR)), str(given.get("after", BROKER))
        self._reports = TierReportBuilder(tier, after, writes=True)

    def start(self, bootstrap: object) -> None:
        ensure_topic(cast("Bootstrap", bootstrap))

    def reports(self, passed: Sequence[Message], positions: Mapping[TopicPartition, int]) -> Sequence[Message]:
        counts = MessageCounts(self._width_ms)
        counts.add((message for message in passed if message.topic != TOPIC), wall_ms())
        self._reports.reaching.read_to(positions)
        return [message._replace(topic=TOPIC) for message in self._reports.messages(counts)]

    def unprobed(self, partitions: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        return self._reports.reaching.unprobed(tp for tp in partitions if tp.topic != TOPIC)

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int], partitions: Mapping[str, int]) -> None:
        self._reports.reaching.probed(time_ms, ends)
        self._reports.reaching.partitions |= partitions
