"""What a consumer can tell of offsets: its own, and those of the logs it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.client.consumer.fetch_state import AssignedPartition
from ...core.client.consumer.fetcher import Fetcher
from ...core.client.errors import ClientTimeout
from ...core.client.group.events import CommittedOffset
from ...core.message.damage import Damage
from ...core.message.message import Message
from ...ports.broker_api import EARLIEST, LATEST
from ...ports.errors import ConfigError
from ...ports.words import TopicPartition
from .consumer_partitions import Place
from .consumer_reading import Reading
from .offsets import list_offsets
from .opening import first_error
from .settings import ConsumerSettings
from .shell import ClientShell


class OffsetQueries:
    """The questions about offsets that a `Consumer` answers. Raise `ApiError`, `ClientTimeout`."""

    settings: ConsumerSettings
    _shell: ClientShell
    _fetcher: Fetcher
    _reading: Reading

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._fetcher.partitions)

    @property
    def damaged(self) -> Sequence[Damage]:
        """The offsets left out so far, since their records are damaged; empty unless `skip.damaged` is true."""
        return tuple(self._reading.damaged)

    def position(self, place: Place, timeout: float | None = None) -> int:
        """The offset of the next message that the user gets; waits while it is being looked up.

        Raises `ClientTimeout`, or why the position cannot be told.
        """
        state = self._state(TopicPartition(*place))
        limit = self._limit(timeout)
        with self._shell.lock:
            if not self._shell.wait(lambda: state.read_offset >= 0 or state.stopped, limit) or state.read_offset < 0:
                raise state.last_error or ClientTimeout(f"no position of {state.place} within {limit} s")
            return state.read_offset

    def lag(self, places: Iterable[Place] | None = None, timeout: float | None = None) -> dict[TopicPartition, int]:
        """How far each partition (None: the assigned ones) is behind its end, in offsets.

        The end is what the last fetch told, which costs nothing, and is looked up before the first one. A consumer that
        reads committed messages only is at the end when it has those. A paused partition is not fetched: ask
        `end_offsets`.
        """
        chosen = self._chosen(places)
        positions = {place: self.position(place, timeout) for place in chosen}
        ends = {place: self._state(place).end_offset for place in chosen}
        ends |= self.end_offsets([place for place in chosen if ends[place] < 0])
        return {place: max(0, ends[place] - positions[place]) for place in chosen}

    def beginning_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition (None: the assigned ones)."""
        return self._offsets(places, EARLIEST)

    def end_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        """The offset after the last message of each partition (None: the assigned ones)."""
        return self._offsets(places, LATEST)

    def offsets_for_times(self, times: Mapping[Place, int]) -> dict[TopicPartition, int | None]:
        """Per partition the offset of the first message of that time (ms) or later; None if there is none."""
        asked = {TopicPartition(*place): time for place, time in times.items()}
        answers = list_offsets(self._shell, list(asked.items()), self.settings.isolation_level)
        first_error(answers)
        return {
            place: answer.offset if answer.offset >= 0 else None for place, answer in zip(asked, answers, strict=True)
        }

    def high_watermark(self, place: Place) -> int:
        """The end of the partition as the last fetch told it; -1 before the first."""
        return self._state(TopicPartition(*place)).high_watermark

    def _offsets(self, places: Iterable[Place] | None, timestamp: int) -> dict[TopicPartition, int]:
        asked = self._chosen(places)
        answers = list_offsets(self._shell, [(place, timestamp) for place in asked], self.settings.isolation_level)
        first_error(answers)
        return {place: answer.offset for place, answer in zip(asked, answers, strict=True)}

    def _chosen(self, places: Iterable[Place] | None) -> list[TopicPartition]:
        return self.assignment if places is None else [TopicPartition(*place) for place in places]

    def _state(self, place: TopicPartition) -> AssignedPartition:
        state = self._fetcher.partitions.get(place)
        if state is None:
            raise ConfigError(f"{place} is not assigned")
        return state

    def _limit(self, timeout: float | None) -> float:
        """In seconds."""
        return self.settings.default_api_timeout_ms / 1000 if timeout is None else timeout


def offsets_to_commit(
    what: Any, positions: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """From a message, messages, or partition → offset; `positions` tell the epochs. Raises `ConfigError`."""
    if isinstance(what, Mapping):
        return {TopicPartition(*place): _committed(position) for place, position in what.items()}
    messages = [what] if isinstance(what, Message) else list(what)
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        if not isinstance(message, Message) or message.offset < 0:
            raise ConfigError(
                f"commit() takes messages that were received, or partition → offset, not {message!r:.100}"
            )
        place = TopicPartition(message.topic, message.partition)
        offsets[place] = max(message.offset + 1, offsets.get(place, 0))
    return {
        place: positions[place] if place in positions and positions[place].offset == offset else CommittedOffset(offset)
        for place, offset in offsets.items()
    }


def _committed(position: Any) -> CommittedOffset:
    """An offset, a `CommittedOffset`, or what looks like one in another library."""
    if isinstance(position, CommittedOffset):
        return position
    if isinstance(position, int) and not isinstance(position, bool):
        made = CommittedOffset(position)
    elif isinstance(getattr(position, "offset", None), int):
        epoch = getattr(position, "leader_epoch", None)
        made = CommittedOffset(position.offset, -1 if epoch is None else epoch, getattr(position, "metadata", "") or "")
    else:
        raise ConfigError(f"{position!r:.100} is no offset to commit")
    if made.offset < 0:
        raise ConfigError(f"offset {made.offset} cannot be committed: it is 0 or more")
    return made
