"""A consumer of assigned partitions, as users see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...core.client.errors import ClientTimeout
from ...core.client.fetch_state import AtTime, FetcherSettings, PartitionState
from ...core.client.fetcher import Fetcher
from ...core.message.message import Message
from ...ports.broker_api import EARLIEST, LATEST
from ...ports.errors import BarnabasError, ConfigError
from ...ports.words import TopicPartition
from .consumer_places import Place, PlaceFinder, Position, start_at
from .consumer_reading import Ends, Reading
from .offsets import list_offsets
from .opening import first_error, open_shell, plugin_host
from .settings import ConsumerSettings, read_settings

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.client.serde import Decoder


class Consumer:
    """Reads the partitions it is assigned, ahead of its user. One thread at a time; `close` from any.

        with Consumer("localhost:9092") as consumer:
            consumer.assign("views", position="earliest")
            for message in consumer.messages(stop_at_end=True):
                print(message.value)

    bootstrap:            "host:port,host:port", or a running `Broker` of this process.
    decoder, key_decoder: names of plugins, or objects.
    plugins:              objects with hooks, modules or names of modules, besides the installed ones.
    config:               dotted names, Kafka's or 0.7's; `settings` are the same in snake case and win
                          (see `settings.ConsumerSettings`).

    Iterating the consumer itself is `messages()`. Raises `ConfigError`.
    """

    def __init__(
        self,
        bootstrap: object,
        *,
        decoder: str | Decoder | None = None,
        key_decoder: str | Decoder | None = None,
        plugins: Sequence[object] = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        names = {"decoder": decoder, "key_decoder": key_decoder}
        given = {name: thing for name, thing in names.items() if isinstance(thing, str)}
        self.settings = chosen = read_settings(ConsumerSettings, config, {**given, **settings})
        host = plugin_host(plugins)
        values = host.decoder(chosen.decoder) if decoder is None or isinstance(decoder, str) else decoder
        keys = host.decoder(chosen.key_decoder) if key_decoder is None or isinstance(key_decoder, str) else key_decoder
        self._shell = open_shell(bootstrap, chosen, allow_auto_create=chosen.allow_auto_create_topics)
        self._lock = self._shell.lock
        entropy = self._shell.connector.entropy
        self._fetcher = Fetcher(self._shell.view, entropy, _fetching(chosen), host.codecs())
        self._shell.add_part(self._fetcher)
        self._finder = PlaceFinder(
            self._shell, timeout_ms=chosen.default_api_timeout_ms, auto_create=chosen.allow_auto_create_topics
        )
        self._reading = Reading(self._shell, self._fetcher, values, keys)
        self._failure: BarnabasError | None = None

    # --- what to read

    def assign(
        self,
        what: str | Place | Iterable[str | Place],
        *,
        partitions: Iterable[int] | None = None,
        position: Position | None = None,
        timestamp_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Read these topics and partitions, and no others; returns the partitions.

        what:         a topic, a (topic, partition), or several; a topic stands for all of its `partitions` (None: all).
        position:     where to begin: an offset, "earliest" or "latest" (default: what `auto.offset.reset` says).
        timestamp_ms: begin at the first message of that time or later; at the end if there is none.

        Raises `ApiError` for a topic or partition that does not exist, `ClientTimeout`.
        """
        start = self._start(position, timestamp_ms)
        places = self._finder.places(what, partitions)
        with self._lock:
            self._fetcher.assign(dict.fromkeys(places, start))
            self._reading.drop()
            self._shell.wake()
        return places

    def subscribe(self, *_: object, **__: object) -> None:
        """Not there yet: raises `ConfigError`."""
        raise ConfigError("consumer groups are not there yet: use assign()")

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._fetcher.partitions)

    def seek(self, place: Place, position: Position) -> None:
        """Go on there: an offset, "earliest" or "latest". Raises `ConfigError` unless the partition is assigned."""
        self._seek({TopicPartition(*place): self._start(position, None)})

    def seek_to_time(self, timestamp_ms: int, places: Iterable[Place] | None = None) -> None:
        """Go on at the first message of that time or later, in all assigned partitions or in these."""
        chosen = self.assignment if places is None else [TopicPartition(*place) for place in places]
        self._seek(dict.fromkeys(chosen, AtTime(timestamp_ms)))

    def pause(self, *places: Place) -> None:
        """Hand out nothing of these (none given: all assigned) until `resume`; positions are kept."""
        self._set_paused(places, True)

    def resume(self, *places: Place) -> None:
        """Undo `pause`; also try again after an error of these partitions was raised."""
        self._set_paused(places, False)

    def position(self, place: Place, timeout: float | None = None) -> int:
        """The offset of the next message that the user gets; waits while it is being looked up.

        Raises `ClientTimeout`, or why the position cannot be told.
        """
        state = self._state(TopicPartition(*place))
        limit = self.settings.default_api_timeout_ms / 1000 if timeout is None else timeout
        with self._lock:
            if not self._shell.wait(lambda: state.read_offset >= 0 or state.stopped, limit) or state.read_offset < 0:
                raise state.last_error or ClientTimeout(f"no position of {state.place} within {limit} s")
            return state.read_offset

    # --- messages

    def messages(self, *, stop_at_end: bool = False, timeout: float | None = None) -> Iterator[Message]:
        """Messages for ever; with `stop_at_end` up to where the log ends now, of each partition.

        Ends when none came for `timeout` seconds (default `consumer.timeout.ms`; None and -1: wait for ever). Raises
        the `BarnabasError` of a partition that cannot be read; call again to read the others on, and that one after
        `seek` or `resume`.
        """
        limit = timeout
        if limit is None and self.settings.consumer_timeout_ms >= 0:
            limit = self.settings.consumer_timeout_ms / 1000
        ends = self._ends_now() if stop_at_end else None
        while True:
            yield from self._reading.rest(ends)
            if not self._next(limit, ends):
                return

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def poll(self, timeout: float = 0.0) -> Message | None:
        """The next message, or None if none comes within `timeout` seconds."""
        found = self.poll_many(1, timeout)
        return found[0] if found else None

    def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message]:
        """What is there, at most `max_messages` (`max.poll.records`); waits up to `timeout` s for the first."""
        wanted = self.settings.max_poll_records if max_messages is None else max_messages
        found: list[Message] = []
        try:
            while True:
                found += islice(self._reading.rest(None), wanted - len(found))
                if len(found) >= wanted:
                    return found
                if not self._next(0.0 if found else timeout, None):
                    break
        except BarnabasError as error:
            if not found:
                raise
            self._failure = error  # the next call raises it
        return found

    @property
    def buffered(self) -> bool:
        """True if the next message is there without waiting."""
        return self._reading.holds or any(
            state.chunks and not state.paused for state in self._fetcher.partitions.values()
        )

    # --- offsets

    def beginning_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition (None: the assigned ones). Raises `ApiError`, `ClientTimeout`."""
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

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """True when the user has got everything before these offsets, of the partitions that are not paused."""
        with self._lock:
            return self._reading.at(ends)

    def close(self) -> None:
        """Stop fetching and hang up; whoever iterates gets `ClosedError`. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside

    def _next(self, timeout: float | None, ends: Ends | None) -> bool:
        """Have the next chunk in hand. False when the time is over, or all ends are reached. Raises a chunk's error."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        reading = self._reading
        took = False

        def came() -> bool:
            nonlocal took
            if ends is not None and reading.at(ends):
                return True
            took = reading.take()
            return took

        with self._lock:
            if not self._fetcher.partitions:
                raise ConfigError("nothing is assigned: call assign() first")
            self._shell.wait(came, timeout)
        return took

    def _start(self, position: Position | None, timestamp_ms: int | None) -> AtTime | int:
        start = start_at(position, timestamp_ms)
        if start is not None:
            return start
        reset = self.settings.auto_offset_reset.value
        if not reset:
            raise ConfigError("auto.offset.reset is none: say where to begin, with position= or timestamp_ms=")
        return AtTime(reset)

    def _ends_now(self) -> dict[TopicPartition, int]:
        return self._offsets(None, LATEST)

    def _offsets(self, places: Iterable[Place] | None, timestamp: int) -> dict[TopicPartition, int]:
        asked = self.assignment if places is None else [TopicPartition(*place) for place in places]
        answers = list_offsets(self._shell, [(place, timestamp) for place in asked], self.settings.isolation_level)
        first_error(answers)
        return {place: answer.offset for place, answer in zip(asked, answers, strict=True)}

    def _state(self, place: TopicPartition) -> PartitionState:
        state = self._fetcher.partitions.get(place)
        if state is None:
            raise ConfigError(f"{place} is not assigned")
        return state

    def _seek(self, positions: Mapping[TopicPartition, AtTime | int]) -> None:
        for place in positions:
            self._state(place)
        with self._lock:
            for place, position in positions.items():
                self._fetcher.seek(place, position)
            self._reading.drop(positions)
            self._shell.wake()

    def _set_paused(self, places: Sequence[Place], paused: bool) -> None:
        chosen = [TopicPartition(*place) for place in places] or self.assignment
        for place in chosen:
            self._state(place)
        with self._lock:
            self._fetcher.pause(chosen, paused)
            self._reading.put_aside()
            self._shell.wake()


def _fetching(chosen: ConsumerSettings) -> FetcherSettings:
    return FetcherSettings(
        min_bytes=chosen.fetch_min_bytes,
        max_wait_ms=chosen.fetch_max_wait_ms,
        max_bytes=chosen.fetch_max_bytes,
        max_partition_bytes=chosen.max_partition_fetch_bytes,
        isolation_level=chosen.isolation_level,
        reset=chosen.auto_offset_reset,
        check_crc=chosen.check_crcs,
        retry_backoff_ms=chosen.retry_backoff_ms,
        retry_backoff_max_ms=chosen.retry_backoff_max_ms,
    )
