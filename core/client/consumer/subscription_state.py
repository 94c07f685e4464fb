"""The fetch state of one partition."""

from collections import deque
from enum import Enum
from operator import itemgetter, length_hint

from attrs import field

from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define, frozen
from ...message.batch_reader import BatchMessages
from ...message.corrupt_record import Damage
from ...message.message import Message
from ...message.message_set import MessageSet
from .fetch_position import FetchPosition, PartitionFetchSettings


class Reset(Enum):
    """The policy for a missing position, or one that the log does not have, or no longer."""

    EARLIEST = EARLIEST
    LATEST = LATEST
    NONE = 0


@frozen
class AtTime:
    """A position to be looked up: the first record of that time or later (ms; or EARLIEST, LATEST)."""

    timestamp_ms: int


@frozen
class AtOffset:
    """A position, and the leader epoch of the message before it: if the log has another epoch there, it has lost
    what was read (KIP-320). -1 = not known."""

    offset: int
    leader_epoch: int = -1
    topic_id: bytes = NO_TOPIC_ID
    """The topic of the position; one created again has another id. NO_TOPIC_ID: the topic that exists now."""


StartPosition = AtTime | AtOffset | int
"""The position from which to read."""


@frozen(kw_only=True)
class FetcherSettings:
    """Sizes in bytes, times in ms."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    isolation_level: int = 0
    reset: Reset = Reset.LATEST
    check_crc: bool = True
    skip_damaged: bool = False
    """Skip records that are not valid, instead of raising `CorruptRecord`."""
    fetches_per_partition: int = 2
    """The number of responses per partition that may wait to be read; further fetches leave the partition out."""
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    rack: str = ""
    """The reader's rack: a leader may direct it to a replica that is near (KIP-392)."""
    near_ms: float = 300_000
    """The time for which it fetches from that replica, before it asks the leader again."""

    @property
    def rules(self) -> PartitionFetchSettings:
        return PartitionFetchSettings(
            max_bytes=self.max_partition_bytes,
            bytes_max=self.max_bytes,
            check_crc=self.check_crc,
            skip_damaged=self.skip_damaged,
            committed_only=self.isolation_level > 0,
        )


@define(eq=False)
class CompletedFetch:
    """The result of one fetch of one partition: messages from `messages.from_offset` on, or an error to be raised."""

    tp: TopicPartition
    messages: MessageSet
    next_offset: int
    error: BarnabasError | None = None
    damage: Damage | None = None
    """The damaged offsets that were skipped before `next_offset`."""
    go_back: AtOffset | AtTime | None = None
    """The position at which to continue, because the log has lost the records from there on, or all of them."""


class MessageRun:
    """The messages of one batch on their way to the user, who takes them from the iterator `left`.

    Each step of it also takes one of the offsets: those that are left show what was handed out, and no Python code runs
    for a message.
    """

    __slots__ = ("_before", "_held", "_offsets", "_offsets_left", "left")

    def __init__(self, messages: BatchMessages, before: int) -> None:
        """`before`: the read offset before the first message."""
        self._before = before
        self._held: list[Message] = []
        self._offsets = messages.offsets
        self._offsets_left = iter(messages.offsets)
        self.left = messages.iterate(self._offsets_left)

    @property
    def read_offset(self) -> int:
        """The offset after the last message that was taken."""
        taken = len(self._offsets) - len(self._held) - length_hint(self._offsets_left)
        return self._offsets[taken - 1] + 1 if taken else self._before

    @property
    def is_empty(self) -> bool:
        """True when all messages were taken."""
        return not self._held and not length_hint(self._offsets_left)

    @property
    def last_offset(self) -> int:
        """The offset of the last message."""
        return self._offsets[-1]

    def hold(self) -> None:
        """End the iterator before its next message; any thread."""
        self._held = list(self.left)

    def release(self) -> None:
        """Continue where `hold` ended the iterator."""
        self._continue(self._held)

    def cut(self, end: int) -> int:
        """Drop the messages from offset `end` on; return the offset of the first of them."""
        rest = list(self.left)
        self._held = [message for message in rest if message.offset < end]
        first: int = rest[len(self._held)].offset
        self._continue(self._held, len(rest))
        return first

    def _continue(self, messages: list[Message], rest: int | None = None) -> None:
        """Hand out these messages next; `rest`: the number of messages that were left."""
        taken = len(self._offsets) - (len(messages) if rest is None else rest)
        self._before = self._offsets[taken - 1] + 1 if taken else self._before
        self._offsets, self._held = [message.offset for message in messages], []
        self._offsets_left = iter(self._offsets)
        self.left = map(_FIRST, zip(messages, self._offsets_left, strict=False))


_FIRST = itemgetter(0)


@define(eq=False)
class TopicPartitionState:
    """One assigned partition."""

    tp: TopicPartition
    fetch_position: FetchPosition
    """The position of the next fetch. Without one and without a lookup, the partition waits for a `seek`."""
    lookup: AtTime | None = None
    """The position to look up, or None."""
    _read_offset: int = -1
    _run: MessageRun | None = None
    read_epoch: int = -1
    """The leader epoch of the last message that the user got; -1 = not known."""
    topic_id: bytes = NO_TOPIC_ID
    """The topic in which the next fetch begins; NO_TOPIC_ID: not known yet."""
    paused: bool = False
    stopped: bool = False
    """True after an error for the reader; the partition then waits for the user's `seek` or `resume`."""
    high_watermark: int = -1
    end_offset: int = -1
    """The end of what the user may read, as of the last fetch; with read_committed the last stable offset."""
    log_start_offset: int = -1
    completed_fetches: deque[CompletedFetch] = field(factory=deque)
    version: int = 0
    """The number of jumps, by which responses to earlier requests are recognised."""
    busy: bool = False
    """True while a fetch or a lookup is in flight."""
    tried: tuple[int, int] = (-1, -1)
    """The leader that was asked last, and its leader epoch."""
    fenced: int = 0
    """The number of fenced leader epochs in a row."""
    near: int = -1
    """The broker to fetch from in place of the leader, until `near_until_ms`; -1 = none."""
    near_until_ms: float = 0.0
    leader_only_at: int = -1
    """The position at which `near` had no intact records: the leader is asked without a rack, so that it gives them."""
    failures: int = 0
    not_before_ms: float = 0.0
    last_error: BarnabasError | None = None
    """The reason why the partition makes no progress; None when it does."""

    @property
    def read_offset(self) -> int:
        """The next offset that the user gets."""
        return self._read_offset if self._run is None else self._run.read_offset

    @read_offset.setter
    def read_offset(self, offset: int) -> None:
        self._read_offset = offset
        self._run = None

    def begin_run(self, messages: BatchMessages) -> MessageRun:
        """Let the user take messages: the read offset is then the one after the last that was taken."""
        self._run = run = MessageRun(messages, self.read_offset)
        return run

    @property
    def fetch_offset(self) -> int:
        """The offset up to which records were fetched; -1 while not known."""
        return self.fetch_position.position

    def jump(self, lookup: AtTime | None, offset: int = -1, epoch: int = -1, topic_id: bytes = NO_TOPIC_ID) -> None:
        """Go to an offset, or to the result of the lookup; drop what was fetched before."""
        self.version += 1
        self.topic_id = topic_id
        self.lookup = lookup
        self.fetch_position.jump(offset, epoch)
        self.read_offset = offset
        self.read_epoch = -1
        self.completed_fetches.clear()
        self.busy = self.stopped = False
        self.failures = 0
        self.not_before_ms = 0.0
        self.last_error = None
