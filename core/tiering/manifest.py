"""The manifest of a partition: its segments in remote storage, as one value that changes as a whole.

A leader stores each change with `RemoteStorage.replace`, so a manifest is the state at one moment for everyone. See
docs/design/tiering.md. Offsets named `next_offset` are exclusive ends.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate

from attrs import evolve, field

from ...ports.types import TopicPartition
from ...ports.values import frozen
from .compressed_json import decode_json, encode_json

FORMAT = 1
MANIFEST = "manifest.json.gz"
_CONTENT_MAX = 1 << 28

_NO_END = 2**63 - 1

Epochs = tuple[tuple[int, int], ...]
"""(leader epoch, start offset) pairs, both ascending."""


class CorruptManifest(ValueError):
    """The object is no manifest that this version understands."""


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState, without the last: a deleted segment is not in the manifest."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2


@frozen(kw_only=True)
class RemoteSegment:
    """A segment in remote storage (Kafka: RemoteLogSegmentMetadata)."""

    segment_id: str
    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    """Largest timestamp of its records; the modification time of the file if no record has one."""
    epochs: Epochs
    """The leader epochs of its records."""
    leader_epoch: int
    """The epoch of the leader that copied it."""
    state: SegmentState = SegmentState.COPY_STARTED
    has_aborted: bool = False
    """True if its transaction index has entries."""
    folder: str = ""
    """The folder of its objects, if it is not that of the partition: the topic was restored."""


@frozen(kw_only=True)
class TieredTopic:
    """The topic as of the last change of the manifest, for a restore from remote storage alone."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = {}


@frozen(kw_only=True)
class Manifest:
    """The segments in order of their base offsets, and what a reader must know to use them."""

    topic: TieredTopic
    partition: int
    leader_epoch: int
    """The epoch of the leader that stored it; an earlier leader can change nothing."""
    changes: int = 0
    """Grows with each change, so that no two manifests are equal."""
    log_start: int = 0
    """The log start offset as of the last change; nothing below it is readable."""
    epochs: Epochs = ()
    """The leader epochs of the log from its start on: the lineage that segments must belong to."""
    segments: tuple[RemoteSegment, ...] = ()
    readable: tuple[RemoteSegment, ...] = field(init=False, repr=False, eq=False)
    """The segments that a reader may use, by base offset."""

    @readable.default
    def _readable(self) -> tuple[RemoteSegment, ...]:
        return tuple(
            each
            for each in self.segments
            if each.state is SegmentState.COPY_FINISHED
            and each.next_offset > self.log_start
            and _is_of_lineage(each, self.epochs, self.log_start)
        )

    highest: tuple[int, ...] = field(init=False, repr=False, eq=False)
    """The highest end of the readable segments up to each of them: they may overlap."""

    @highest.default
    def _highest(self) -> tuple[int, ...]:
        return tuple(accumulate((each.next_offset for each in self.readable), max))

    def find(self, offset: int) -> RemoteSegment | None:
        """Return the readable segment with this offset that ends last; None without one."""
        found: RemoteSegment | None = None
        index = bisect_right(self.readable, offset, key=_base) - 1 if offset >= self.log_start else -1
        while index >= 0 and self.highest[index] > offset:
            each = self.readable[index]
            if each.next_offset > offset and (found is None or each.next_offset > found.next_offset):
                found = each
            index -= 1
        return found

    def covered_to(self, offset: int) -> int:
        """Return the end of the readable offsets that begin at `offset` without a gap; `offset` if it is not one."""
        while (segment := self.find(offset)) is not None:
            offset = segment.next_offset
        return offset

    def first_readable(self, offset: int) -> int | None:
        """Return the lowest readable offset from `offset` on; None without one."""
        if self.find(offset) is not None:
            return offset
        index = bisect_right(self.readable, offset, key=_base)
        return self.readable[index].base_offset if index < len(self.readable) else None

    @property
    def readable_range(self) -> tuple[int, int]:
        """The first readable offset, and the end of those that follow it without a gap; the log start twice without
        one."""
        first = self.first_readable(self.log_start)
        start = self.log_start if first is None else first
        return start, self.covered_to(start)

    @property
    def end(self) -> int:
        """The end of the newest readable segment; 0 without one."""
        return self.highest[-1] if self.highest else 0

    def in_state(self, state: SegmentState) -> tuple[RemoteSegment, ...]:
        return tuple(each for each in self.segments if each.state is state)


def _base(segment: RemoteSegment) -> int:
    return segment.base_offset


