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
from ...core.tiering.group_offsets import FOLDER, GroupOffset, decode_group_offsets, newest_offsets
from ...core.tiering.manifest import MANIFEST, Manifest, RemoteSegment, decode_manifest, log_key
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.remote_storage import RemoteStorage
from ...ports.report import counted
from ...ports.types import Buffer, TopicPartition
from ...ports.values import frozen
from ..clients.admin.admin import Admin
from ..clients.admin.asker import Place
from ..clients.shared.client_shell import ClientShell
from ..clients.shared.connect import open_shell
from ..clients.shared.settings import CommonSettings, read_settings
from .identical import SOURCE_KEY

_READ_BYTES = 4_194_304
_SENT_BYTES = 524_288
_AGAIN_S = 0.1
_REMOTE_KEYS = ("remote.storage.enable", "remote.log.copy.disable", "local.retention.ms", "local.retention.bytes")
_PATIENCE_S = 60.0
_SOURCE = "remote storage"
"""The value of `mirror.source` until the topic is complete."""
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


@define
class RestoredTopic:
    """The outcome for a topic."""

    topic: str
    topic_id: str
    partitions: int
    bytes: int = 0
    offsets: int = 0
    ranges: dict[int, tuple[int, int]] = Factory(dict)
    """The first offset and the end of each partition that has records."""


class TierRestore:
    """Restores topics into a cluster that does not have them. One thread."""

    def __init__(self, storage: RemoteStorage, target: Mapping[str, Any]) -> None:
        """`target`: settings of clients, with bootstrap.servers."""
        self._storage = storage
        self._admin = Admin(config=dict(target))
        self._config = dict(target)
        self._bootstrap = self._config.pop("bootstrap.servers", None)
        self._shell = self._open_shell()

    def _open_shell(self) -> ClientShell:
        return open_shell(self._bootstrap, read_settings(CommonSettings, dict(self._config), {}))

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        self._shell.close()

    def restore(self, topic: str, parts: list[RemotePartition], moved: Callable[[int], None]) -> RestoredTopic:
        """Create the topic, and bring back what is readable of its partitions; `moved` is called with sizes.

        Raises `BarnabasError`; the topic is then a mirror still, which is not complete.
        """
        newest = max(parts, key=lambda each: each.manifest.changes).manifest.topic
        count = max([newest.partitions, *(each.manifest.partition + 1 for each in parts)])
        configs: dict[str, str | None] = {
            key: value for key, value in newest.configs.items() if key not in _REMOTE_KEYS and key != SOURCE_KEY
        }
        self._admin.create_topic(topic, partitions=count, configs={**configs, SOURCE_KEY: _SOURCE})
        outcome = RestoredTopic(topic, newest.topic_id.hex(), count)
        self._bring_all_back(topic, parts, outcome, moved)
        for part in parts:
            place = TopicPartition(topic, part.manifest.partition)
            start = part.manifest.first_readable(part.manifest.log_start)
            if start is not None:
                outcome.ranges[place.partition] = start, part.manifest.covered_to(start)
        for number in range(count):
            self._promote(TopicPartition(topic, number))
        self._admin.alter_configs(ResourceKind.TOPIC, topic, {SOURCE_KEY: None})
        remote = {key: newest.configs[key] for key in _REMOTE_KEYS if key in newest.configs}
        if remote:
            self._take_into_remote_storage(topic, remote)
        return outcome

    def restore_groups(self, restored: Iterable[RestoredTopic]) -> list[str]:
        """Commit the offsets that groups had in restored topics; one behind their end becomes their end.

        Returns what each group got, in words, or why it has none.
        """
        ranges = {
            (topic.topic_id, number): (topic.topic, *found)
            for topic in restored
            for number, found in topic.ranges.items()
        }
        by_group: dict[str, dict[Place, int]] = {}
        for each in read_group_offsets(self._storage):
            if (found := ranges.get((each.topic_id, each.partition))) is not None:
                topic, start, end = found
                by_group.setdefault(each.group, {})[TopicPartition(topic, each.partition)] = min(
                    max(each.offset, start), end
                )
        outcome = []
        for group, offsets in sorted(by_group.items()):
            try:
                self._admin.alter_group_offsets(group, offsets)
            except ApiError as error:
                outcome.append(f"not restored: the offsets of group {group}: {error.message}")
            else:
                outcome.append(f"restored group {group}: {counted(len(offsets), 'offset')}")
        return outcome

    def _take_into_remote_storage(self, topic: str, configs: Mapping[str, str]) -> None:
        try:
            self._admin.alter_topic_configs(topic, dict(configs))
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_CONFIG:
                raise  # else the cluster has no remote storage

    def _bring_all_back(
        self, topic: str, parts: Iterable[RemotePartition], outcome: RestoredTopic, moved: Callable[[int], None]
    ) -> None:
        """Bring back some partitions side by side: one reads from the store while the cluster writes another."""
        lock, failed = Lock(), Event()

        def work(part: RemotePartition) -> None:
            place, shell = TopicPartition(topic, part.manifest.partition), self._open_shell()
            try:
                for size, offsets in self._bring_back(place, part, shell):
                    with lock:
                        moved(size)
                        outcome.bytes += size
                        outcome.offsets += offsets
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
        self, place: TopicPartition, part: RemotePartition, shell: ClientShell
    ) -> Iterator[tuple[int, int]]:
        manifest = part.manifest
        offset = manifest.first_readable(manifest.log_start)
        if offset is None:
            return
        described = self._send(MirrorRecords(topic=place.topic, partition=place.partition, source=_SOURCE), shell)
        if described.log_end:
            raise ConfigError(f"{place} of the target has records already")
        if offset:
            begin = MirrorRecords(
                topic=place.topic,
                partition=place.partition,
                source=_SOURCE,
                log_end=0,
                truncate_to=offset,
                log_start=offset,
            )
            described = self._send(begin, shell)
        while (segment := manifest.find(offset)) is not None:
            for records, next_offset, epoch in self._batches(part, segment, offset):
                request = MirrorRecords(
                    topic=place.topic,
                    partition=place.partition,
                    source=_SOURCE,
                    log_end=described.log_end,
                    last_epoch=described.last_epoch,
                    leader_epoch=epoch,
                    records=records,
                )
                described = self._send(request, shell)
                yield len(records), next_offset - offset
                offset = next_offset
            offset = segment.next_offset

    def _batches(self, part: RemotePartition, segment: RemoteSegment, offset: int) -> Iterator[tuple[Buffer, int, int]]:
        """Yield (whole batches from `offset` on, the offset behind them, their last leader epoch)."""
        position, size = 0, _READ_BYTES
        key = log_key(part.folder, segment)
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

    def _promote(self, place: TopicPartition) -> None:
        """Raise the leader epoch above those of the records."""
        asked = MirrorRecords(topic=place.topic, partition=place.partition, source=_SOURCE)
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


_PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
