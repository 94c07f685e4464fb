"""The path of messages from the fetcher to the user's thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ....core.client.consumer.subscription_state import (
    AtOffset,
    AtTime,
    CompletedFetch,
    MessageRun,
    TopicPartitionState,
)
from ....core.client.errors import DecodeError
from ....core.message.batch_header import BatchHeader
from ....core.message.batch_reader import BatchMessages
from ....core.message.corrupt_record import CorruptRecord, Damage, is_damage
from ....core.message.message import Message
from ....plugins.builtin.encoders import BytesSerde
from ....ports.broker_api.offsets import EARLIEST
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ....ports.values import define
from ..shared.blocking_shell import logger

if TYPE_CHECKING:
    from ....core.client.consumer.fetcher import Fetcher
    from ....core.client.serde import Decoder
    from ..arrow.tables import GatheredRows
    from ..shared.client_shell import ClientShell

NO_END = 2**63
Ends = Mapping[TopicPartition, int]
"""The ends of reading: for each partition the offset after the last wanted message."""


@define(eq=False)
class _CurrentFetch:
    """The completed fetch that the user reads now, and its remaining messages."""

    completed_fetch: CompletedFetch
    state: TopicPartitionState
    runs: Iterator[BatchMessages]
    run: MessageRun | None = None
    beyond: int = -1
    """The offset of the first message beyond the end of reading, if it was fetched."""


class FetchBuffer:
    """Hands out the messages of the completed fetches one by one. One thread at a time.

    A message counts as read once it is handed out: `TopicPartitionState.read_offset` is then the offset after it.
    """

    def __init__(self, shell: ClientShell, fetcher: Fetcher, decoder: Decoder, key_decoder: Decoder) -> None:
        self._shell = shell
        self._fetcher = fetcher
        self._decoder = decoder
        self._key_decoder = key_decoder
        self.plain = type(decoder) is BytesSerde and type(key_decoder) is BytesSerde
        """True if messages have the bytes as they are."""
        self._current: _CurrentFetch | None = None
        self._suspended: dict[TopicPartition, _CurrentFetch] = {}
        self._latest: TopicPartitionState | None = None
        self.damaged: list[Damage] = []
        """The skipped damage, in the order in which the user read past it."""

    @property
    def holds(self) -> bool:
        """True while there is a fetch to continue with."""
        return self._current is not None or any(not current.state.paused for current in self._suspended.values())

    @property
    def progress(self) -> object:
        """A value that changes with every message handed out, and only through actions of the user."""
        latest = self._latest
        return None if latest is None else (latest.tp, latest.read_offset)

    def epoch_of(self, state: TopicPartitionState) -> int:
        """Return the leader epoch of the last message handed out of this partition; -1 = not known."""
        current = self._suspended.get(state.tp, self._current)
        is_current = current is not None and current.state is state
        return current.completed_fetch.messages.leader_epoch if current is not None and is_current else state.read_epoch

    def runs(self, ends: Ends | None) -> Iterator[Iterator[Message[Any, Any]]]:
        """Yield iterators over the remaining messages of the current fetch, until it is suspended.

        Each is for use until it ends, before the next one.
        """
        current = self._current
        while (run := self._next_run(ends)) is not None:
            yield run.left if self.plain else map(self._decoded, run.left)
            if self._current is not current:  # the user has moved elsewhere meanwhile, or its thread is needed
                return

    def rest(self, ends: Ends | None) -> Iterator[Message[Any, Any]]:
        """Iterate over the messages of `runs`."""
        return chain.from_iterable(self.runs(ends))

    def move_messages(self, found: list[Message[Any, Any]], wanted: int) -> None:
        """Move remaining messages of the current fetch to `found`, until it has `wanted`."""
        current = self._current
        while len(found) < wanted and (run := self._next_run(None)) is not None:
            taken = islice(run.left, wanted - len(found))
            found.extend(taken if self.plain else map(self._decoded, taken))
            if self._current is not current:
                return

    def _next_run(self, ends: Ends | None) -> MessageRun | None:
        """Return messages of the current fetch before its end; None when that fetch is finished."""
        current = self._current
        if current is None:
            return None
        run, state = current.run, current.state
        while run is None or run.is_empty:
            if current.beyond >= 0:
                self._leave_at(current.completed_fetch.tp, current.beyond)
                return None
            try:
                messages = next(current.runs, None)
            except ApiError as error:
                failure = self._cannot_read(state, error)
                raise failure from error
            if messages is None:
                self._finish(current)
                return None
            if messages.offsets:
                current.run = run = state.begin_run(messages)
        if ends is not None:
            end = ends.get(current.completed_fetch.tp, NO_END)
            if run.last_offset >= end:
                current.beyond = run.cut(end)
                return self._next_run(None) if run.is_empty else run
        return run

    def _leave_at(self, tp: TopicPartition, offset: int) -> None:
        """Drop the current fetch at the first message that is not wanted; a later call may read it."""
        with self._shell.lock:
            self._fetcher.seek(tp, offset)
            self.drop([tp])
            self._shell.wake()

    def rest_as_arrow(self, into: GatheredRows) -> None:
        """Add the remaining messages of the current fetch to `into`, as bytes, without the decoders."""
        from ..arrow.decode import decode_set

        current = self._current
        if current is None:
            return
        completed_fetch, state = current.completed_fetch, current.state
        start = max(completed_fetch.messages.from_offset, state.read_offset)
        try:
            for piece in decode_set(completed_fetch.messages, from_offset=start, with_headers=into.with_headers):
                into.add(completed_fetch.tp, piece)
                state.read_offset = piece.next_offset
        except ApiError as error:
            failure = self._cannot_read(state, error)
            raise failure from error
        self._finish(current)

    def select_next_fetch(self, *, may_go_back: bool = True) -> bool:
        """Make the next completed fetch the current one; return False if there is none. Lock held; raises its error.

        `may_go_back` False: also return False when a partition is due to continue in a log that is another one, or has
        lost records.
        """
        for tp, current in self._suspended.items():
            if not current.state.paused:
                self._current = self._suspended.pop(tp)
                if current.run is not None:
                    current.run.release()
                self._latest = current.state
                return True
        completed_fetch = self._fetcher.next_completed_fetch(may_go_back=may_go_back)
        if completed_fetch is None:
            return False
        self._shell.wake()
        if completed_fetch.go_back is not None:
            logger.warning("%s: going on at %s", completed_fetch.error, _text_of(completed_fetch.go_back))
            self._fetcher.seek(completed_fetch.tp, completed_fetch.go_back)
            return self.select_next_fetch()
        if completed_fetch.error is not None:
            raise completed_fetch.error
        self._latest = state = self._fetcher.partitions[completed_fetch.tp]
        if completed_fetch.damage is not None:
            self._left_out(completed_fetch.damage)
        if self._fetcher.settings.skip_damaged:
            completed_fetch.messages.on_damage = partial(self._cannot_decode, completed_fetch.tp)
        self._current = _CurrentFetch(completed_fetch, state, completed_fetch.messages.runs())
        return True

    def suspend_current(self) -> None:
        """End `rest` before its next message; `select_next_fetch` continues there. Lock held, any thread."""
        current = self._current
        if current is not None:
            if current.run is not None:
                current.run.hold()
            self._suspended[current.completed_fetch.tp] = current
            self._current = None

    def drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Drop the fetches that are in use (None: of all partitions), so that reading begins elsewhere. Lock held."""
        self.suspend_current()
        for tp in list(self._suspended) if partitions is None else partitions:
            self._suspended.pop(tp, None)

    def at(self, ends: Ends) -> bool:
        """Return True if partitions that are not paused have returned all messages before these offsets. Lock held."""
        for tp, end in ends.items():
            state = self._fetcher.partitions.get(tp)
            if state is None or state.paused:
                continue
            if state.read_offset < end and not (state.stopped and not state.completed_fetches):
                return False
        return True

    def _left_out(self, damage: Damage) -> None:
        self.damaged.append(damage)
        logger.warning("left out, since it is damaged: %s", damage)

    def _cannot_decode(self, tp: TopicPartition, header: BatchHeader, error: ApiError) -> None:
        self._left_out(Damage(*tp, header.base_offset, header.next_offset, error.message))

    def _finish(self, current: _CurrentFetch) -> None:
        """Move the position behind a fetch whose messages were all handed out."""
        current.state.read_offset = max(current.state.read_offset, current.completed_fetch.next_offset)
        current.state.read_epoch = current.completed_fetch.messages.leader_epoch
        with self._shell.lock:
            self.drop([current.completed_fetch.tp])

    def _cannot_read(self, state: TopicPartitionState, error: ApiError) -> ApiError:
        """Stop a partition whose batch cannot be read; `resume` tries it again, `seek` continues elsewhere."""
        failure = CorruptRecord(*state.tp, state.read_offset, error.message) if is_damage(error) else error
        with self._shell.lock:
            state.jump(None, state.read_offset)
            state.last_error = failure
            state.stopped = True
            self.drop([state.tp])
        return failure

    def _decoded(self, message: Message) -> Message[Any, Any]:
        try:
            return message._replace(
                value=self._decoder.decode(message.topic, message.value),
                key=self._key_decoder.decode(message.topic, message.key),
            )
        except Exception as error:
            where = f"{message.topic}-{message.partition} offset {message.offset}"
            raise DecodeError(f"the message at {where} cannot be decoded: {error}") from error


def _text_of(where: AtOffset | AtTime) -> str:
    if isinstance(where, AtOffset):
        return f"offset {where.offset}"
    return "its beginning" if where.timestamp_ms == EARLIEST else "its end"
