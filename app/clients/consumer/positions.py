"""The positions of a consumer in its partitions, and the beginning and end offsets of those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....core.client.arguments import as_topic_partition, check_offset
from ....core.client.consumer.fetcher import Fetcher
from ....core.client.consumer.subscription_state import AtOffset, AtTime, StartPosition, TopicPartitionState
from ....core.client.errors import ClientTimeout
from ....core.client.group.events import CommittedOffset
from ....core.message.message import Message
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ..shared.client_shell import ClientShell
from ..shared.connect import first_error
from ..shared.list_offsets import list_offsets
from ..shared.settings import ConsumerSettings
from .fetch_buffer import FetchBuffer
from .partition_finder import Place


class ConsumerPositions:
    """Returns and changes the positions of one consumer. `Consumer` documents the methods without a text here."""

    def __init__(self, shell: ClientShell, fetcher: Fetcher, reading: FetchBuffer, settings: ConsumerSettings) -> None:
        self._shell = shell
        self._fetcher = fetcher
        self._reading = reading
        self._settings = settings

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._fetcher.partitions)

    def position(self, place: Place, timeout: float | None = None) -> int:
        state = self.state(as_topic_partition(place))
        limit = self.limit_s(timeout)
        with self._shell.lock:
            if not self._shell.wait(lambda: state.read_offset >= 0 or state.stopped, limit) or state.read_offset < 0:
                raise state.last_error or ClientTimeout(
                    f"no position of {state.tp} within {limit} s{self._fetcher.why(state)}"
                )
            return state.read_offset

    def lag(self, places: Iterable[Place] | None = None, timeout: float | None = None) -> dict[TopicPartition, int]:
        chosen = self.chosen(places)
        positions = {place: self.position(place, timeout) for place in chosen}
        ends = {place: self.state(place).end_offset for place in chosen}
        ends |= self.end_offsets([place for place in chosen if ends[place] < 0])
        return {place: max(0, ends[place] - positions[place]) for place in chosen}

    def beginning_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        return self._offsets(places, EARLIEST)

    def end_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        return self._offsets(places, LATEST)

    def offsets_for_times(self, times: Mapping[Place, int]) -> dict[TopicPartition, int | None]:
        asked = {as_topic_partition(place): time for place, time in times.items()}
        for time in asked.values():
            check_offset(time, "time")
        answers = list_offsets(self._shell, list(asked.items()), self._settings.isolation_level)
        first_error(answers)
        return {
            place: answer.offset if answer.offset >= 0 else None for place, answer in zip(asked, answers, strict=True)
        }

    def high_watermark(self, place: Place) -> int:
        return self.state(as_topic_partition(place)).high_watermark

    def seek(self, positions: Mapping[TopicPartition, StartPosition]) -> None:
        """Continue reading at these positions. Raises `ConfigError` for partitions that are not assigned."""
        for place in positions:
            self.state(place)
        with self._shell.lock:
            for place, position in positions.items():
                self._fetcher.seek(place, position)
            self._reading.drop(positions)
            self._shell.wake()

    def pause(self, places: Sequence[Place], paused: bool) -> None:
        """Pause or resume these partitions (none named: all assigned). Raises `ConfigError` for unassigned ones."""
        chosen = [as_topic_partition(place) for place in places] or self.assignment
        for place in chosen:
            self.state(place)
        with self._shell.lock:
            self._fetcher.pause(chosen, paused)
            self._reading.suspend_current()
            self._shell.wake()

    def _offsets(self, places: Iterable[Place] | None, timestamp: int) -> dict[TopicPartition, int]:
        asked = self.chosen(places)
        answers = list_offsets(self._shell, [(place, timestamp) for place in asked], self._settings.isolation_level)
        first_error(answers)
        return {place: answer.offset for place, answer in zip(asked, answers, strict=True)}

    def chosen(self, places: Iterable[Place] | None) -> list[TopicPartition]:
        """Return these partitions, or all assigned ones (None)."""
        return self.assignment if places is None else [as_topic_partition(place) for place in places]

    def state(self, place: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition. Raises `ConfigError` if it is not assigned."""
        state = self._fetcher.partitions.get(place)
        if state is None:
            raise ConfigError(f"{place} is not assigned")
        return state

    def limit_s(self, timeout: float | None) -> float:
        """Return the time to wait for the cluster, in seconds: `timeout`, or `default.api.timeout.ms` for None."""
        return self._settings.default_api_timeout_ms / 1000 if timeout is None else timeout


def offsets_to_commit(
    what: Any, positions: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit for a message, messages, or partition → offset. Raises `ConfigError`.

    `positions` supplies leader epochs and topic ids.
    """
    if isinstance(what, Mapping):
        return {as_topic_partition(place): _committed(position) for place, position in what.items()}
    messages = [what] if isinstance(what, Message) else list(what)
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        if not isinstance(message, Message) or message.offset < 0:
            raise ConfigError(
                f"commit() takes messages that were received, or partition → offset, not {message!r:.100}"
            )
        place = as_topic_partition((message.topic, message.partition))
        offsets[place] = max(message.offset + 1, offsets.get(place, 0))
    return {place: _position_at(offset, positions.get(place)) for place, offset in offsets.items()}


def _position_at(offset: int, now: CommittedOffset | None) -> CommittedOffset:
    """Return the position after a message, of the topic that is read `now`."""
    if now is None:
        return CommittedOffset(offset)
    return now if now.offset == offset else CommittedOffset(offset, topic_id=now.topic_id)


def _committed(position: Any) -> CommittedOffset:
    """Convert an offset, a `CommittedOffset`, or another library's class that looks like one. Raises `ConfigError`."""
    if isinstance(position, CommittedOffset):
        made = position
    elif isinstance(position, int) and not isinstance(position, bool):
        made = CommittedOffset(position)
    elif isinstance(getattr(position, "offset", None), int):
        epoch = getattr(position, "leader_epoch", None)
        made = CommittedOffset(position.offset, -1 if epoch is None else epoch, getattr(position, "metadata", "") or "")
    else:
        raise ConfigError(f"{position!r:.100} is not an offset that can be committed")
    check_offset(made.offset)
    check_offset(made.leader_epoch, "leader epoch")
    if not isinstance(made.metadata, str):
        raise TypeError(f"metadata of an offset: expected str, got {type(made.metadata).__name__}")
    if made.offset < 0:
        raise ConfigError(f"offset {made.offset} cannot be committed: it must be >= 0")
    return made


def committed_or_reset(
    places: Sequence[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset | None], reset: int
) -> dict[TopicPartition, StartPosition]:
    """Return start positions: the committed offset, else the time `reset`. Raises `ConfigError` if that is 0 (none)."""
    starts: dict[TopicPartition, StartPosition] = {}
    for place in places:
        at = committed.get(place)
        if at is None and not reset:
            raise ConfigError("auto.offset.reset is none: say where to begin, with position= or timestamp_ms=")
        starts[place] = AtTime(reset) if at is None else AtOffset(at.offset, at.leader_epoch)
    return starts
