"""Counting messages on their way through a program that is neither their producer nor their consumer: a plug-in's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...ports.types import TopicPartition
from ..message.message import Message


class MessageCounter(Protocol):
    """Counts the messages of one stream. One thread; only `start` may wait. Times in ms since 1970."""

    def start(self, bootstrap: object) -> None:
        """It begins; `bootstrap` is where the messages and the reports go. Raises `BarnabasError`."""
        ...

    def reports(self, passed: Sequence[Message], positions: Mapping[TopicPartition, int]) -> Sequence[Message]:
        """Messages (their topics are set) to be sent together with those that pass, and again with each try.

        `positions` are where their source is read up to, these messages included.
        """
        ...

    def unprobed(self, places: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """Partitions of the source of which the ends are to be looked up now."""
        ...

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int], partitions: Mapping[str, int]) -> None:
        """They ended there, at this time or later; so many partitions the topics have."""
        ...
