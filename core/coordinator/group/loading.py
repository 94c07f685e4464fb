"""The content of one partition of `__consumer_offsets`: the last value of each key."""

from collections.abc import Callable, Mapping
from struct import Struct

from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..log import Record
from ..record_fields import RecordReader
from ..skipped import SkippedRecords
from .consumer_records import CONSUMER_RECORDS, StoredConsumerGroup
from .records import GroupKey, OffsetKey, StoredGroup, StoredOffset, decode_group, decode_key, decode_offset
from .share_group_records import SHARE_RECORDS, LoadedShareGroup, decode_share_key

_OFFSET_KEY = b"\x00\x01"
_PLAIN_VALUE = Struct(">hqiBq3s16s")
_PLAIN_VERSION, _NO_TEXT, _ONE_TAG = 4, 1, bytes((1, 0, len(NO_TOPIC_ID)))
_OLD_VERSION = 3
_OLD_VALUE = Struct(">hqihq")


class LoadedGroup:
    """One group as its records have it; `stored` None: only positions were ever committed."""

    __slots__ = ("consumer", "offsets", "open", "share", "stored")

    def __init__(self) -> None:
        self.consumer: StoredConsumerGroup | None = None
        self.share: LoadedShareGroup | None = None
        self.stored: StoredGroup | None = None
        self.offsets: dict[TopicPartition, StoredOffset] = {}
        self.open: list[tuple[int, TopicPartition, StoredOffset]] = []
        """By producers whose transactions have not ended, in the order of the log."""

    @property
    def is_void(self) -> bool:
        """True if the records leave nothing of the group."""
        is_unstored = self.stored is None and (self.consumer is None or self.consumer.is_void)
        return is_unstored and (self.share is None or self.share.is_void) and not self.offsets and not self.open


class Loading:
    """Takes the records of one partition in their order; knows nothing of the coordinator, so any thread may fill it.

    A record that cannot be read is left out and counted; the others count.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, LoadedGroup] = {}
        self.topic_ids: dict[str, set[bytes]] = {}
        """The ids that the records name for each topic; NO_TOPIC_ID for records without an id."""
        self.stale: dict[str, list[TopicPartition]] = {}
        """By group, the partitions whose committed offsets were dropped by `drop_other_topics`, and have no others."""
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
            if key[:2] in CONSUMER_RECORDS:
                self._add_consumer_record(key, value)
                return
            if key[:2] in SHARE_RECORDS:
                self._add_share_record(key, value)
                return
            what = decode_key(key)
            if isinstance(what, GroupKey):
                self._group(what.group_id).stored = None if value is None else decode_group(value)
            elif value is None:
                self._group(what.group_id).offsets.pop(what.partition, None)
            else:
                self._group(what.group_id).offsets[what.partition] = self._decoded(what.partition.topic, value)
        except ApiError as error:
            self.skipped.add(error.message)

    def add_open(self, producer_id: int, record: Record) -> None:
        """The next record whose transaction has not ended; behind all others."""
        key, value = record
        try:
            what = decode_key(key)
            if isinstance(what, OffsetKey) and value is not None:
                position = self._decoded(what.partition.topic, value)
                self._group(what.group_id).open.append((producer_id, what.partition, position))
            else:
                self.skipped.add("it is in a transaction, and no position")
        except ApiError as error:
            self.skipped.add(error.message)

    def topics_unlike(self, topic_id_of: Callable[[str], bytes | None]) -> list[str]:
        """Return the topics whose offsets may be stale: `topic_id_of` has another id than the records, or none."""
        return [
            topic
            for topic, named in self.topic_ids.items()
            if (known := topic_id_of(topic)) is None or not named <= {known, NO_TOPIC_ID}
        ]

    def drop_other_topics(self, topic_ids: Mapping[str, bytes | None]) -> None:
        """Drop the offsets of topics that are gone. `topic_ids`: the ids that the topics have now, None for one that
        does not exist; topics that it does not name are left as they are. Any thread, before the coordinator has it.
        """

        def is_stale(partition: TopicPartition, position: StoredOffset) -> bool:
            if partition.topic not in topic_ids:
                return False
            topic_id = topic_ids[partition.topic]
            return topic_id is None or not position.is_of(topic_id)

        for group_id, group in self.groups.items():
            group.open = [each for each in group.open if not is_stale(*each[1:])]
            dropped = [each for each, position in group.offsets.items() if is_stale(each, position)]
            for partition in dropped:
                del group.offsets[partition]
            # A tombstone would count more than the offset of a transaction that stands before it in the log.
            pending = {partition for _, partition, _ in group.open}
            if stale := [each for each in dropped if each not in pending]:
                self.stale.setdefault(group_id, []).extend(stale)

    def report(self) -> str | None:
        """Return a line about the records that were skipped; None if none were."""
        return self.skipped.report(f"__consumer_offsets-{self.partition}")

    def _add_plain(self, key: bytes, value: bytes) -> bool:
        """Read a position without text, in today's or an older version, quickly; return False for another record or a
        damaged one."""
        if key[:2] != _OFFSET_KEY:
            return False
        if len(value) == _PLAIN_VALUE.size:
            version, offset, leader_epoch, text, commit_ms, tag, topic_id = _PLAIN_VALUE.unpack(value)
            if version != _PLAIN_VERSION or text != _NO_TEXT or tag != _ONE_TAG:
                return False
        elif len(value) == _OLD_VALUE.size:
            version, offset, leader_epoch, text, commit_ms = _OLD_VALUE.unpack(value)
            if version != _OLD_VERSION or text:
                return False
            topic_id = NO_TOPIC_ID
        else:
            return False
        try:
            topic_at = 6 + (key[2] << 8 | key[3])
            topic_end = topic_at + (key[topic_at - 2] << 8 | key[topic_at - 1])
            if topic_end + 4 != len(key):
                return False
            group_id, topic = self._name(key[4 : topic_at - 2]), self._name(key[topic_at:topic_end])
        except (IndexError, UnicodeDecodeError):
            return False
        partition = TopicPartition(topic, int.from_bytes(key[topic_end:], "big", signed=True))
        self._group(group_id).offsets[partition] = StoredOffset(offset, leader_epoch, "", commit_ms, -1, topic_id)
        self._note_id(topic, topic_id)
        return True

    def _add_consumer_record(self, key: bytes, value: bytes | None) -> None:
        reader = RecordReader(key)
        kind = reader.i16()
        group = self._group(reader.text())
        if group.consumer is None:
            group.consumer = StoredConsumerGroup()
        group.consumer.add(kind, reader, value)

    def _add_share_record(self, key: bytes, value: bytes | None) -> None:
        what = decode_share_key(key)
        group = self._group(what.group_id)
        if group.share is None:
            group.share = LoadedShareGroup()
        group.share.add(what, value)

    def _note_id(self, topic: str, topic_id: bytes) -> None:
        try:
            self.topic_ids[topic].add(topic_id)
        except KeyError:
            self.topic_ids[topic] = {topic_id}

    def _decoded(self, topic: str, value: bytes) -> StoredOffset:
        position = decode_offset(value)
        self._note_id(topic, position.topic_id)
        return position

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