def epochs_between(epochs: Sequence[tuple[int, int]], start: int, end: int) -> Epochs:
    """Return the part of the epochs that concerns [start, end); its first one begins at `start`."""
    found: list[tuple[int, int]] = []
    for index, (epoch, first) in enumerate(epochs):
        until = epochs[index + 1][1] if index + 1 < len(epochs) else end
        if first < end and until > start:
            found.append((epoch, max(first, start)))
    return tuple(found)


def _is_of_lineage(segment: RemoteSegment, lineage: Epochs, log_start: int) -> bool:
    start = max(segment.base_offset, log_start)
    its = epochs_between(segment.epochs, start, segment.next_offset)
    return bool(its) and its == epochs_between(lineage, start, segment.next_offset)


# Changes. Each returns another manifest, and is harmless when it is made a second time.

Change = Callable[[Manifest], Manifest]


def claim(
    stored: Manifest | None,
    topic: TieredTopic,
    partition: int,
    *,
    leader_epoch: int,
    log_start: int,
    log_end: int,
    epochs: Iterable[tuple[int, int]],
) -> Manifest:
    """Return the manifest of a leader that begins: copies that an earlier one has not finished are to be deleted.

    `stored`: the present one, None if there is none. If it starts behind the log end, after an unclean election, all of
    its segments are to be deleted: the log continues below them.
    """
    lineage = tuple(epochs)
    if stored is None:
        return Manifest(
            topic=topic, partition=partition, leader_epoch=leader_epoch, log_start=log_start, epochs=lineage
        )
    if stored.log_start > log_end:
        segments = tuple(evolve(each, state=SegmentState.DELETE_STARTED) for each in stored.segments)
        stored = evolve(stored, log_start=log_end, segments=segments)
    mine = evolve(
        stored,
        topic=topic,
        leader_epoch=leader_epoch,
        epochs=lineage,
        segments=tuple(_given_up(each) for each in stored.segments),
    )
    return raise_log_start(mine, log_start)


def _given_up(segment: RemoteSegment) -> RemoteSegment:
    is_unfinished = segment.state is SegmentState.COPY_STARTED
    return evolve(segment, state=SegmentState.DELETE_STARTED) if is_unfinished else segment


def start_copy(manifest: Manifest, segment: RemoteSegment) -> Manifest:
    """Note that the objects of a segment are about to be stored. There is one such segment at a time."""
    others = (_given_up(each) for each in manifest.segments if each.segment_id != segment.segment_id)
    return evolve(manifest, segments=tuple(sorted((*others, segment), key=_base)))


def finish_copy(manifest: Manifest, segment_id: str, epochs: Iterable[tuple[int, int]]) -> Manifest:
    """Note that the objects of a segment are stored: from now on it is readable. `epochs`: the lineage now.

    A segment in another state stays as it is.
    """
    return evolve(
        manifest,
        epochs=tuple(epochs),
        segments=tuple(
            evolve(each, state=SegmentState.COPY_FINISHED)
            if each.segment_id == segment_id and each.state is SegmentState.COPY_STARTED
            else each
            for each in manifest.segments
        ),
    )


def raise_log_start(manifest: Manifest, offset: int) -> Manifest:
    """Raise the log start offset; segments below it are to be deleted."""
    start = max(manifest.log_start, offset)
    return evolve(
        manifest,
        log_start=start,
        epochs=epochs_between(manifest.epochs, start, _NO_END),
        segments=tuple(
            evolve(each, state=SegmentState.DELETE_STARTED)
            if each.next_offset <= start and each.state is SegmentState.COPY_FINISHED
            else each
            for each in manifest.segments
        ),
    )


def give_up_dead_branches(manifest: Manifest) -> Manifest:
    """Mark the segments all of whose epochs come before the first of the lineage, as Kafka does: after an unclean
    election no replica has their records."""
    if not manifest.epochs:
        return manifest
    first = manifest.epochs[0][0]
    return evolve(
        manifest,
        segments=tuple(
            evolve(each, state=SegmentState.DELETE_STARTED)
            if each.state is SegmentState.COPY_FINISHED and each.epochs and each.epochs[-1][0] < first
            else each
            for each in manifest.segments
        ),
    )


def drop_deleted(manifest: Manifest, segment_ids: Iterable[str]) -> Manifest:
    """Forget segments whose objects are deleted."""
    gone = set(segment_ids)
    return evolve(
        manifest,
        segments=tuple(
            each
            for each in manifest.segments
            if each.segment_id not in gone or each.state is not SegmentState.DELETE_STARTED
        ),
    )


# Expiry of the tier (KIP-405): by size, by time, oldest segments first, along the lineage.


