"""Topics brought back from remote storage alone, with the same offsets, batches and leader epochs.

The manifests say what is there. A new topic gets it as a mirror does (`MirrorRecords`), and is promoted at the end.
What was not copied before the loss is not there: the newest segment of each partition, and later offsets of groups.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

from attrs import Factory, define, evolve

from ...core.message.batch_reader import whole_batches
from ...core.replica.follower.partition_fetch_state import records_of
from ...core.tiering.group_offsets import FOLDER, GroupOffset, decode_group_offsets, newest_offsets
from ...core.tiering.manifest import (
    MANIFEST,
    Manifest,
    RemoteSegment,
    TieredTopic,
    decode_manifest,
    indexes_key,
    log_key,
)
from ...core.tiering.segment_objects import SegmentIndexes
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from ...ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.remote_storage import RemoteStorage, RemoteStorageError
from ...ports.types import Buffer, TopicPartition
from ...ports.values import frozen
from ..clients.admin.admin import Admin
from ..clients.admin.asker import TopicPartitionLike
from ..clients.shared.client_shell import ClientShell
from ..clients.shared.connect import open_shell
from ..clients.shared.settings import CommonSettings, read_settings
from .identical import SOURCE_KEY

_READ_BYTES = 4_194_304
_SENT_BYTES = 524_288
_AGAIN_S = 0.1
_READ_ONLY_KEY = "remote.storage.source"
_REMOTE_KEYS = ("remote.storage.enable", "remote.log.copy.disable", "local.retention.ms", "local.retention.bytes")
_PATIENCE_S = 60.0
_SOURCE = "remote storage"
"""The value of `mirror.source` until the topic is complete, before the id that it had."""
_ATTEMPTS = 10
"""The partition's end is asked for so often without a record that it took since."""
_SIDE_BY_SIDE = 4
"""The number of partitions that come back at the same time."""


