"""Up to when everything in a source is counted.

A probe notes where a partition ends at some time. Once the reader is there, all that was in the partition at that time
is counted, whatever has come since.
"""

from collections.abc import Iterable, Mapping

from attrs import define, field

from ..ports.types import TopicPartition
from .reports import TopicReach


@define
class Reaching:
    """The probes of one reader, and what they have shown since the last report. Times in ms."""

    partitions: dict[str, int] = field(factory=dict)
    """Of the source's topics, how many they have."""
    _probes: dict[TopicPartition, tuple[int, int]] = field(factory=dict)
    _upto_ms: dict[TopicPartition, int] = field(factory=dict)
    _reached_ms: dict[TopicPartition, int] = field(factory=dict)
    _since_ms: dict[str, int] = field(factory=dict)

    def unprobed(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of which the end is to be looked up."""
        return [place for place in places if place not in self._probes]

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """The partitions ended there, at this time or later."""
        self._probes |= {place: (time_ms, end) for place, end in ends.items()}

    def read_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets is counted."""
        for place, position in positions.items():
            probe = self._probes.get(place)
            if probe is not None and position >= probe[1]:
                self._upto_ms[place] = self._reached_ms[place] = probe[0]
                del self._probes[place]

    def begins(self, topic: str, time_ms: int) -> None:
        """Nothing of the topic that was there before is counted."""
        self._since_ms[topic] = max(time_ms, self._since_ms.get(topic, 0))

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """They are read no more, or again from further back."""
        for place in places:
            self._probes.pop(place, None)
            self._upto_ms.pop(place, None)
            self._reached_ms.pop(place, None)

    def reached_ms(self, places: Iterable[TopicPartition]) -> int:
        """Everything that was in these partitions at this time is counted; -1: that is not known yet."""
        return min((self._reached_ms.get(place, -1) for place in places), default=2**63)

    @property
    def has_news(self) -> bool:
        """True if there is something to report."""
        return bool(self._upto_ms)

    def take(self) -> dict[str, TopicReach]:
        """What is new, for a report."""
        upto, self._upto_ms = self._upto_ms, {}
        found: dict[str, TopicReach] = {}
        for topic in sorted({place.topic for place in upto}):
            of_topic = {place.partition: time_ms for place, time_ms in upto.items() if place.topic == topic}
            count = max(self.partitions.get(topic, 0), max(of_topic) + 1)
            found[topic] = TopicReach(partitions=count, upto_ms=of_topic, since_ms=self._since_ms.get(topic, 0))
        return found
