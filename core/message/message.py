"""One message, as a user sends and receives it."""

from typing import NamedTuple

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record of a topic. Only the value is needed to send one; a None value is a tombstone on compacted topics.

    `timestamp_ms` None means "now" when sent. Topic, partition, offset and timestamp type are set on received messages.
    A named tuple, not an attrs class: a reader makes millions of them, and `tuple.__new__` over `zip` runs in C.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp_type: str = CREATE_TIME