@frozen(kw_only=True)
class RemotePartition:
    """A manifest, and the folder of its objects."""

    folder: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes of its readable segments."""
        return sum(each.size for each in self.manifest.readable)


def read_partitions(storage: RemoteStorage) -> list[RemotePartition]:
    """Return everything that the manifests in a remote storage describe. Raises `RemoteStorageError`, `ConfigError`."""
    found = []
    for each in storage.list_objects(""):
        folder, _, name = each.key.rpartition("/")
        if name == MANIFEST:
            try:
                found.append(RemotePartition(folder=folder, manifest=decode_manifest(storage.read(each.key).content)))
            except ValueError as error:
                raise ConfigError(f"{each.key}: {error}") from error
    return found


def read_group_offsets(storage: RemoteStorage) -> list[GroupOffset]:
    """Return the offsets of groups as of the last copy. Raises `RemoteStorageError`, `ConfigError`."""
    found = []
    for each in storage.list_objects(FOLDER):
        try:
            found.append(decode_group_offsets(storage.read(each.key).content))
        except ValueError as error:
            raise ConfigError(f"{each.key}: {error}") from error
    return newest_offsets(found)


@frozen
class _Piece:
    """A part of a partition that the cluster has now."""

    size: int
    offsets: int
    was_there: bool = False


@define
class RestoredTopic:
    """The outcome for a topic."""

    topic: str
    partitions: int
    bytes: int = 0
    offsets: int = 0
    bytes_before: int = 0
    """The part of `bytes` that an interrupted restore had brought back."""
    was_complete: bool = False
    """True: the cluster had the topic, with all that remote storage has, and nothing was done."""
    groups: int = 0
    """The groups that got their offsets in the topic."""
    notes: list[str] = Factory(list)
    """Each names something that was not restored, and says why."""


class TierRestore:
    """Restores topics into a cluster that does not have them, or has a part from a restore that was interrupted. One
    thread."""

    def __init__(self, storage: RemoteStorage, target: Mapping[str, Any]) -> None:
        """`target`: settings of clients, with bootstrap.servers."""
        self._storage = storage
        self._admin = Admin(config=dict(target))
        self._config = dict(target)
        self._bootstrap = self._config.pop("bootstrap.servers", None)
        self._shell = self._open_shell()
        self._group_offsets: list[GroupOffset] | None = None

    def _open_shell(self) -> ClientShell:
        return open_shell(self._bootstrap, read_settings(CommonSettings, dict(self._config), {}))

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        self._shell.close()

    def topic_ids(self) -> set[str]:
        """Return the ids of the cluster's topics, in hexadecimal digits. Raises `BarnabasError`."""
        return {each.topic_id.hex() for each in self._admin.describe_topics()}

    def restore(self, topic: str, parts: list[RemotePartition], moved: Callable[[int], None]) -> RestoredTopic:
        """Create the topic, and bring back what is readable of its partitions; `moved` is called with sizes.

        Raises `BarnabasError`; the topic is then a mirror still, which the next call continues.
        """
        newest = max(parts, key=lambda each: each.manifest.changes).manifest.topic
        count = max([newest.partitions, *(each.manifest.partition + 1 for each in parts)])
        source = f"{_SOURCE} {newest.topic_id.hex()}"
        outcome = RestoredTopic(topic, count)
        if not self._begin(topic, parts, newest, count, source):
            outcome.was_complete = True
            return outcome
        self._bring_all_back(topic, parts, source, outcome, moved)
        # Before producers are let in: a restore that was interrupted here sets the offsets again.
        self._restore_groups(topic, newest.topic_id, parts, outcome)
        for number in range(count):
            self._promote(TopicPartition(topic, number), source)
        remote = {key: newest.configs[key] for key in _REMOTE_KEYS if key in newest.configs}
        self._open_to_producers(topic, remote, outcome)
        return outcome

    def _begin(
        self, topic: str, parts: Iterable[RemotePartition], newest: TieredTopic, count: int, source: str
    ) -> bool:
        """Create the topic, or find what an interrupted restore has left; False: the cluster has all of it."""
        there = {each.name: each for each in self._admin.describe_topics()}.get(topic)
        if there is None:
            configs: dict[str, str | None] = {
                key: value for key, value in newest.configs.items() if key not in _REMOTE_KEYS and key != SOURCE_KEY
            }
            self._admin.create_topic(topic, partitions=count, configs={**configs, SOURCE_KEY: source})
            return True
        overrides = self._admin.topic_overrides(topic)
        known = overrides.get(SOURCE_KEY)
        if _READ_ONLY_KEY in overrides:
            raise ConfigError(
                f"topic {topic} of the cluster is read-only, and only shows what remote storage has: delete it there, "
                "which deletes nothing in the store, then run the command again, or name the others"
            )
        if known == source and len(there.partitions) == count:
            return True
        if known:
            what = f"the cluster has a part of another topic {topic} ({known})"
            raise ConfigError(f"{what}: delete it there, then run the command again")
        ends = {TopicPartition(topic, each.manifest.partition): each.manifest.readable_range[1] for each in parts}
        numbers = {each.partition for each in there.partitions}
        if all(tp.partition in numbers for tp in ends):
            found = self._admin.list_offsets(dict.fromkeys(ends, "latest"))
            if all(found[tp] >= end for tp, end in ends.items()):
                if there.topic_id != newest.topic_id:  # else it is the topic itself, and cares for its manifest
                    self._check_same(topic, parts)
                return False
        raise ConfigError(
            f"the cluster has a topic {topic}, with fewer messages than the store: delete it there, or name the others"
        )

    def _check_same(self, topic: str, parts: Iterable[RemotePartition]) -> None:
        """Compare a topic that is not being restored with remote storage, by the first and the last batch that both
        have, and the last one before the newest leader epoch. Raises `ConfigError` if one of them is another one.

        What the cluster has deleted since the restore is not compared.
        """
        stored = {TopicPartition(topic, each.manifest.partition): each for each in parts if each.manifest.readable}
        starts = self._admin.list_offsets(dict.fromkeys(stored, "earliest"))
        for tp, part in stored.items():
            first, end = part.manifest.readable_range
            start = max(first, starts[tp])
            newest = max((each for _, each in part.manifest.epochs if start < each < end), default=end)
            for offset in sorted({start, newest - 1, end - 1}) if start < end else ():
                piece = next(self._batches(part, offset), None)
                if piece is None:
                    continue  # the batches at the end of a segment were compacted away
                found = self._batch_at(tp, offset)
                if found is not None and found != piece[0][: len(found)]:
                    raise ConfigError(
                        f"the cluster has another topic {topic}: its batch at offset {offset} of {tp} is not the one "
                        "in remote storage: delete the topic there if it is not needed, then run the command again, "
                        "or restore into another cluster, or name the others"
                    )

    def _batch_at(self, tp: TopicPartition, offset: int) -> bytes | None:
        """Return the batch of the cluster with that offset, or the next one if it was compacted away; None if it has
        been deleted. Raises `BarnabasError`."""
        asked = Fetch(partitions=[FetchPartition(tp.topic, tp.partition, offset, 1)])
        end = time.monotonic() + _PATIENCE_S
        while True:
            (found,) = self._shell.ask_leaders([asked], lambda _: tp, lambda group: group[0], _fetched)
            if isinstance(found, ApiError) and found.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            if isinstance(found, BarnabasError):
                raise found
            records = records_of(found)
            for at, header in whole_batches(records):
                if header.next_offset > offset:
                    return bytes(records[at : at + header.size])
            if time.monotonic() > end:
                raise BarnabasError(f"{tp}: the cluster does not send the batch at offset {offset}")
            time.sleep(_AGAIN_S)  # it may be in a remote storage that is slow

    def _restore_groups(
        self, topic: str, topic_id: bytes, parts: Iterable[RemotePartition], outcome: RestoredTopic
    ) -> None:
        """Commit the offsets that groups had in the topic; one behind its end becomes its end."""
        if self._group_offsets is None:
            self._group_offsets = read_group_offsets(self._storage)
        ranges = {each.manifest.partition: each.manifest.readable_range for each in parts if each.manifest.readable}
        by_group: dict[str, dict[TopicPartitionLike, int]] = {}
        for each in self._group_offsets:
            if each.topic_id == topic_id.hex() and (found := ranges.get(each.partition)) is not None:
                start, end = found
                by_group.setdefault(each.group, {})[TopicPartition(topic, each.partition)] = min(
                    max(each.offset, start), end
                )
        for group, offsets in sorted(by_group.items()):
            try:
                self._admin.alter_group_offsets(group, offsets)
            except ApiError as error:
                outcome.notes.append(f"not restored: the offsets of group {group} in {topic}: {error.message}")
            else:
                outcome.groups += 1

    def _open_to_producers(self, topic: str, remote: Mapping[str, str], outcome: RestoredTopic) -> None:
        """Make a topic of its own out of the mirror, in one step with its settings of remote storage."""
        own: dict[str, str | None] = {SOURCE_KEY: None}
        try:
            self._admin.alter_configs(ResourceKind.TOPIC, topic, {**own, **remote})
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_CONFIG or not remote:
                raise
            outcome.notes.append(f"{topic} is not in remote storage here: {error.message}")
            self._admin.alter_configs(ResourceKind.TOPIC, topic, own)

    def _bring_all_back(
        self,
        topic: str,
        parts: Iterable[RemotePartition],
        source: str,
        outcome: RestoredTopic,
        moved: Callable[[int], None],
    ) -> None:
        """Bring back some partitions side by side: one reads from the store while the cluster writes another."""
        lock, failed = Lock(), Event()

        def work(part: RemotePartition) -> None:
            tp, shell = TopicPartition(topic, part.manifest.partition), self._open_shell()
            try:
                for piece in self._bring_back(tp, part, source, shell):
                    with lock:
                        moved(piece.size)
                        outcome.bytes += piece.size
                        outcome.offsets += piece.offsets
                        outcome.bytes_before += piece.size if piece.was_there else 0
                    if failed.is_set():
                        return
            except BaseException:
                failed.set()
                raise
            finally:
                shell.close()

        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="restore") as pool:
            under_way = [pool.submit(work, part) for part in parts]
            try:
                for each in under_way:
                    each.result()
            except BaseException:
                failed.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _bring_back(
        self, tp: TopicPartition, part: RemotePartition, source: str, shell: ClientShell
    ) -> Iterator[_Piece]:
        """Send what the partition lacks, from its end on; again from there if it is not where it was known to be."""
        start, end = part.manifest.readable_range
        if not part.manifest.readable:
            return
        asked = MirrorRecords(topic=tp.topic, partition=tp.partition, source=source)
        known = self._send(asked, shell)
        yield self._found_there(tp, part, known)
        attempts = 0
        while True:
            try:
                if known.log_end < start:
                    begin = evolve(
                        asked, log_end=known.log_end, last_epoch=known.last_epoch, truncate_to=start, log_start=start
                    )
                    known = self._send(begin, shell)
                while known.log_end < end:
                    for records, next_offset, epoch in self._batches(part, known.log_end):
                        before = known.log_end
                        request = evolve(
                            asked, log_end=before, last_epoch=known.last_epoch, leader_epoch=epoch, records=records
                        )
                        known = self._send(request, shell)
                        attempts = 0
                        yield _Piece(len(records), next_offset - before)
                return
            except ApiError as error:
                # An answer was lost, or the leader died before another broker had the newest records.
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or attempts == _ATTEMPTS:
                    raise
                attempts += 1
                known = self._send(asked, shell)
                self._check_lineage(tp, part, known)

    def _found_there(self, tp: TopicPartition, part: RemotePartition, known: MirrorRecordsResult) -> _Piece:
        """Return what the partition has of it already, with about its size. Raises `ConfigError` if that is something
        else."""
        start, end = part.manifest.readable_range
        if known.log_end <= start:
            return _Piece(0, 0, was_there=True)
        self._check_lineage(tp, part, known)
        size, offset = 0, start
        while offset < known.log_end and (segment := part.manifest.find(offset)) is not None:
            found = min(known.log_end, segment.next_offset) - segment.base_offset
            size += segment.size * found // (segment.next_offset - segment.base_offset)
            offset = segment.next_offset
        return _Piece(size, min(known.log_end, end) - start, was_there=True)

    def _check_lineage(self, tp: TopicPartition, part: RemotePartition, known: MirrorRecordsResult) -> None:
        """Raise `ConfigError` if what the partition has is not the beginning of what remote storage has."""
        start, end = part.manifest.readable_range
        if known.log_end <= start:
            return
        epoch = max((epoch for epoch, first in part.manifest.epochs if first < known.log_end), default=-1)
        if known.log_end > end or known.last_epoch != epoch:
            what = f"{tp} ends at {known.log_end} in leader epoch {known.last_epoch}"
            raise ConfigError(
                f"{what}, which is not in remote storage: delete the topic in the cluster, then run the command again"
            )

    def _position(self, part: RemotePartition, segment: RemoteSegment, offset: int) -> int:
        """Return a position at or before the batch with this offset; 0 if the indexes cannot be read."""
        try:
            content = self._storage.read(indexes_key(part.folder, segment)).content
            return SegmentIndexes(content, segment.base_offset).position_of(offset)
        except (RemoteStorageError, ValueError):
            return 0

    def _batches(self, part: RemotePartition, offset: int) -> Iterator[tuple[Buffer, int, int]]:
        """Yield (whole batches from `offset` on to the end of its segment, the offset behind them, their last leader
        epoch)."""
        segment = part.manifest.find(offset)
        if segment is None:
            raise BarnabasError(f"remote storage does not have offset {offset} of {part.folder}")
        position = self._position(part, segment, offset) if offset > segment.base_offset else 0
        size, key = _READ_BYTES, log_key(part.folder, segment)
        while position < segment.size:
            content = self._storage.get_range(key, position, size)
            batches = list(whole_batches(content))
            if not batches:
                if len(content) < size:
                    raise BarnabasError(f"{key} is damaged at position {position}")
                size *= 2
                continue
            begin, epoch = 0, -1
            for number, (at, header) in enumerate(batches):
                end, last = at + header.size, number + 1 == len(batches)
                if header.next_offset <= offset:
                    begin = end
                    continue
                epoch = max(epoch, header.leader_epoch)
                if end - begin >= _SENT_BYTES or last:
                    yield content[begin:end], header.next_offset, epoch
                    begin = end
            position, size = position + batches[-1][0] + batches[-1][1].size, _READ_BYTES

    def _promote(self, tp: TopicPartition, source: str) -> None:
        """Raise the leader epoch above those of the records."""
        asked = MirrorRecords(topic=tp.topic, partition=tp.partition, source=source)
        known = self._send(asked, self._shell)
        self._send(evolve(asked, leader_epoch=max(known.last_epoch, known.leader_epoch) + 1), self._shell)

    def _send(self, request: MirrorRecords, shell: ClientShell) -> MirrorRecordsResult:
        """Send a request to the leader, again while it has no leader or its epoch is being raised."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            (found,) = shell.ask_leaders(
                [request],
                lambda item: TopicPartition(item.topic, item.partition),
                lambda group: group[0],
                lambda result: [(ErrorCode.NONE, result)],
            )
            if isinstance(found, MirrorRecordsResult) and found.error is ErrorCode.NONE:
                return found
            error: BarnabasError = (
                ApiError(found.error, found.error_message or "") if isinstance(found, MirrorRecordsResult) else found
            )
            may_pass = not isinstance(error, ApiError) or error.code in _PASSING
            if not may_pass or time.monotonic() > end:
                raise error
            time.sleep(_AGAIN_S)


def _fetched(result: FetchResult) -> list[tuple[ErrorCode, FetchResultPartition]]:
    return [(each.error, each) for each in result.partitions]


_PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
