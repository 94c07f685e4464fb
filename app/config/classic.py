"""The peculiarities of classic topics' configuration: their defaults, and 0.7's maps of topics (facts A5)."""

from collections.abc import Callable, Mapping

CLASSIC = "classic"
V2 = "v2"
FORMAT_KEY = "message.format"

_HOUR_MS = 3_600_000
_WHOLE_NUMBER_DIGITS_MAX = 18

DEFAULTS: Mapping[str, str] = {
    "flush.messages": "500",
    "flush.ms": "3000",
    "max.message.bytes": "1000000",
}
"""The defaults of a classic topic, by topic key, where neither the topic nor the broker's configuration has a value."""

PARTITION_COUNTS = "topic.partition.count.map"

TOPIC_MAPS: Mapping[str, tuple[str, int]] = {
    "topic.flush.intervals.ms": ("flush.ms", 1),
    "topic.log.file.size": ("segment.bytes", 1),
    "topic.log.retention.hours": ("retention.ms", _HOUR_MS),
    "topic.log.retention.size": ("retention.bytes", 1),
    "topic.log.roll.hours": ("segment.ms", _HOUR_MS),
}
"""Broker key of 0.7 → the topic key it sets for single classic topics, and the factor of its unit."""


def parse_topic_map(key: str, text: str, report: Callable[[str], None]) -> dict[str, int]:
    """`topic:number,...`; as in 0.7 an item that makes no sense is reported and skipped. Numbers are above 0."""
    numbers = {}
    for item in filter(None, map(str.strip, text.split(","))):
        topic, colon, number = item.rpartition(":")
        number = number.strip()
        fits = number.isascii() and number.isdecimal() and len(number) <= _WHOLE_NUMBER_DIGITS_MAX
        if not (colon and topic.strip() and fits and int(number)):
            report(f"{key}: skipped {item[:200]!r}, which is not TOPIC:NUMBER with a number above 0")
            continue
        numbers[topic.strip()] = int(number)
    return numbers


def is_classic(configs: Mapping[str, str]) -> bool:
    """Return True for the own configs of a classic topic; one that was made without a format is of the current
    generation."""
    return configs.get(FORMAT_KEY) == CLASSIC
