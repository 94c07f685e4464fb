"""The subscription of a consumer, and its form in the registry node (facts A7)."""

import json
from collections.abc import Iterable, Mapping

from ....ports.errors import ConfigError
from ....ports.values import frozen
from . import layout
from .topic_filter import TopicFilter

STREAMS_MAX = 10_000
"""More streams of one topic in one consumer are taken for a mistake, or garbage."""

_WHITE, _BLACK = "*", "!"


@frozen(kw_only=True)
class ClassicSubscription:
    """Topics by name, or a filter; made by `topics` and `filter`. `ConfigError` for what cannot be used."""

    streams_by_topic: Mapping[str, int] | None = None
    topic_filter: TopicFilter | None = None
    streams: int = 0
    """The number of streams per topic that the filter allows."""

    @classmethod
    def topics(cls, streams_by_topic: Mapping[str, int]) -> "ClassicSubscription":
        """Subscribe to topics by name, each with its number of streams."""
        for topic, streams in streams_by_topic.items():
            layout.check_name("topic", topic)
            _check_streams(streams)
        return cls(streams_by_topic=dict(streams_by_topic))

    @classmethod
    def filter(cls, topic_filter: TopicFilter, streams: int) -> "ClassicSubscription":
        """Subscribe, with this number of streams, to every topic that the filter allows, now and later."""
        _check_streams(streams)
        return cls(topic_filter=topic_filter, streams=streams)

    def expand(self, all_topics: Iterable[str]) -> dict[str, int]:
        """Return topic → number of streams. Topics by name count whether they exist or not."""
        if self.topic_filter is None:
            return dict(self.streams_by_topic or {})
        return {topic: self.streams for topic in all_topics if self.topic_filter.allows(topic)}

    def encode(self) -> bytes:
        """`{ "topic1": 2,"topic2": 1 }`, `*<streams>*<expression>` or `!<streams>!<expression>`."""
        if self.topic_filter is None:
            pairs = (f"{_quoted(topic)}: {streams}" for topic, streams in (self.streams_by_topic or {}).items())
            return f"{{ {','.join(pairs)} }}".encode()
        mark = _WHITE if self.topic_filter.white else _BLACK
        return f"{mark}{self.streams}{mark}{self.topic_filter.text}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "ClassicSubscription":
        """Read the data of a registry node, in any JSON spelling. Raises `ValueError`."""
        text = data.decode().strip()
        try:
            return _decode_filter(text) if text[:1] in (_WHITE, _BLACK) else cls.topics(_decode_topics(text))
        except ConfigError as error:
            raise ValueError(str(error)) from error


def _quoted(topic: str) -> str:
    return json.dumps(topic, ensure_ascii=False)


def _check_streams(streams: int) -> None:
    if not 1 <= streams <= STREAMS_MAX:
        raise ConfigError(f"a topic can have 1 to {STREAMS_MAX} streams in a consumer, not {streams}")


def _decode_filter(text: str) -> ClassicSubscription:
    mark = text[0]
    number, found, expression = text[1:].partition(mark)
    if not found:
        raise ValueError(f"{text[:100]!r} is not of the form {mark}streams{mark}expression")
    streams = layout.decode_number(number.encode(), "number of streams")
    return ClassicSubscription.filter(TopicFilter(expression, white=mark == _WHITE), streams)


def _decode_topics(text: str) -> dict[str, int]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:100]!r} is not a subscription: {error}") from error
    if not isinstance(value, dict) or not all(type(streams) is int for streams in value.values()):
        raise ValueError(f"{text[:100]!r} does not map topics to numbers of streams")
    return value
