"""The small text files next to the segments (facts B3): offset checkpoints, leader epochs, partition.metadata.

All checkpoints have a line with the version (0), one with the count of entries, then the entries.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ...ports.storage import FileMissing, Folder
from ...ports.types import Offset, TopicPartition

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
"""The first dirty offset of each compacted log."""
SEGMENTS = "segment-checkpoint"
"""Ours: the sealed segments, so that a start notices which of them are missing without reading any."""
NEW_PARTITIONS = "new-partition-metadata"
"""Ours: the topic ids of new partitions whose own partition.metadata may not be durable yet."""
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

T = TypeVar("T")
_NUMBER = re.compile(r"\d{1,19}")
_TOPIC_ID_BYTES = 16


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _format(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Parse the file of `format_offsets`. Raises `ValueError` for anything else."""
    offsets: dict[TopicPartition, int] = {}
    for line in _parse(content):
        topic, partition, offset = line.rsplit(" ", 2)  # the name of a classic topic may have spaces
        if not topic:
            raise ValueError("a line without a topic")
        offsets[TopicPartition(topic, _number(partition))] = _number(offset)
    return offsets


class SealedSegment(NamedTuple):
    """A sealed segment in a checkpoint; nothing is appended to it."""

    base_offset: Offset
    next_base: Offset
    size: int


class LogCheckpoint(NamedTuple):
    """The entries of a log in the checkpoints of a data folder, at the last checkpoint before the start."""

    recovery_point: Offset = Offset(0)
    log_start: Offset = Offset(0)
    sealed: Collection[SealedSegment] = ()


def _sealed(base_offset: int, next_base: int, size: int) -> SealedSegment:
    return SealedSegment(Offset(base_offset), Offset(next_base), size)


def format_segments(partition: TopicPartition, segments: Iterable[SealedSegment]) -> list[str]:
    """Return the lines of one partition, for `join_segments`."""
    return [f"{partition.topic} {partition.partition} {base} {next_base} {size}" for base, next_base, size in segments]


def join_segments(lines: Iterable[str]) -> bytes:
    return _format(lines)


def parse_segments(content: bytes) -> dict[TopicPartition, list[SealedSegment]]:
    """Parse the file of `join_segments`. Raises `ValueError` for anything else."""
    found: dict[TopicPartition, list[SealedSegment]] = {}
    for line in _parse(content):
        topic, partition, *numbers = line.rsplit(" ", 4)
        if not topic:
            raise ValueError("a line without a topic")
        found.setdefault(TopicPartition(topic, _number(partition)), []).append(_sealed(*map(_number, numbers)))
    return found


def format_topic_ids(topic_ids: Mapping[TopicPartition, bytes]) -> bytes:
    return _format(
        f"{topic} {partition} {urlsafe_b64encode(topic_id).decode()}"
        for (topic, partition), topic_id in topic_ids.items()
    )


def parse_topic_ids(content: bytes) -> dict[TopicPartition, bytes]:
    """Parse the file of `format_topic_ids`. Raises `ValueError` for anything else."""
    found: dict[TopicPartition, bytes] = {}
    for line in _parse(content):
        topic, partition, encoded = line.rsplit(" ", 2)
        topic_id = urlsafe_b64decode(encoded)
        if not topic or len(topic_id) != _TOPIC_ID_BYTES:
            raise ValueError("a line without a topic and its id")
        found[TopicPartition(topic, _number(partition))] = topic_id
    return found


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _format(f"{epoch} {start}" for epoch, start in entries)


def parse_epochs(content: bytes) -> list[tuple[int, int]]:
    """Parse the file. Raises `ValueError` for garbage, and unless both numbers increase."""
    entries: list[tuple[int, int]] = []
    for line in _parse(content):
        epoch, start = map(_number, line.split(" "))
        if entries and not (epoch > entries[-1][0] and start > entries[-1][1]):
            raise ValueError(f"epoch {epoch} at {start} does not come after the one before")
        entries.append((epoch, start))
    return entries


