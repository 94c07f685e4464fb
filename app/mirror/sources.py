"""Clusters to copy from: classic ones as a member of a group, current ones as members, or with offsets in a file."""

import json
import os
import threading
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...core.classic.consumer.streams import StreamMessage
from ...core.classic.registry.group import Owned
from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.consumer.subscription_state import AtOffset
from ...core.message.classic.reader import ShallowMessage
from ...core.message.message import Message
from ...ports.errors import ConfigError
from ...ports.types import TopicPartition
from ..clients.classic.consumer_connector import ConsumerConnector
from ..clients.classic.streams import MessageStream
from .assigned import AssignedSource
from .taken import MirrorReader, MirrorSource, Taken, dotted

_CLASSIC_KEYS = ("zk.connect", "etcd.connect", "coordination")
OFFSETS_FILE = "offsets.file"


def make_source(config: Mapping[str, Any], topics: TopicFilter, *, shallow: bool) -> MirrorSource:
    """Make a source of a consumer's configuration: classic with `zk.connect`, `etcd.connect` or `coordination`, current
    with `bootstrap.servers` and either `group.id` or `offsets.file`. Raises `ConfigError`."""
    settings = dotted(config)
    classic = [key for key in _CLASSIC_KEYS if settings.get(key)]
    if classic and settings.get("bootstrap.servers"):
        raise ConfigError(
            f"a consumer configuration has {classic[0]} (classic) and bootstrap.servers; take one of them"
        )
    if classic:
        return ClassicSource(settings, topics, shallow=shallow)
    if settings.get("bootstrap.servers"):
        return _current_source(settings, topics)
    raise ConfigError("a consumer configuration needs zk.connect or etcd.connect (classic), or bootstrap.servers")


def _current_source(config: Mapping[str, Any], topics: TopicFilter) -> MirrorSource:
    group = config.get("group.id") or config.get("groupid")
    file = config.get(OFFSETS_FILE)
    if bool(group) == bool(file):
        raise ConfigError(
            f"a source with bootstrap.servers keeps its offsets in a group (group.id=NAME) or in a file "
            f"({OFFSETS_FILE}=PATH); give one of them, not {'both' if group else 'none'}"
        )
    if file:
        return FileSource(config, topics)
    from .group_source import GroupSource

    return GroupSource(config, topics)


class ClassicSource:
    """A member of a consumer group: several mirrors of one group share the partitions."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter, *, shallow: bool) -> None:
        settings = {key: value for key, value in config.items() if key != "coordination"}
        settings["autocommit.enable"] = False  # else a rebalance would commit what the target has not got
        settings.setdefault("shallowiterator.enable", shallow)
        if settings["shallowiterator.enable"] in (True, "true") and not shallow:
            raise ConfigError("shallowiterator.enable=true needs a classic target, which knows compressed wrappers")
        self._topics = topics
        self._connector = ConsumerConnector(coordination=config.get("coordination"), config=settings)
        self.name = f"group {self._connector.settings.groupid}"

    def open(self, streams: int) -> list[MirrorReader]:
        return [
            _ClassicReader(stream) for stream in self._connector.create_message_streams_by_filter(self._topics, streams)
        ]

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Commit offsets of partitions still ours; the next owner of others copies again what is not committed."""
        self._connector.commit_offsets(cast("dict[Owned, int]", offsets))

    def close(self) -> None:
        self._connector.shutdown()


class _ClassicReader:
    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self.consumer = None

    @property
    def ended(self) -> bool:
        return self._stream.ended

    def poll_messages(self, max_messages: int, timeout: float) -> list[Taken]:
        first = self._stream.poll(timeout)
        taken: list[Taken] = []
        message = first
        while message is not None:
            taken.append(_of_stream(message))
            message = self._stream.poll() if len(taken) < max_messages else None
        return taken


def _of_stream(message: StreamMessage) -> Taken:
    place = (message.topic, message.place)
    if message.codec_id:
        content: Message | ShallowMessage = ShallowMessage(message.value, message.codec_id)
    else:
        content = Message(message.value)
    return Taken(message.topic, content, place, message.offset)


class FileSource(AssignedSource):
    """The offsets are kept in a file, and nothing in the cluster."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        self._file = Path(str(settings.pop(OFFSETS_FILE)))
        self._lock = threading.Lock()
        self._offsets = _read_offsets(self._file)
        super().__init__(settings, topics)

    def start_of(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
        with self._lock:
            return {place: AtOffset(self._offsets[place]) for place in places if place in self._offsets}

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """The file holds the old content or the new one, whole."""
        with self._lock:
            self._offsets.update(cast("dict[TopicPartition, int]", offsets))
            tree: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in sorted(self._offsets.items()):
                tree.setdefault(topic, {})[str(partition)] = offset
            draft = self._file.with_name(self._file.name + ".tmp")
            with draft.open("w", encoding="utf-8") as file:
                json.dump(tree, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._file)


def _read_offsets(file: Path) -> dict[TopicPartition, int]:
    """Raises `ConfigError` for a file that is no offsets file."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return {TopicPartition(t, int(p)): int(offset) for t, ps in tree.items() for p, offset in ps.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{OFFSETS_FILE}={file} cannot be read: {error}") from error
