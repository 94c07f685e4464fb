"""Reads where the messages of tiered topics are (KIP-405): on the disks of brokers, in remote storage, or in both."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..ports.broker_api.configs import ResourceKind
from ..ports.broker_api.metadata import TopicMetadata
from ..ports.broker_api.offsets import EARLIEST_LOCAL, LATEST_TIERED
from ..ports.errors import ApiError, BarnabasError
from ..ports.types import TopicPartition
from ..ports.values import frozen
from .clients.admin.admin import Admin
from .mirror.restoring import read_partitions

KEYS = (
    "remote.storage.enable",
    "remote.log.copy.disable",
    "retention.ms",
    "retention.bytes",
    "local.retention.ms",
    "local.retention.bytes",
)
"""The settings of a topic that say which tier has what, and for how long."""
_NONE = -1


@frozen(kw_only=True)
class StoredPartition:
    """The content of one partition in remote storage, as its manifest says. `unfinished`: segments that no reader may
    use yet, or any longer."""

    segments: int
    unfinished: int
    size_bytes: int


Stored = Mapping[tuple[str, bytes, int], StoredPartition]
"""By topic, its id, and partition."""


@frozen(kw_only=True)
class TierPartition:
    """One partition of a tiered topic. Offsets are None where the cluster does not say them, sizes as well.

    The log is [start, end), its local part [local_start, end), and what remote storage has [start, copied_to).
    """

    partition: int
    start: int | None
    local_start: int | None
    copied_to: int | None
    end: int | None
    local_bytes: int | None
    stored: StoredPartition | None
    waiting_since_ms: int | None = None
    """The timestamp of the first message that is not copied yet; None: all are, or it cannot be read."""

    @property
    def is_known(self) -> bool:
        return None not in (self.start, self.local_start, self.copied_to, self.end)

    @property
    def remote_only(self) -> int:
        """The number of offsets that only remote storage has."""
        return max(0, (self.local_start or 0) - (self.start or 0)) if self.is_known else 0

    @property
    def both(self) -> int:
        """The number of offsets that both tiers have."""
        return max(0, (self.copied_to or 0) - max(self.local_start or 0, self.start or 0)) if self.is_known else 0

    @property
    def local_only(self) -> int:
        """The number of offsets that are not copied yet: at least those of the active segment."""
        return max(0, (self.end or 0) - max(self.copied_to or 0, self.start or 0)) if self.is_known else 0


@frozen(kw_only=True)
class TierTopic:
    """A tiered topic with its settings, by `KEYS`."""

    name: str
    settings: Mapping[str, str | None]
    partitions: Sequence[TierPartition]

    @property
    def unknown(self) -> int:
        """The number of partitions of which the cluster does not say all offsets."""
        return sum(not each.is_known for each in self.partitions)

    @property
    def remote_only(self) -> int:
        return sum(each.remote_only for each in self.partitions)

    @property
    def both(self) -> int:
        return sum(each.both for each in self.partitions)

    @property
    def local_only(self) -> int:
        return sum(each.local_only for each in self.partitions)

    @property
    def waiting_since_ms(self) -> int | None:
        """The timestamp of the oldest message that is not copied yet; None if there is none, or it is not known."""
        return min(
            (each.waiting_since_ms for each in self.partitions if each.waiting_since_ms is not None), default=None
        )

    @property
    def local_bytes(self) -> int | None:
        return total([each.local_bytes for each in self.partitions])

    @property
    def stored_bytes(self) -> int | None:
        return total([None if each.stored is None else each.stored.size_bytes for each in self.partitions])

    @property
    def copies(self) -> bool:
        """Return False if the topic reads what is in remote storage, and copies nothing more."""
        return self.settings.get("remote.log.copy.disable") != "true"


def total(values: Sequence[int | None]) -> int | None:
    """Return the sum of the known values; None if none is known."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


@frozen(kw_only=True)
class TierSnapshot:
    """The tiered topics at one time, sorted by name."""

    taken_ms: int
    topics: Sequence[TierTopic]


