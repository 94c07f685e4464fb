"""The interface of a plug-in that counts messages passing through a program that neither produces nor consumes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...ports.types import TopicPartition
from ..message.message import Message


class MessageCounter(Protocol):
    """Counts the messages of one stream. One thread; only `start` may wait. Times in ms since 1970."""

    def start(self, bootstrap: object) -> None:
        """Start counting; `bootstrap` is the cluster that gets the messages and the reports. Raises `BarnabasError`."""
        ...

    def reports(self, passed: Sequence[Message], positions: Mapping[TopicPartition, int]) -> Sequence[Message]:
        """Return messages, with their topics, to send together with those that `passed`, and again with each retry.

        `positions` are the positions in the source after these messages.
        """
        ...

    def unprobed(self, partitions: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the partitions of the source whose log end offsets are to be looked up now."""
        ...

    def probed(self, time_ms: int, ends: Mapping[TopicPartition, int], partitions: Mapping[str, int]) -> None:
        """Take the log end offsets at `time_ms` or later, and the partition count of each topic."""
        ...
