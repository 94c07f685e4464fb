"""What a user is told when the partitions of a group member change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition

PartitionsCallback = Callable[[list[TopicPartition]], object]


class RebalanceListener:
    """For `Consumer.subscribe`; override what you need. Called on the thread that asks the consumer for messages, while
    it asks, and on the one that calls `unsubscribe` or `close`. Methods may use the consumer, except to get messages.

    What they raise is raised to who asked, after the change itself has been carried out.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        """These came; nothing of them was handed out yet, `seek` and `pause` count from their first message on.

        Called after every rebalance that this member took part in, with an empty list if it got nothing new.
        """

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """These are about to go; they are still this member's, `commit` still counts for them."""

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """These have gone already, and others may read them; `commit` fails. By default as `on_revoked`."""
        self.on_revoked(partitions)


class CallableListener(RebalanceListener):
    """Functions in place of methods."""

    def __init__(
        self, assigned: PartitionsCallback | None, revoked: PartitionsCallback | None, lost: PartitionsCallback | None
    ) -> None:
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        _tell(self._assigned, partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        _tell(self._revoked, partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        _tell(self._lost, partitions)


def _tell(function: PartitionsCallback | None, partitions: Sequence[TopicPartition]) -> None:
    if function is not None:
        function(list(partitions))


def listener_of(
    listener: Any,
    assigned: PartitionsCallback | None,
    revoked: PartitionsCallback | None,
    lost: PartitionsCallback | None,
) -> RebalanceListener:
    """An object with the methods of a `RebalanceListener`, or functions. Raises `ConfigError` for both, or a misfit."""
    functions = CallableListener(assigned, revoked, lost)
    if listener is None:
        return functions
    if assigned or revoked or lost:
        raise ConfigError("give a listener, or on_assigned, on_revoked and on_lost, not both")
    missing = [name for name in ("on_assigned", "on_revoked", "on_lost") if not callable(getattr(listener, name, None))]
    if missing:
        raise ConfigError(f"the listener has no {missing[0]}: derive it from RebalanceListener")
    made: RebalanceListener = listener
    return made
