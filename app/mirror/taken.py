"""The messages that a mirror takes from a source, and the interfaces of its sources and targets."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...core.message.classic.reader import ShallowMessage
from ...core.message.message import Message
from ...ports.broker_api.metadata import NO_TOPIC_ID

if TYPE_CHECKING:
    from ..clients.consumer.consumer import Consumer


class Taken(NamedTuple):
    """One message on its way, and how far its source is read when the target has it."""

    topic: str
    message: Message | ShallowMessage
    """A `ShallowMessage` may be a compressed wrapper, which passes on unopened."""
    source_partition: Hashable
    next_offset: int
    topic_id: bytes = NO_TOPIC_ID
    """The id of the topic, where it is known."""


def dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with Kafka's dotted names."""
    return {str(key).replace("_", "."): value for key, value in config.items()}


def current_message(message: Message | ShallowMessage) -> Message:
    """Return the message in the form for a current cluster."""
    assert isinstance(message, Message), "sources give no wrappers to a current target"
    return Message(message.value, message.key, message.headers, message.timestamp_ms)


class MirrorReader(Protocol):
    """One stream of a source; one thread at a time."""

    @property
    def consumer(self) -> Consumer | None:
        """The consumer that it reads with; None for a classic cluster."""
        ...

    def poll_messages(self, max_messages: int, timeout: float) -> list[Taken]:
        """Return the messages that are there, waiting up to `timeout` seconds for the first. Raises `BarnabasError`;
        after that it can continue."""
        ...

    @property
    def ended(self) -> bool:
        """True when no further message comes."""
        ...


class MirrorSource(Protocol):
    """A cluster to copy from. Methods are callable from any thread."""

    name: str

    def open(self, streams: int) -> list[MirrorReader]:
        """Begin to read. Raises `BarnabasError`."""
        ...

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Keep how far the target has the partitions, for the next start. Raises `BarnabasError`."""
        ...

    def close(self) -> None: ...


class TopicMaker(Protocol):
    """Knows which topics the target is to have. Any thread."""

    def make_again(self, topics: Iterable[str]) -> None:
        """See whether the target has these topics still, and make those that it has not. Raises `BarnabasError`."""
        ...


class MirrorTarget(Protocol):
    """A cluster to copy to. One thread at a time."""

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = (), layout: TopicMaker | None = None) -> None:
        """Deliver the batch, then the reports (their topics are set); return when the target has them all. The layout
        makes topics again that the target has lost.

        Raises `BarnabasError`: some may be there, some not."""
        ...

    def close(self) -> None: ...
