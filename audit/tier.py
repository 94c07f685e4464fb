"""The voice of one tier: its reports, numbered."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from ..core.message.message import Message
from ..ports.errors import ConfigError
from ..ports.types import TopicPartition
from .counting import MessageCounts
from .publishing import ensure_topic, in_sizes, messages_of, wall_ms
from .reaching import Reaching
from .reports import BROKER, TOPIC, WINDOW_MS, ReachReport, Report, Reporter
from .words import positive

MIRROR = "mirror"
_PROPS = ("tier", "after", "window.ms")


class TierReports:
    """Makes messages for the audit topic of what a tier has counted, and of how far it is."""

    def __init__(self, tier: str, after: str, *, writes: bool = False) -> None:
        self.tier = tier
        self.reaching = Reaching()
        self._after = after
        self._writes = writes
        self._by = f"{tier}/{secrets.token_hex(6)}"
        self._told = 0

    def messages(self, counts: MessageCounts) -> list[Message]:
        """Of what is counted in there, which is then empty."""
        reporter = Reporter(tier=self.tier, after=self._after, writes=self._writes, by=self._by, time_ms=wall_ms())
        reports: list[Report] = [*counts.take(reporter)]
        reach = self.reaching.take()
        if reach:
            reports.append(ReachReport(origin=reporter, topics=reach))
        numbered = []
        for report in in_sizes(reports):
            numbered.append(evolve(report, origin=evolve(reporter, number=self._told)))
            self._told += 1
        return messages_of(numbered)


class TierCounter:
    """A tier whose messages are counted where they pass, such as a mirror's stream. Fulfils `MessageCounter`.

    `props`: `tier` (mirror), `after` (the tier that is copied from; broker), `window.ms`. Raises `ConfigError`.
    """

    def __init__(self, props: Mapping[str, object]) -> None:
        given = {str(key).replace("_", "."): value for key, value in props.items()}
        unknown = sorted(given.keys() - set(_PROPS))
        if unknown:
            raise ConfigError(f"audit: unknown {', '.join(unknown)}; known: {', '.join(_PROPS)}")
        self._width_ms = positive(given.get("window.ms", WINDOW_MS), "window.ms")
        tier, after = str(given.get("tier", MIRROR)), str(given.get("after", BROKER))
        self._reports = TierReports(tier, after, writes=True)

    def start(self, bootstrap: object) -> None:
        ensure_topic(bootstrap)

    def reports(self, passed: Sequence[Message], positions: Mapping[TopicPartition, int]) -> Sequence[Message]:
        counts = MessageCounts(self._width_ms)
        counts.add((message for message in passed if message.topic != TOPIC), wall_ms())
        self._reports.reaching.read_to(positions)
        return [message._replace(topic=TOPIC) for message in self._reports.messages(counts)]

    def unprobed(self, places: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        return self._reports.reaching.unprobed(place for place in places if place.topic != TOPIC)

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int], partitions: Mapping[str, int]) -> None:
        self._reports.reaching.probed(time_ms, ends)
        self._reports.reaching.partitions |= partitions
