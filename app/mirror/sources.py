"""Clusters to copy from: classic ones as a member of a group, current ones as members, or with offsets in a file."""

import json
import os
import threading
import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, cast

from ...core.classic.consumer.streams import StreamMessage
from ...core.classic.registry.group import Owned
from ...core.classic.registry.topic_filter import TopicFilter
from ...core.message.classic.reader import ShallowMessage
from ...core.message.message import Message
from ...ports.errors import ConfigError
from ...ports.words import TopicPartition
from ..clients.admin import Admin
from ..clients.classic.consumer_connector import ConsumerConnector
from ..clients.classic.streams import MessageStream
from ..clients.consumer import Consumer
from .taken import MirrorReader, MirrorSource, Taken

_CLASSIC_KEYS = ("zk.connect", "etcd.connect", "coordination")
OFFSETS_FILE = "offsets.file"
TOPICS_REFRESH_S = 5.0
"""How often a current-generation source is asked for new topics."""


def make_source(config: Mapping[str, Any], topics: TopicFilter, *, shallow: bool) -> MirrorSource:
    """From a consumer's configuration: classic with `zk.connect`, `etcd.connect` or `coordination`, current with
    `bootstrap.servers` and either `group.id` or `offsets.file`. Raises `ConfigError`."""
    dotted = {str(key).replace("_", "."): value for key, value in config.items()}
    classic = [key for key in _CLASSIC_KEYS if dotted.get(key)]
    if classic and dotted.get("bootstrap.servers"):
        raise ConfigError(
            f"a consumer configuration has {classic[0]} (classic) and bootstrap.servers; take one of them"
        )
    if classic:
        return ClassicSource(dotted, topics, shallow=shallow)
    if dotted.get("bootstrap.servers"):
        return _current_source(dotted, topics)
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
        """Of partitions that are still ours: of others the next owner copies again what is not committed."""
        self._connector.commit_offsets(cast("dict[Owned, int]", offsets))

    def close(self) -> None:
        self._connector.shutdown()


class _ClassicReader:
    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    @property
    def ended(self) -> bool:
        return self._stream.ended

    def take(self, max_messages: int, timeout: float) -> list[Taken]:
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


class FileSource:
    """All partitions of a cluster's topics; the offsets are kept in a file, and nothing in the cluster."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        file = settings.pop(OFFSETS_FILE)
        self._bootstrap = str(settings.pop("bootstrap.servers"))
        settings.pop("client.id", None)
        self._settings = settings
        self._topics = topics
        self._file = Path(str(file))
        self._lock = threading.Lock()
        self._offsets = _read_offsets(self._file)
        self._admin = Admin(self._bootstrap)
        self._readers: list[_FileReader] = []
        self.name = self._bootstrap

    def open(self, streams: int) -> list[MirrorReader]:
        self._readers = [_FileReader(self, number, streams) for number in range(streams)]
        return list(self._readers)

    def consumer(self) -> Consumer:
        return Consumer(self._bootstrap, config={"auto.offset.reset": "earliest", **self._settings})

    def partitions(self) -> list[TopicPartition]:
        """Of the topics that are allowed now."""
        topics = [(t.name or "", t) for t in self._admin.describe_topics() if not t.internal]
        allowed = [(name, topic) for name, topic in topics if self._topics.allows(name)]
        return sorted(TopicPartition(name, p.partition) for name, topic in allowed for p in topic.partitions)

    def offset(self, place: TopicPartition) -> int | None:
        with self._lock:
            return self._offsets.get(place)

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

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._admin.close()


class _FileReader:
    """Every n-th partition."""

    def __init__(self, source: FileSource, number: int, of: int) -> None:
        self._source = source
        self._number = number
        self._of = of
        self._consumer = source.consumer()
        self._looked_s = -TOPICS_REFRESH_S
        self.ended = False

    def take(self, max_messages: int, timeout: float) -> list[Taken]:
        if time.monotonic() - self._looked_s >= TOPICS_REFRESH_S:
            self._look_for_topics()
        if not self._consumer.assignment:
            threading.Event().wait(timeout)  # for a topic to appear
            return []
        messages = self._consumer.poll_many(max_messages, timeout)
        return [Taken(m.topic, m, TopicPartition(m.topic, m.partition), m.offset + 1) for m in messages]

    def _look_for_topics(self) -> None:
        self._looked_s = time.monotonic()
        own = [place for index, place in enumerate(self._source.partitions()) if index % self._of == self._number]
        known = set(self._consumer.assignment)
        if set(own) == known:
            return
        positions = {place: self._consumer.position(place) for place in own if place in known}
        self._consumer.assign(own, position="earliest")
        for place in own:
            start = positions.get(place, self._source.offset(place))
            self._consumer.seek(place, start if start is not None else "earliest")

    def close(self) -> None:
        self.ended = True
        self._consumer.close()


def _read_offsets(file: Path) -> dict[TopicPartition, int]:
    """Raises `ConfigError` for a file that is no offsets file."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return {TopicPartition(t, int(p)): int(offset) for t, ps in tree.items() for p, offset in ps.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{OFFSETS_FILE}={file} cannot be read: {error}") from error
