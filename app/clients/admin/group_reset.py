"""The reset of a group's offsets: the request, and the new offset of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen

_POSITIONS = {"earliest": EARLIEST, "latest": LATEST}


@frozen(kw_only=True)
class OffsetChange:
    """The committed offset of a group in one partition, before (None: none) and after a reset, and the log's range."""

    topic: str
    partition: int
    before: int | None
    after: int
    log_start_offset: int
    log_end_offset: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def lag(self) -> int:
        """The number of messages left to read after the reset, about."""
        return self.log_end_offset - self.after


@frozen(kw_only=True)
class ResetTo:
    """The target of a reset, exactly one of: a time (ms, EARLIEST or LATEST), an offset, a shift."""

    timestamp_ms: int | None = None
    offset: int | None = None
    shift: int | None = None

    @classmethod
    def of(
        cls,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        offset: int | None = None,
        shift: int | None = None,
    ) -> ResetTo:
        """Make the target. Raises `ConfigError` unless exactly one argument is given, and is valid."""
        given = [value for value in (to, timestamp_ms, offset, shift) if value is not None]
        if len(given) != 1:
            raise ConfigError("say where to reset to: exactly one of to, timestamp_ms, offset and shift")
        if to is not None and to not in _POSITIONS:
            raise ConfigError(f"to={to!r}: give earliest or latest, or timestamp_ms, offset or shift")
        if timestamp_ms is not None and timestamp_ms < 0:
            raise ConfigError(f"timestamp_ms={timestamp_ms}: give milliseconds since 1970")
        if offset is not None and offset < 0:
            raise ConfigError(f"offset={offset}: offsets begin at 0")
        return cls(timestamp_ms=_POSITIONS[to] if to is not None else timestamp_ms, offset=offset, shift=shift)


def planned(
    wanted: ResetTo,
    places: Sequence[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> list[OffsetChange]:
    """Return the change of each partition, limited to the log's range.

    `at_time`: the offsets of a wanted time, -1 = no message is that late. Raises `ConfigError` for a shift without a
    committed offset.
    """

    def target(place: TopicPartition) -> int:
        if wanted.timestamp_ms is not None:
            found = at_time[place]
            return found if found >= 0 else end[place]
        if wanted.offset is not None:
            return wanted.offset
        if place not in committed:
            raise ConfigError(f"the group has no position in {place} to move from; reset it to earliest or latest")
        return committed[place] + (wanted.shift or 0)

    return [
        OffsetChange(
            topic=place.topic,
            partition=place.partition,
            before=committed.get(place),
            after=min(max(target(place), first[place]), end[place]),
            log_start_offset=first[place],
            log_end_offset=end[place],
        )
        for place in places
    ]