def read_tiers(admin: Admin, topics: Sequence[TopicMetadata], stored: Stored | None) -> TierSnapshot:
    """Ask the cluster for the tiers of these topics, and leave out those that are not tiered. `stored`: what
    `read_store` has found; None: it is not known. Raises `BarnabasError`."""
    settings = admin.describe_configs_of(ResourceKind.TOPIC, [each.name or "" for each in topics], KEYS)
    tiered = [each for each in topics if settings.get(each.name or "", {}).get("remote.storage.enable") == "true"]
    topic_partitions = [
        TopicPartition(topic.name or "", each.partition)
        for topic in tiered
        for each in topic.partitions
        if each.leader >= 0
    ]
    starts, local, copied, ends = (
        _offsets(admin, topic_partitions, what) for what in ("earliest", EARLIEST_LOCAL, LATEST_TIERED, "latest")
    )
    copied_to = {tp: start if copied[tp] == _NONE else copied[tp] + 1 for tp, start in starts.items() if tp in copied}
    waiting = {tp: offset for tp, offset in copied_to.items() if offset < ends.get(tp, offset)}
    since = admin.record_timestamps(waiting) if waiting else {}
    sizes = _local_sizes(admin, tiered)

    def partition(topic: TopicMetadata, number: int) -> TierPartition:
        tp = TopicPartition(topic.name or "", number)
        since_ms = since.get(tp, _NONE)
        return TierPartition(
            partition=number,
            start=starts.get(tp),
            local_start=local.get(tp),
            copied_to=copied_to.get(tp),
            end=ends.get(tp),
            local_bytes=sizes.get(tp),
            stored=None if stored is None else stored.get((tp.topic, bytes(topic.topic_id), number)),
            waiting_since_ms=None if since_ms < 0 else since_ms,
        )

    found = [
        TierTopic(
            name=topic.name or "",
            settings=settings[topic.name or ""],
            partitions=[partition(topic, number) for number in sorted(each.partition for each in topic.partitions)],
        )
        for topic in sorted(tiered, key=lambda each: each.name or "")
    ]
    return TierSnapshot(taken_ms=time.time_ns() // 1_000_000, topics=found)


def _offsets(admin: Admin, partitions: Sequence[TopicPartition], what: int | str) -> Mapping[TopicPartition, int]:
    """Return the offsets that the cluster says; none from one that does not know this kind."""
    if not partitions:
        return {}
    try:
        return admin.list_offsets(dict.fromkeys(partitions, what), skip_errors=True)
    except ApiError:
        return {}


def _local_sizes(admin: Admin, topics: Sequence[TopicMetadata]) -> dict[TopicPartition, int]:
    """Return the bytes of the leaders' replicas; none where the user may not know them."""
    leaders = {
        TopicPartition(topic.name or "", each.partition): each.leader for topic in topics for each in topic.partitions
    }
    wanted: Any = {topic.name or "": [each.partition for each in topic.partitions] for topic in topics}
    sizes: dict[TopicPartition, int] = {}
    try:
        described = admin.describe_log_dirs(sorted({each for each in leaders.values() if each >= 0}), wanted)
    except BarnabasError:
        return sizes
    for node, folders in described.items():
        for replica in (replica for folder in folders for replica in folder.replicas):
            tp = TopicPartition(replica.topic, replica.partition)
            if leaders.get(tp) == node and not replica.is_future:
                sizes[tp] = replica.size_bytes
    return sizes


def read_store(url: str) -> Stored:
    """Return what the manifests in a remote storage say, as `barnabas log tier status` does. Raises `BarnabasError`."""
    from .compose.remote_storage import opened_for_command

    with opened_for_command(url) as storage:
        return {
            (each.manifest.topic.name, bytes(each.manifest.topic.topic_id), each.manifest.partition): StoredPartition(
                segments=len(each.manifest.readable),
                unfinished=len(each.manifest.segments) - len(each.manifest.readable),
                size_bytes=each.size,
            )
            for each in read_partitions(storage)
        }
