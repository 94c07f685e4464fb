"""What one partition of `__consumer_offsets` says: the last value of each key."""

from struct import Struct

from ....ports.errors import ApiError
from ....ports.words import TopicPartition
from ..log import Record
from ..skipped import SkippedRecords
from .records import GroupKey, OffsetKey, StoredGroup, StoredOffset, decode_group, decode_key, decode_offset

_OFFSET_KEY = b"\x00\x01"
_OFFSET_VERSION = 3
_PLAIN_VALUE = Struct(">hqihq")


class LoadedGroup:
    """One group as its records have it; `stored` None: only positions were ever committed."""

    __slots__ = ("offsets", "open", "stored")

    def __init__(self) -> None:
        self.stored: StoredGroup | None = None
        self.offsets: dict[TopicPartition, StoredOffset] = {}
        self.open: list[tuple[int, TopicPartition, StoredOffset]] = []
        """By producers whose transactions have not ended, in the order of the log."""


class Loading:
    """Takes the records of one partition in their order; knows nothing of the coordinator, so any thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, LoadedGroup] = {}
        self.skipped = SkippedRecords()
        self._names: dict[bytes, str] = {}
        """Texts that came: they come again and again."""

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """The next record."""
        if key is None:
            self.skipped.add("it has no key")
            return
        if value is not None and self._add_plain(key, value):
            return
        try:
            what = decode_key(key)
            if isinstance(what, GroupKey):
                self._group(what.group_id).stored = None if value is None else decode_group(value)
            elif value is None:
                self._group(what.group_id).offsets.pop(what.partition, None)
            else:
                self._group(what.group_id).offsets[what.partition] = decode_offset(value)
        except ApiError as error:
            self.skipped.add(error.message)

    def add_open(self, producer_id: int, record: Record) -> None:
        """The next record whose transaction has not ended; behind all others."""
        key, value = record
        try:
            what = decode_key(key)
            if isinstance(what, OffsetKey) and value is not None:
                self._group(what.group_id).open.append((producer_id, what.partition, decode_offset(value)))
            else:
                self.skipped.add("it is in a transaction, and no position")
        except ApiError as error:
            self.skipped.add(error.message)

    def report(self) -> str | None:
        """One line about what was left out; None when nothing was."""
        return self.skipped.report(f"__consumer_offsets-{self.partition}")

    def _add_plain(self, key: bytes, value: bytes) -> bool:
        """The quick way for a position without text as it is written today. False: not such a one, or damaged."""
        if key[:2] != _OFFSET_KEY or len(value) != _PLAIN_VALUE.size:
            return False
        version, offset, leader_epoch, text_size, commit_ms = _PLAIN_VALUE.unpack(value)
        try:
            topic_at = 6 + (key[2] << 8 | key[3])
            topic_end = topic_at + (key[topic_at - 2] << 8 | key[topic_at - 1])
            if topic_end + 4 != len(key) or version != _OFFSET_VERSION or text_size:
                return False
            group_id, topic = self._name(key[4 : topic_at - 2]), self._name(key[topic_at:topic_end])
        except (IndexError, UnicodeDecodeError):
            return False
        partition = TopicPartition(topic, int.from_bytes(key[topic_end:], "big", signed=True))
        self._group(group_id).offsets[partition] = StoredOffset(offset, leader_epoch, "", commit_ms, -1)
        return True

    def _name(self, data: bytes) -> str:
        name = self._names.get(data)
        if name is None:
            name = self._names[data] = data.decode()
        return name

    def _group(self, group_id: str) -> LoadedGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = LoadedGroup()
        return group
