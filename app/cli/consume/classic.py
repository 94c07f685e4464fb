"""`barnabas consume` with brokers of the classic generation."""

import sys
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ....core.message.message import Message
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.coordination import CoordinationError
from ....ports.errors import BarnabasError, ConfigError
from ..classic import ClusterChoice, open_simple, warn
from .progress import COMMIT_S, Extent, Progress, Show, Start, stopping

if TYPE_CHECKING:
    from ...clients.classic.consumer_connector import ConsumerConnector
    from ...clients.classic.simple_consumer import ClassicSimpleConsumer
    from ...clients.classic.streams import MessageStream

ASK_AGAIN_S = 0.1
"""A classic broker answers at once, even without messages."""
_RESETS = {"earliest": "smallest", "latest": "largest"}


def read_broker(
    bootstrap: str,
    topic: str,
    partitions: Collection[int],
    extent: Extent,
    settings: Mapping[str, str],
    show: Show,
) -> None:
    """Print partitions of one broker. Raises `ConfigError`, `ApiError`, `TransportError`."""
    if extent.until_ms is not None:
        raise ConfigError("--until: messages of classic brokers have no timestamps")
    with open_simple(bootstrap, settings) as consumer:
        at = {number: _offset(consumer, topic, number, extent.start) for number in partitions}
        ends = None
        if extent.stop_at_end:
            ends = {number: consumer.offset_at(topic, number, LATEST) for number in at}
        progress = Progress(extent)
        while at:
            if ends is not None:
                at = {number: offset for number, offset in at.items() if offset < ends[number]}
            if not _read_once(consumer, topic, at, ends, progress, show) or progress.timed_out:
                return


def _read_once(
    consumer: "ClassicSimpleConsumer",
    topic: str,
    at: dict[int, int],
    ends: Mapping[int, int] | None,
    progress: Progress,
    show: Show,
) -> bool:
    """Print the available messages, and advance `at`. Return False when the extent is read."""
    came = False
    for number, offset in at.items():
        limit = None if ends is None else min(consumer.settings.fetch_size, ends[number] - offset)
        found = consumer.fetch(topic, number, offset, limit)
        for message in found:
            show(message, None)
            if progress.got():
                return False
        at[number] = found.next_offset
        came = came or found.next_offset > offset
    if at and not came:
        sys.stdout.buffer.flush()
        time.sleep(ASK_AGAIN_S)
    return True


def _offset(consumer: "ClassicSimpleConsumer", topic: str, partition: int, start: Start) -> int:
    if start.word is not None:
        return consumer.offset_at(topic, partition, EARLIEST if start.word == "earliest" else LATEST)
    if start.offset is not None:
        return start.offset
    if start.time_ms is None:
        raise ConfigError("--from: offsets of classic brokers are byte positions, so the last N messages are unknown")
    # The base offset of a segment: messages of this generation have no timestamp.
    found = consumer.offset_at(topic, partition, start.time_ms)
    return found if found >= 0 else consumer.offset_at(topic, partition, EARLIEST)


def read_group(
    cluster: ClusterChoice,
    group: str,
    wanted: Mapping[str, str],
    extent: Extent,
    settings: Mapping[str, str],
    show: Show,
) -> None:
    """Print the messages that a member of a consumer group receives, until SIGTERM or Ctrl-C.

    `wanted` has one of topic, whitelist and blacklist. Messages are committed after they are printed. Raises
    `ConfigError`, `CoordinationError`, and the error of a partition.
    """
    word = extent.start.word
    if extent.stop_at_end or extent.until_ms is not None or word is None:
        raise ConfigError(
            "in a group, --stop-at-end, --until and --from with an offset or a time mean nothing; use --timeout"
        )
    from ...clients.classic.consumer_connector import ConsumerConnector

    config = {"autocommit.enable": "false", "autooffset.reset": _RESETS[word], "groupid": group, **settings}
    with stopping() as stopped, ConsumerConnector(**_where(cluster), config=config) as connector:
        topic = wanted.get("topic")
        if topic is not None:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
        else:
            (stream,) = connector.create_message_streams_by_filter(
                whitelist=wanted.get("whitelist"), blacklist=wanted.get("blacklist")
            )
        try:
            _read_stream(connector, stream, stopped, Progress(extent), show)
        except BarnabasError:
            _save(connector)
            raise
        _save(connector)


def _where(cluster: ClusterChoice) -> dict[str, Any]:
    if "broker_list" in cluster.places or cluster.bootstrap is not None:
        raise ConfigError("--group: classic groups need --zk-connect, --etcd-connect or --coordination")
    return dict(cluster.places)


def _read_stream(
    connector: "ConsumerConnector", stream: "MessageStream", stopped: list[int], progress: Progress, show: Show
) -> None:
    from ....core.classic.consumer.settings import ConsumerRebalanceFailed

    saved = time.monotonic()
    new = False
    while not stopped:
        try:
            message = stream.poll(0 if new else ASK_AGAIN_S)
        except ConsumerRebalanceFailed as error:
            warn("%s", error)
            continue
        if message is not None:
            show(
                Message(message.value, topic=message.topic, partition=message.partition, offset=message.offset),
                message.broker_id,
            )
            new = True
            if progress.got():
                return
        if new and (message is None or time.monotonic() - saved >= COMMIT_S):
            try:
                _save(connector)
            except CoordinationError as error:
                warn("the offsets are not committed, which is tried again: %s", error)
            saved = time.monotonic()
            new = False
        if message is None and progress.timed_out:
            return


def _save(connector: "ConsumerConnector") -> None:
    sys.stdout.buffer.flush()
    connector.commit_offsets()