def format_partition_metadata(topic_id: bytes, incomplete_until: int | None = None) -> bytes:
    """Format the file. `topic_id`: 16 bytes. `incomplete_until`: the last broker epoch in which the replica had
    messages that the log lacks; a line of ours, which Kafka ignores."""
    named = b"version: 0\ntopic_id: " + urlsafe_b64encode(topic_id).rstrip(b"=") + b"\n"
    return (
        named if incomplete_until is None else named + f"incomplete_until_broker_epoch: {incomplete_until}\n".encode()
    )


def parse_partition_metadata(content: bytes) -> bytes:
    """Return the topic id. Raises `ValueError` for garbage."""
    return _parse_partition_metadata(content)[0]


def parse_incomplete_until(content: bytes) -> int | None:
    """Return the last broker epoch in which the replica had messages that the log lacks; None if the log is complete as
    far as is known. Raises `ValueError` for garbage."""
    return _parse_partition_metadata(content)[1]


_PARTITION_METADATA = rb"version: 0\r?\ntopic_id: ([\w-]{22})(?:\r?\nincomplete_until_broker_epoch: (\d{1,18}))?\r?\n?"


def _parse_partition_metadata(content: bytes) -> tuple[bytes, int | None]:
    found = re.fullmatch(_PARTITION_METADATA, content)
    if found is None:
        raise ValueError("not the content of a partition.metadata file")
    try:
        topic_id = urlsafe_b64decode(found[1] + b"==")
    except Error as error:
        raise ValueError(str(error)) from error
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise ValueError(f"a topic id of {len(topic_id)} bytes")
    return topic_id, None if found[2] is None else int(found[2])


def read_offsets(folder: Folder, name: str, report: Callable[[str], None]) -> dict[TopicPartition, int]:
    """Read a checkpoint of a data folder; a missing one is empty, and a corrupt one is reported and empty.

    Raises `StorageError` when it cannot be read.
    """
    return _read(folder, name, parse_offsets, report)


def read_topic_ids(folder: Folder, report: Callable[[str], None]) -> dict[TopicPartition, bytes]:
    """Read the topic ids of new partitions, like `read_offsets`."""
    return _read(folder, NEW_PARTITIONS, parse_topic_ids, report)


def read_segments(folder: Folder, report: Callable[[str], None]) -> dict[TopicPartition, list[SealedSegment]]:
    """Read the sealed segments of the last checkpoint, like `read_offsets`."""
    return _read(folder, SEGMENTS, parse_segments, report)


def _read(
    folder: Folder,
    name: str,
    parse: Callable[[bytes], dict[TopicPartition, T]],
    report: Callable[[str], None],
) -> dict[TopicPartition, T]:
    try:
        content = folder.read_small(name)
        return parse(content) if content else {}  # Kafka makes it so, before it has anything to note
    except FileMissing:
        return {}
    except (ValueError, TypeError) as error:
        report(f"{folder.name}/{name} is corrupt and is ignored: {error}")
        return {}


def read_epochs(folder: Folder, report: Callable[[str], None]) -> list[tuple[int, int]]:
    """Read the leader epochs of a partition, like `read_offsets`."""
    try:
        return parse_epochs(folder.read_small(LEADER_EPOCHS))
    except FileMissing:
        return []
    except ValueError as error:
        report(f"{folder.name}/{LEADER_EPOCHS} is corrupt and is ignored: {error}")
        return []


def _format(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def _parse(content: bytes) -> list[str]:
    version, count, *entries, end = content.decode().split("\n")
    if end:
        raise ValueError("the last line is truncated")
    if version != "0":
        raise ValueError(f"version {version[:20]!r}, expected 0")
    if _number(count) != len(entries):
        raise ValueError(f"{len(entries)} entries, but {count} are announced")
    return entries


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not text.isascii():
        raise ValueError(f"{text[:20]!r} is not an offset")
    return int(text)
