"""What a fetcher knows of one partition."""

from collections import deque
from enum import Enum

from attrs import define, field

from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...message.corrupt_record import Damage
from ...message.message_set import MessageSet
from .fetch_position import FetchPosition, PartitionFetchSettings


class Reset(Enum):
    """Where to go on when there is no position, or one that the log does not have (any more)."""

    EARLIEST = EARLIEST
    LATEST = LATEST
    NONE = 0


@frozen
class AtTime:
    """A position to be looked up: the first record of that time or later (ms; or EARLIEST, LATEST)."""

    timestamp_ms: int


@frozen
class AtOffset:
    """A position, and the leader epoch of the message before it: where the log has another one there, it has lost
    what was read (KIP-320). -1 = not known."""

    offset: int
    leader_epoch: int = -1
    topic_id: bytes = NO_TOPIC_ID
    """Of which topic: one that was made again under the name is another one. NO_TOPIC_ID: of the one that is there."""


StartPosition = AtTime | AtOffset | int
"""Where to read from."""


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
    """Go on behind records that cannot be believed, instead of raising `CorruptRecord`."""
    chunks_per_partition: int = 2
    """How many answers may wait per partition to be read; further fetches leave the partition out."""
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    rack: str = ""
    """Where the reader is: a leader may send it to a replica that is near (KIP-392)."""
    near_ms: float = 300_000
    """How long it goes there, before it asks the leader again."""

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
    """What one fetch brought of one partition: messages from `messages.from_offset` on, or an error to be raised."""

    place: TopicPartition
    messages: MessageSet
    next_offset: int
    error: BarnabasError | None = None
    damage: Damage | None = None
    """What was left out before `next_offset`."""
    go_back: AtOffset | AtTime | None = None
    """The log has lost what was read from there on, or all of it: that is where to go on."""


@define(eq=False)
class TopicPartitionState:
    """One assigned partition."""

    place: TopicPartition
    course: FetchPosition
    """Where the next fetch begins. Without that and a lookup, nothing happens until a `seek`."""
    lookup: AtTime | None = None
    """The position is to be looked up."""
    read_offset: int = -1
    """The next offset that the user gets."""
    read_epoch: int = -1
    """The leader epoch of what the user got last; -1 = not known."""
    topic_id: bytes = NO_TOPIC_ID
    """The topic in which the next fetch begins; NO_TOPIC_ID: not known yet."""
    paused: bool = False
    stopped: bool = False
    """An error was handed to the reader; nothing happens until the user says how to go on."""
    high_watermark: int = -1
    end_offset: int = -1
    """Up to where the user may read, as of the last fetch: the last stable offset for who reads committed only."""
    log_start_offset: int = -1
    chunks: deque[CompletedFetch] = field(factory=deque)
    version: int = 0
    """Grows with every jump, so that answers to earlier questions are recognised."""
    busy: bool = False
    """A fetch or a lookup is on its way."""
    tried: tuple[int, int] = (-1, -1)
    """Who was asked last as the leader, and in which leader epoch."""
    fenced: int = 0
    """How often in a row the leader has said that its epoch is another one."""
    near: int = -1
    """The broker to fetch from in place of the leader, until `near_until_ms`; -1 = none."""
    near_until_ms: float = 0.0
    failures: int = 0
    not_before_ms: float = 0.0
    last_error: BarnabasError | None = None
    """Why the partition does not get on; None when it does."""

    @property
    def fetch_offset(self) -> int:
        """The offset up to which it is fetched; -1 while not known."""
        return self.course.position

    def jump(self, lookup: AtTime | None, offset: int = -1, epoch: int = -1, topic_id: bytes = NO_TOPIC_ID) -> None:
        """Go to an offset, or to what the lookup will find; what was fetched before is forgotten."""
        self.version += 1
        self.topic_id = topic_id
        self.lookup = lookup
        self.course.jump(offset, epoch)
        self.read_offset = offset
        self.read_epoch = -1
        self.chunks.clear()
        self.busy = self.stopped = False
        self.failures = 0
        self.not_before_ms = 0.0
        self.last_error = None
