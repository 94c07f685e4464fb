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
from .partition_finder import TopicPartitionLike


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

    def position(self, place: TopicPartitionLike, timeout: float | None = None) -> int:
        state = self.state(as_topic_partition(place))
        limit = self.limit_s(timeout)
        with self._shell.lock:
            if not self._shell.wait(lambda: state.read_offset >= 0 or state.stopped, limit) or state.read_offset < 0:
                raise state.last_error or ClientTimeout(
                    f"no position of {state.tp} within {limit} s{self._fetcher.why(state)}"
                )
            return state.read_offset

    def lag(
        self, places: Iterable[TopicPartitionLike] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        chosen = self.chosen(places)
        positions = {tp: self.position(tp, timeout) for tp in chosen}
        ends = {tp: self.state(tp).end_offset for tp in chosen}
        ends |= self.end_offsets([tp for tp in chosen if ends[tp] < 0])
        return {tp: max(0, ends[tp] - positions[tp]) for tp in chosen}

    def beginning_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        return self._offsets(places, EARLIEST)

    def end_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        return self._offsets(places, LATEST)

    def offsets_for_times(self, times: Mapping[TopicPartitionLike, int]) -> dict[TopicPartition, int | None]:
        asked = {as_topic_partition(tp): time for tp, time in times.items()}
        for time in asked.values():
            check_offset(time, "time")
        answers = list_offsets(self._shell, list(asked.items()), self._settings.isolation_level)
        first_error(answers)
        return {tp: answer.offset if answer.offset >= 0 else None for tp, answer in zip(asked, answers, strict=True)}

    def high_watermark(self, place: TopicPartitionLike) -> int:
        return self.state(as_topic_partition(place)).high_watermark

    def seek(self, positions: Mapping[TopicPartition, StartPosition]) -> None:
        """Continue reading at these positions. Raises `ConfigError` for partitions that are not assigned."""
        for tp in positions:
            self.state(tp)
        with self._shell.lock:
            for tp, position in positions.items():
                self._fetcher.seek(tp, position)
            self._reading.drop(positions)
            self._shell.wake()

    def pause(self, places: Sequence[TopicPartitionLike], paused: bool) -> None:
        """Pause or resume these partitions (none named: all assigned). Raises `ConfigError` for unassigned ones."""
        chosen = [as_topic_partition(tp) for tp in places] or self.assignment
        for tp in chosen:
            self.state(tp)
        with self._shell.lock:
            self._fetcher.pause(chosen, paused)
            self._reading.suspend_current()
            self._shell.wake()

    def _offsets(self, places: Iterable[TopicPartitionLike] | None, timestamp: int) -> dict[TopicPartition, int]:
        asked = self.chosen(places)
        answers = list_offsets(self._shell, [(tp, timestamp) for tp in asked], self._settings.isolation_level)
        first_error(answers)
        return {tp: answer.offset for tp, answer in zip(asked, answers, strict=True)}

    def chosen(self, places: Iterable[TopicPartitionLike] | None) -> list[TopicPartition]:
        """Return these partitions, or all assigned ones (None)."""
        return self.assignment if places is None else [as_topic_partition(tp) for tp in places]

    def state(self, tp: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition. Raises `ConfigError` if it is not assigned."""
        state = self._fetcher.partitions.get(tp)
        if state is None:
            raise ConfigError(f"{tp} is not assigned")
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
        return {as_topic_partition(tp): _committed(position) for tp, position in what.items()}
    messages = [what] if isinstance(what, Message) else list(what)
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        if not isinstance(message, Message) or message.offset < 0:
            raise ConfigError(
                f"commit() takes messages that were received, or partition → offset, not {message!r:.100}"
            )
        tp = as_topic_partition((message.topic, message.partition))
        offsets[tp] = max(message.offset + 1, offsets.get(tp, 0))
    return {tp: _position_at(offset, positions.get(tp)) for tp, offset in offsets.items()}


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
    partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset | None], reset: int
) -> dict[TopicPartition, StartPosition]:
    """Return start positions: the committed offset, else the time `reset`. Raises `ConfigError` if that is 0 (none)."""
    starts: dict[TopicPartition, StartPosition] = {}
    for tp in partitions:
        at = committed.get(tp)
        if at is None and not reset:
            raise ConfigError("auto.offset.reset is none: say where to begin, with position= or timestamp_ms=")
        starts[tp] = AtTime(reset) if at is None else AtOffset(at.offset, at.leader_epoch)
    return starts
