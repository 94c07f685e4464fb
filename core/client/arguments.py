"""Checks of what users give to a client: an error at the call, in place of one on the client's own thread."""

from operator import index

from ...ports.types import TopicPartition

TOPIC_BYTES_MAX = 32_767
"""The protocol counts the bytes of a text with 15 bits. Which names a cluster allows is for its brokers to say."""
PARTITION_MAX = 2**31 - 1


def check_topic(topic: object) -> None:
    """Raise `TypeError` or `ValueError` unless a request can carry this name of a topic."""
    if not isinstance(topic, str):
        raise TypeError(f"topic: expected str, got {type(topic).__name__} ({topic!r:.80})")
    if not topic:
        raise ValueError("topic: the name is empty")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {topic!r:.80}: {error}") from error
    if size > TOPIC_BYTES_MAX:
        raise ValueError(f"topic {topic[:40]!r}...: {size} bytes are more than a name can have")


def whole_number(given: object, what: str) -> int:
    """The number. Raises `TypeError` unless it is a whole one."""
    try:
        return index(given)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        raise TypeError(f"{what}: expected int, got {type(given).__name__} ({given!r:.80})") from None


def check_offset(offset: object, what: str = "offset") -> None:
    """Raise `TypeError` unless this is a whole number, `ValueError` for one that the protocol cannot carry."""
    number = whole_number(offset, what)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{what} {number}: it has at most 64 bits")


def checked_partition_number(partition: object) -> int:
    """The number of a partition. Raises `TypeError`, `ValueError`."""
    number = whole_number(partition, "partition")
    if not 0 <= number <= PARTITION_MAX:
        raise ValueError(f"partition {number}: expected 0 or more")
    return number


def as_topic_partition(given: object) -> TopicPartition:
    """A pair of topic and partition. Raises `TypeError`, `ValueError`."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"expected a pair (topic, partition), got {given!r:.80}")
    check_topic(given[0])
    return TopicPartition(given[0], checked_partition_number(given[1]))