def expired_start(
    manifest: Manifest, *, now_ms: int, retention_ms: int, retention_bytes: int, bytes_not_copied: int
) -> int:
    """Return the log start offset after an expiry; the present one if nothing expires.

    retention_ms, retention_bytes: -1 for no limit. bytes_not_copied: of local segments, which count, too.
    """
    start, reached = manifest.log_start, None
    sizes = _sizes_without_overlap(manifest.readable)
    excess = sum(sizes) + bytes_not_copied - retention_bytes
    for segment, size in zip(manifest.readable, sizes, strict=True):
        is_large = retention_bytes >= 0 and excess >= size
        is_old = retention_ms >= 0 and segment.max_timestamp < now_ms - retention_ms
        is_behind_gap = reached is not None and segment.base_offset > reached
        if is_behind_gap or not (is_large or is_old):
            break
        excess -= size
        start = reached = max(start, segment.next_offset)
    return start


def _sizes_without_overlap(segments: Sequence[RemoteSegment]) -> list[int]:
    """Return the bytes that each segment adds to those before it: a record may have been copied twice, after a late
    answer or by two leaders whose segments have other bounds."""
    sizes: list[int] = []
    reached = 0
    for each in segments:
        added = each.next_offset - max(each.base_offset, min(reached, each.next_offset))
        sizes.append(each.size * added // (each.next_offset - each.base_offset))
        reached = max(reached, each.next_offset)
    return sizes


# Names and format.


def topic_folder(name: str, topic_id: bytes) -> str:
    """Return the key prefix of a topic; ids are never used again."""
    return f"{name}-{urlsafe_b64encode(topic_id).rstrip(b'=').decode()}"


def partition_folder(key: TopicPartition, topic_id: bytes) -> str:
    return f"{topic_folder(key.topic, topic_id)}/{key.partition}"


def manifest_key(key: TopicPartition, topic_id: bytes) -> str:
    return f"{partition_folder(key, topic_id)}/{MANIFEST}"


def log_key(folder: str, segment: RemoteSegment) -> str:
    """Return the key of the batches of a segment. `folder`: of the partition."""
    return f"{segment.folder or folder}/{segment.base_offset:020d}-{segment.segment_id}.log"


def indexes_key(folder: str, segment: RemoteSegment) -> str:
    """Return the key of the indexes of a segment. `folder`: of the partition."""
    return f"{segment.folder or folder}/{segment.base_offset:020d}-{segment.segment_id}.indexes"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return gzip-compressed JSON."""
    topic = manifest.topic
    content = {
        "format": FORMAT,
        "topic": {
            "name": topic.name,
            "id": topic.topic_id.hex(),
            "partitions": topic.partitions,
            "configs": dict(sorted(topic.configs.items())),
        },
        "partition": manifest.partition,
        "leaderEpoch": manifest.leader_epoch,
        "changes": manifest.changes,
        "logStartOffset": manifest.log_start,
        "epochs": manifest.epochs,
        "segments": [
            {
                "id": each.segment_id,
                "base": each.base_offset,
                "next": each.next_offset,
                "size": each.size,
                "maxTimestamp": each.max_timestamp,
                "epochs": each.epochs,
                "leaderEpoch": each.leader_epoch,
                "state": each.state.name,
                "hasAborted": each.has_aborted,
                **({"folder": each.folder} if each.folder else {}),
            }
            for each in manifest.segments
        ],
    }
    return encode_json(content)


def decode_manifest(content: bytes) -> Manifest:
    """Raises `CorruptManifest`."""
    try:
        found = decode_json(content, FORMAT, size_max=_CONTENT_MAX)
        topic = found["topic"]
        return Manifest(
            topic=TieredTopic(
                name=str(topic["name"]),
                topic_id=bytes.fromhex(topic["id"]),
                partitions=int(topic["partitions"]),
                configs={str(name): str(value) for name, value in topic["configs"].items()},
            ),
            partition=int(found["partition"]),
            leader_epoch=int(found["leaderEpoch"]),
            changes=int(found["changes"]),
            log_start=int(found["logStartOffset"]),
            epochs=_epochs(found["epochs"]),
            segments=tuple(
                RemoteSegment(
                    segment_id=str(each["id"]),
                    base_offset=int(each["base"]),
                    next_offset=int(each["next"]),
                    size=int(each["size"]),
                    max_timestamp=int(each["maxTimestamp"]),
                    epochs=_epochs(each["epochs"]),
                    leader_epoch=int(each["leaderEpoch"]),
                    state=SegmentState[each["state"]],
                    has_aborted=bool(each["hasAborted"]),
                    folder=str(each.get("folder", "")),
                )
                for each in found["segments"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptManifest(f"not a manifest: {error!r}") from None


def _epochs(rows: Iterable[tuple[int, int]]) -> Epochs:
    return tuple((int(epoch), int(start)) for epoch, start in rows)
