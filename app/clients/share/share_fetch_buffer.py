"""The path of a share consumer's messages to the user's thread, and back as acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.client.errors import DecodeError
from ....core.message.message import ShareMessage
from ....plugins.builtin.encoders import BytesSerde
from ....ports.broker_api.share_groups import AcknowledgeType
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import counted
from ....ports.types import TopicPartition

if TYPE_CHECKING:
    from ....core.client.serde import Decoder
    from ....core.client.share.share_consume_request_manager import ShareConsumeRequestManager, ShareInFlightBatch
    from ..shared.client_shell import ClientShell

_Place = tuple[str, int, int]


class ShareFetchBuffer:
    """Hands out the messages of acquired batches one by one. One thread at a time, but for `acknowledge`.

    In implicit mode a message is accepted when the user has asked for the one after it. In explicit mode the buffer
    holds each message that was handed out, until it is acknowledged.
    """

    def __init__(
        self,
        shell: ClientShell,
        manager: ShareConsumeRequestManager,
        decoder: Decoder,
        key_decoder: Decoder,
        *,
        implicit: bool,
    ) -> None:
        self._shell = shell
        self._manager = manager
        self._decoder = decoder
        self._key_decoder = key_decoder
        self._plain = type(decoder) is BytesSerde and type(key_decoder) is BytesSerde
        self._implicit = implicit
        self._current: ShareInFlightBatch | None = None
        self._held: dict[_Place, ShareInFlightBatch] = {}
        """The messages in the user's hands, in explicit mode."""
        self._owed: set[_Place] = set()
        """The held messages that must be acknowledged before the user asks for more."""
        self._earlier = 0

    @property
    def holds(self) -> bool:
        """True while fetched messages are there."""
        return self._current is not None or bool(self._manager.ready)

    @property
    def handed_out(self) -> int:
        """The number of messages that were handed out so far."""
        current = self._current
        return self._earlier + (0 if current is None else current.handed_out)

    def rest(self) -> Iterator[ShareMessage[Any, Any]]:
        """Yield the remaining messages of the current batch. Raises the error of one that cannot be read."""
        batch, plain, implicit = self._current, self._plain, self._implicit
        while batch is not None and self._more(batch):
            messages = batch.messages
            for index in range(batch.handed_out, len(messages)):
                if batch.has_lapsed:
                    break
                message = messages[index] if plain else self._decoded(batch, index)
                batch.handed_out = number = index + 1
                if implicit:
                    yield message
                    if batch is self._current:
                        batch.processed = number
                else:
                    self._hold(batch, message)
                    yield message
                    self.check_acknowledged()
                if batch is not self._current:  # the user has asked for messages elsewhere, or has left
                    return
                if batch.handed_out != number:
                    break
        self._finish(batch)

    def take(self, found: list[ShareMessage[Any, Any]], wanted: int) -> None:
        """Add messages of the current batch until `found` has as many as are `wanted`."""
        batch = self._current
        while batch is not None and len(found) < wanted and self._more(batch):
            start = batch.handed_out
            end = min(len(batch.messages), start + wanted - len(found))
            if self._plain:
                taken = batch.messages[start:end]
                batch.handed_out = end
                found += taken
            else:
                taken = []
                for index in range(start, end):
                    message = self._decoded(batch, index)
                    batch.handed_out = index + 1
                    found.append(message)
                    taken.append(message)
                    if not self._implicit:
                        self._hold(batch, message)
            if not self._implicit and self._plain:
                for message in taken:
                    self._hold(batch, message)
        if batch is not None and len(found) < wanted:
            self._finish(batch)

    def select(self) -> bool:
        """Make the next batch the current one; return False if there is none. Lock held."""
        if self._current is None:
            self._current = self._manager.next_batch(self._shell.now_ms())
            self._shell.wake()  # from now on, what the user has finished with is acknowledged in time
        return self._current is not None

    def select_next(self) -> bool:
        """Do what `select` does, without the lock."""
        with self._shell.lock:
            return self.select()

    def drop(self) -> None:
        """Forget all messages, because the sessions end. Lock held."""
        if self._current is not None:
            self._earlier += self._current.handed_out
        self._current = None
        self._held.clear()
        self._owed.clear()

    def finish_all(self) -> None:
        """Note that the user has processed everything that was handed out, in implicit mode. Lock held."""
        if self._implicit:
            for batch in list(self._manager.reading):
                batch.processed = batch.handed_out
                if batch is not self._current:
                    self._manager.finish_batch(batch, self._shell.now_ms())

    def check_acknowledged(self) -> None:
        """Raise `ApiError` if a message that was handed out is not acknowledged, in explicit mode."""
        if self._owed:
            topic, partition, offset = min(self._owed)
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{counted(len(self._owed), 'message')} not acknowledged, the first one at "
                f"{topic}-{partition} offset {offset}: with share.acknowledgement.mode=explicit, acknowledge each "
                'message before you ask for more, or "renew" those that take longer',
            )

    def acknowledge(self, message: ShareMessage[Any, Any], kind: AcknowledgeType, now_ms: float) -> None:
        """Acknowledge a message that is held. Lock held."""
        place = (message.topic, message.partition, message.offset)
        batch = self._held.get(place)
        if batch is None:
            where = f"{TopicPartition(message.topic, message.partition)} offset {message.offset}"
            text = (
                f"the message at {where} is not in the hands of this consumer: it is acknowledged already, or not its"
            )
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, text)
        self._owed.discard(place)
        if kind is not AcknowledgeType.RENEW:
            del self._held[place]
        self._manager.acknowledge(batch, (message.offset,), kind, now_ms)

    def _more(self, batch: ShareInFlightBatch) -> bool:
        """Decode more if all decoded messages are handed out. Return False at the end, or when the locks are gone."""
        while not batch.has_lapsed:
            if batch.handed_out < len(batch.messages):
                return True
            if not batch.decode_more():
                break
        return False

    def _finish(self, batch: ShareInFlightBatch | None) -> None:
        """Leave a batch whose messages were all handed out. In implicit mode the last ones may still be in use."""
        if batch is None or batch is not self._current:
            return
        with self._shell.lock:
            self._current = None
            self._earlier += batch.handed_out
            if not self._implicit or batch.processed == batch.handed_out:
                self._manager.finish_batch(batch, self._shell.now_ms())

    def _hold(self, batch: ShareInFlightBatch, message: ShareMessage[Any, Any]) -> None:
        place = (message.topic, message.partition, message.offset)
        self._held[place] = batch
        self._owed.add(place)

    def _decoded(self, batch: ShareInFlightBatch, index: int) -> ShareMessage[Any, Any]:
        message = batch.messages[index]
        try:
            return message._replace(
                value=self._decoder.decode(message.topic, message.value),
                key=self._key_decoder.decode(message.topic, message.key),
            )
        except Exception as error:
            with self._shell.lock:
                del batch.messages[index]
                self._manager.acknowledge(batch, (message.offset,), AcknowledgeType.RELEASE, self._shell.now_ms())
            where = f"{message.topic}-{message.partition} offset {message.offset}"
            raise DecodeError(f"the message at {where} cannot be decoded, and is released: {error}") from error
