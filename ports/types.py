"""Types that every package shares."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""A logical record number within a partition (current generation), or a byte position (classic)."""

Position = NewType("Position", int)
"""A byte position within one file."""

Buffer = bytes | bytearray | memoryview


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
