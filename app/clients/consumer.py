"""A consumer of assigned partitions, as users see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...core.client.errors import ClientTimeout, EncodeError
from ...core.client.fetch_state import AtTime, Chunk, FetcherSettings, PartitionState
from ...core.client.fetcher import Fetcher
from ...core.message.message import Message
from ...plugins.builtin.encoders import BytesSerde
from ...ports.broker_api import EARLIEST, LATEST
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.words import TopicPartition
from .offsets import list_offsets
from .opening import first_error, open_shell, plugin_host
from .settings import ConsumerSettings, read_settings

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.client.serde import Decoder

_NAMED = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}
_NO_END = 2**63
Position = str | int
"""An offset, or "earliest" or "latest"."""
Place = TopicPartition | tuple[str, int]


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
        self._decoder = host.decoder(chosen.decoder) if decoder is None or isinstance(decoder, str) else decoder
        self._key_decoder = (
            host.decoder(chosen.key_decoder) if key_decoder is None or isinstance(key_decoder, str) else key_decoder
        )
        self._plain = type(self._decoder) is BytesSerde and type(self._key_decoder) is BytesSerde
        self._shell = open_shell(bootstrap, chosen, allow_auto_create=chosen.allow_auto_create_topics)
        self._lock = self._shell.lock
        entropy = self._shell.connector.entropy
        self._fetcher = Fetcher(self._shell.view, entropy, _fetching(chosen), host.codecs())
        self._shell.add_part(self._fetcher)
        self._current: Iterator[Message] = iter(())
        self._current_state: PartitionState | None = None
        self._current_chunk: Chunk | None = None
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
        places = self._places(what, partitions)
        with self._lock:
            self._fetcher.assign(dict.fromkeys(places, start))
            self._drop_current()
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
            yield from self._rest(ends)
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
                found += islice(self._rest(None), wanted - len(found))
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
        return self._current_chunk is not None or any(
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
            return self._at_end(ends)

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

    def _rest(self, ends: Mapping[TopicPartition, int] | None) -> Iterator[Message]:
        """What is left of the chunk in hand."""
        chunk, state = self._current_chunk, self._current_state
        if chunk is None or state is None:
            return
        end = _NO_END if ends is None else ends.get(chunk.place, _NO_END)
        plain = self._plain
        try:
            for message in self._current:
                offset = message.offset
                if offset >= end:
                    self._seek({chunk.place: offset})
                    return
                state.read_offset = offset + 1
                yield message if plain else self._decoded(message)
                if self._current_chunk is not chunk:  # the user has gone elsewhere meanwhile
                    return
        except ApiError as error:
            self._stop_at(state, error)
            raise
        state.read_offset = max(state.read_offset, chunk.next_offset)
        self._drop_current()

    def _next(self, timeout: float | None, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Take the next chunk in hand. False when the time is over, or all ends are reached. Raises a chunk's error."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        found: list[Chunk] = []

        def came() -> bool:
            if found or (ends is not None and self._at_end(ends)):
                return True
            chunk = self._fetcher.next_chunk()
            if chunk is not None:
                found.append(chunk)
            return bool(found)

        with self._lock:
            if not self._fetcher.partitions:
                raise ConfigError("nothing is assigned: call assign() first")
            self._shell.wait(came, timeout)
            if not found:
                return False
            chunk = found[0]
            self._shell.wake()
        if chunk.error is not None:
            raise chunk.error
        self._current_chunk = chunk
        self._current_state = self._fetcher.partitions[chunk.place]
        self._current = iter(chunk.messages)
        return True

    def _at_end(self, ends: Mapping[TopicPartition, int]) -> bool:
        for place, end in ends.items():
            state = self._fetcher.partitions.get(place)
            if state is None or state.paused:
                continue
            if state.read_offset < end and not (state.stopped and not state.chunks):
                return False
        return True

    def _stop_at(self, state: PartitionState, error: BarnabasError) -> None:
        """A batch cannot be read: nothing is skipped in silence, `resume` tries it again, `seek` goes past it."""
        with self._lock:
            state.jump(None, state.read_offset)
            state.last_error = error
            state.stopped = True
            self._drop_current()

    def _decoded(self, message: Message) -> Message:
        try:
            return message._replace(
                value=self._decoder.decode(message.topic, message.value),
                key=self._key_decoder.decode(message.topic, message.key),
            )
        except Exception as error:
            where = f"{message.topic}-{message.partition} offset {message.offset}"
            raise EncodeError(f"the message at {where} cannot be decoded: {error}") from error

    def _start(self, position: Position | None, timestamp_ms: int | None) -> AtTime | int:
        if position is not None and timestamp_ms is not None:
            raise ConfigError("give a position or a timestamp_ms, not both")
        if timestamp_ms is not None:
            return AtTime(timestamp_ms)
        if position is None:
            reset = self.settings.auto_offset_reset.value
            if not reset:
                raise ConfigError("auto.offset.reset is none: say where to begin, with position= or timestamp_ms=")
            return AtTime(reset)
        if isinstance(position, str):
            if position not in _NAMED:
                raise ConfigError(f"position {position!r}: give an offset, earliest or latest")
            return AtTime(_NAMED[position])
        if position < 0:
            raise ConfigError(f"position {position}: an offset is 0 or more")
        return position

    def _places(
        self, what: str | Place | Iterable[str | Place], partitions: Iterable[int] | None
    ) -> list[TopicPartition]:
        chosen = None if partitions is None else list(partitions)
        several: Iterable[str | Place] = [what] if isinstance(what, str) or _is_place(what) else what  # type: ignore[list-item, assignment]  # _is_place tells
        places: list[TopicPartition] = []
        for each in several:
            if not isinstance(each, str):
                places.append(TopicPartition(*each))
                self._count(places[-1].topic, places[-1].partition)
                continue
            count = self._count(each, max(chosen) if chosen else 0)
            places += [TopicPartition(each, p) for p in (range(count) if chosen is None else chosen)]
        if not places:
            raise ConfigError("assign at least one partition")
        return list(dict.fromkeys(places))

    def _count(self, topic: str, largest: int) -> int:
        """How many partitions the topic has. Raises `ApiError` when `largest` is not one of them."""
        view, limit = self._shell.view, self.settings.default_api_timeout_ms / 1000

        def told() -> bool:
            error = view.topic_errors.get(topic)
            missing = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self.settings.allow_auto_create_topics
            return view.topic(topic) is not None or (error is not None and (missing or not error.retriable))

        with self._lock:
            view.want([topic])
            self._shell.wake()
            known = self._shell.wait(told, limit)
            found, error = view.topic(topic), view.topic_errors.get(topic)
            if found is None:
                view.forget(topic)
        if found is None:
            if error is not None:
                raise ApiError(error, f"topic {topic}")
            why = "" if known or view.last_error is None else f"; last: {view.last_error}"
            raise ClientTimeout(f"no metadata of topic {topic} within {limit} s{why}")
        count = len(found.leaders)
        if not 0 <= largest < count:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions, no {largest}")
        return count

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
                if self._current_chunk is not None and self._current_chunk.place == place:
                    self._drop_current()
            self._shell.wake()

    def _set_paused(self, places: Sequence[Place], paused: bool) -> None:
        chosen = [TopicPartition(*place) for place in places] or self.assignment
        for place in chosen:
            self._state(place)
        with self._lock:
            self._fetcher.pause(chosen, paused)
            self._shell.wake()

    def _drop_current(self) -> None:
        self._current_chunk = self._current_state = None
        self._current = iter(())


def _is_place(what: object) -> bool:
    return isinstance(what, tuple) and len(what) == 2 and isinstance(what[0], str) and isinstance(what[1], int)


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
