"""The callbacks of a user when the partitions of a group member change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition

PartitionsCallback = Callable[[list[TopicPartition]], object]


class RebalanceListener:
    """A listener for `Consumer.subscribe`; override the methods that you need.

    They run on the thread that asks the consumer for messages, while it asks, and on the thread that calls
    `unsubscribe` or `close`. They may use the consumer, except to get messages. An exception of theirs is raised to
    that thread, after the change itself has been carried out.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        """Called with new partitions before their first message is handed out: `seek` and `pause` apply from there.

        The consumer calls it after every rebalance of this member, with an empty list if it got nothing new.
        """

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Called before partitions are revoked: they still belong to this member, and `commit` still works."""

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """Called after partitions were lost: other members may read them, and `commit` fails. Calls `on_revoked`."""
        self.on_revoked(partitions)


class CallableListener(RebalanceListener):
    """A listener of functions; without a function for lost partitions, the one for revoked ones is called."""

    def __init__(
        self, assigned: PartitionsCallback | None, revoked: PartitionsCallback | None, lost: PartitionsCallback | None
    ) -> None:
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        _call(self._assigned, partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        _call(self._revoked, partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        _call(self._lost, partitions)


def _call(function: PartitionsCallback | None, partitions: Sequence[TopicPartition]) -> None:
    if function is not None:
        function(list(partitions))


def listener_of(
    listener: Any,
    assigned: PartitionsCallback | None,
    revoked: PartitionsCallback | None,
    lost: PartitionsCallback | None,
) -> RebalanceListener:
    """Return the listener: the given object, or one of the functions or of another library's methods.

    Raises `ConfigError` if both are given, or if the object lacks a method of `RebalanceListener`.
    """
    if listener is None:
        return CallableListener(assigned, revoked, lost)
    if assigned or revoked or lost:
        raise ConfigError("give a listener, or on_assigned, on_revoked and on_lost, not both")
    if callable(getattr(listener, "on_partitions_assigned", None)):  # kafka-python's and aiokafka's names
        lost_too = getattr(listener, "on_partitions_lost", None)
        return CallableListener(listener.on_partitions_assigned, listener.on_partitions_revoked, lost_too)
    missing = [name for name in ("on_assigned", "on_revoked", "on_lost") if not callable(getattr(listener, name, None))]
    if missing:
        raise ConfigError(f"the listener has no {missing[0]}: derive it from RebalanceListener")
    made: RebalanceListener = listener
    return made
