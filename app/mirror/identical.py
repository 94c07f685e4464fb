"""Identical mirrors: topics of another cluster with the same offsets, batches, control records and leader epochs.

What is fetched from the source goes to the leaders of the target as it is (`MirrorRecords`). The target's logs are the
only state: a mirror that was stopped or killed resumes at their ends, and a second one at once does no harm, since a
request names the log end that it continues.
"""

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from ...core.message.batch_header import BatchHeader
from ...core.message.batch_reader import whole_batches
from ...core.message.legacy_records import GROUP_BYTES, convert_records, is_legacy
from ...ports.broker_api.acls import AclBinding, AclBindingFilter
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.epochs import EpochEndOffset, OffsetForLeaderEpoch, OffsetForLeaderPartition
from ...ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from ...ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from ...ports.broker_api.offsets import EARLIEST, LATEST, ListOffsets, ListOffsetsPartition, ListOffsetsResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ...ports.values import frozen
from ..clients.admin.admin import Admin
from ..clients.admin.asker import TopicPartitionLike
from ..clients.admin.quotas import ClientQuotaAlteration, entity_text
from ..clients.shared.client_shell import ClientShell
from ..clients.shared.connect import open_shell, plugin_host
from ..clients.shared.settings import CommonSettings, read_settings
from ..logs import log_report

SOURCE_KEY = "mirror.source"
FETCH_BYTES = 1 << 20
"""The most bytes of a partition in one fetch and one append."""
WAIT_MS = 200
FOLLOW_S = 5.0
"""Time between two looks at settings, ACLs and offsets of groups."""
RETRY_S = 1.0
EPOCHS_OF_PROMOTION = 1 << 16
"""Each promotion begins such a range of leader epochs. The elections of two clusters then never give the same epoch to
different records, and the side that was promoted last has the higher range."""
_TAKEN_AGAIN = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE})


_Entity = tuple[tuple[str, str | None], ...]
"""The types and names of an entity that a quota limits."""
_QuotaChanges = dict[_Entity, dict[str, float | None]]


@define
class MirroredPartition:
    """The progress of one partition. `log_end` is that of the target; -1: unknown."""

    tp: TopicPartition
    log_start: int = -1
    log_end: int = -1
    high_watermark: int = -1
    last_epoch: int = -1
    leader_epoch: int = -1
    source_end: int = -1
    is_verified: bool = False
    """True once the target's log is known to be the beginning of the source's."""

    @property
    def lag(self) -> int:
        """The number of offsets that the target does not have yet."""
        return max(0, self.source_end - self.log_end)

    @property
    def is_complete(self) -> bool:
        """True if all replicas in sync have what the source had at the last fetch."""
        return self.is_verified and self.log_end >= self.source_end >= 0 and self.high_watermark >= self.log_end

    def update(self, found: MirrorRecordsResult) -> None:
        """Take the state of the target's leader, which a refused request has as well."""
        if found.log_end < 0:
            return
        self.log_start, self.log_end, self.high_watermark = found.log_start, found.log_end, found.high_watermark
        self.last_epoch, self.leader_epoch = found.last_epoch, found.leader_epoch


@frozen(kw_only=True)
class MirrorDifference:
    """A difference between source and target, or what a mirror would do about it; of a topic, or of the clusters."""

    topic: str = ""
    text: str


@define
class MirrorTotals:
    """The totals of a mirror since its start."""

    batches: int = 0
    bytes: int = 0
    truncations: int = 0
    topics: set[str] = field(factory=set)


class IdenticalMirror:
    """Mirrors the topics of a cluster whose names match. Its methods are for one thread; `stop` for any."""

    def __init__(
        self, source: Mapping[str, Any], target: Mapping[str, Any], *, topics: str, overwrite: bool = False
    ) -> None:
        """`source` and `target`: settings of clients, with bootstrap.servers. `topics`: a regular expression.

        `overwrite`: topics that the target has already become mirrors, and lose what the source does not have, unless
        they were promoted, and those of the source not since then. Raises `ConfigError`.
        """
        try:
            self._wanted = re.compile(topics)
        except re.error as error:
            raise ConfigError(f"the topics {topics!r} are no regular expression: {error}") from error
        self._overwrite = overwrite
        self._stopped = threading.Event()
        self.partitions: dict[TopicPartition, MirroredPartition] = {}
        self.copied = MirrorTotals()
        self._acls: set[AclBinding] = set()
        self._quotas: dict[_Entity, dict[str, float]] = {}
        self._notes: set[str] = set()
        self._begun: set[str] = set()
        """Topics that this run has mirrored: one that is no mirror any longer was promoted, and is not overwritten."""
        self._ended: set[str] = set()
        """Topics that this run has promoted: they never become mirrors again in it."""
        self._source = Admin(config=dict(source))
        self._target = Admin(config=dict(target))
        self._from = _shell(source)
        self._to = _shell(target)
        self._codecs = plugin_host(()).codecs()
        self._cluster_id = self._source.describe_cluster().cluster_id or "unknown"

    def close(self) -> None:
        """Close all connections."""
        for each in (self._source, self._target, self._from, self._to):
            each.close()

    def stop(self) -> None:
        """Let `run` return soon. Any thread."""
        self._stopped.set()

    def run(self) -> None:
        """Mirror until `stop`: new topics, messages, settings, ACLs and offsets of groups. Errors that may pass are
        reported, and tried again."""
        next_follow = 0.0
        while not self._stopped.is_set():
            try:
                if time.monotonic() >= next_follow:
                    self.follow()
                    next_follow = time.monotonic() + FOLLOW_S
                self.copy_once()
            except BarnabasError as error:
                self._note(f"mirroring: {error}")
                self._stopped.wait(RETRY_S)

    # --- topics

    def topics(self) -> list[str]:
        """Return the topics of the source that are wanted; internal ones are never."""
        return [name for name in self._source.list_topics() if self._wanted.fullmatch(name)]

    def begin(self) -> None:
        """Create the topics that the target lacks, and find the log ends of all. Raises `BarnabasError`."""
        there = {topic.name: topic for topic in self._target.describe_topics()}
        wanted = self.topics()
        for name in self.copied.topics - set(wanted):
            self._leave(name, "the source does not list it now")  # a broker that has just started lists none
        for topic in self._source.describe_topics(wanted):
            name, count = topic.name or "", len(topic.partitions)
            if name in self._ended:
                continue
            if name not in there:
                self._create(name, count)
            elif name in self.copied.topics:
                if self._target.topic_overrides(name).get(SOURCE_KEY) != self._cluster_id:
                    self._leave(name, "it was promoted")
                    continue
            elif not self._join(name, min(count, len(there[name].partitions))):
                continue
            if name in there and len(there[name].partitions) < count:
                self._target.create_partitions(name, count)
            self.copied.topics.add(name)
            self._begun.add(name)
            for number in range(count):
                tp = TopicPartition(name, number)
                self.partitions.setdefault(tp, MirroredPartition(tp))

    def _leave(self, topic: str, why: str) -> None:
        """Leave a topic alone until both sides list it, and as a mirror."""
        if topic not in self.copied.topics:
            return
        self.copied.topics.discard(topic)
        self.partitions = {tp: each for tp, each in self.partitions.items() if tp.topic != topic}
        log_report(f"topic {topic} is not mirrored: {why}")

    def _create(self, name: str, count: int) -> None:
        configs: dict[str, str | None] = {SOURCE_KEY: self._cluster_id}
        self._target.create_topic(name, partitions=count, configs=configs)
        self._follow_configs(name)

    def _join(self, name: str, partitions: int) -> bool:
        """Return True if the topic of the target is a mirror of this source, or has become one."""
        known = self._target.topic_overrides(name).get(SOURCE_KEY)
        if known == self._cluster_id:
            return True
        if not self._overwrite or name in self._begun:
            what = f"is a mirror of {known}" if known else "is no mirror"
            self._note(f"topic {name} of the target {what}: left out; --overwrite makes it one of this source")
            return False
        promoted = self._last_promotion(self._to, name, partitions)
        if promoted and promoted >= self._last_promotion(self._from, name, partitions):
            self._note(
                f"topic {name} of the target was promoted, and that of the source was not since then: left out, as "
                "what the target has taken would be lost; to copy it nevertheless, delete it in the target first"
            )
            return False
        self._target.alter_configs(ResourceKind.TOPIC, name, {SOURCE_KEY: self._cluster_id})
        return True

    def _last_promotion(self, shell: ClientShell, name: str, partitions: int) -> int:
        """Return the number of the last promotion, by the leaders' epochs; 0: there was none."""
        asked = [ListOffsetsPartition(topic=name, partition=number, timestamp=LATEST) for number in range(partitions)]
        found: list[int | BarnabasError] = shell.ask_leaders(
            asked,
            lambda item: TopicPartition(item.topic, item.partition),
            lambda group: ListOffsets(partitions=group),
            lambda result: [(outcome.error, outcome.leader_epoch) for outcome in result.partitions],
        )
        newest = 0
        for each in found:
            if isinstance(each, BarnabasError):
                raise each
            newest = max(newest, each)
        return newest // EPOCHS_OF_PROMOTION

    # --- messages

    def copy_once(self, topics: Iterable[str] | None = None) -> int:
        """Copy what the source has now, at most `FETCH_BYTES` of each partition; return the number of bytes. Raises
        `BarnabasError`."""
        names = None if topics is None else set(topics)
        chosen = [each for each in self.partitions.values() if names is None or each.tp.topic in names]
        for each in chosen:
            if not each.is_verified:
                try:
                    self._verify(each)
                except BarnabasError as error:
                    self._note(f"{each.tp}: {error}")
        ready = [each for each in chosen if each.is_verified]
        if not ready:
            self._stopped.wait(WAIT_MS / 1000)
            return 0
        before = self.copied.bytes
        for each, answer in zip(ready, self._fetch(ready), strict=True):
            if isinstance(answer, BarnabasError):
                each.is_verified = False
                if not isinstance(answer, ApiError) or answer.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._note(f"{each.tp}: {answer}")
            elif answer.diverging is not None:
                self._truncate(each, answer.diverging.epoch, answer.diverging.end_offset)
            else:
                self._append(each, answer)
        return self.copied.bytes - before

    def _verify(self, each: MirroredPartition) -> None:
        """Find the log end of the target, and cut what the source does not have."""
        self._send(each, self._description(each.tp))
        start, end = self._source_range(each.tp)
        each.source_end = end
        if each.log_end < start or each.log_start == each.log_end != start:
            self._restart(each, start)
        elif each.log_end > each.log_start and each.last_epoch >= 0:
            found = self._end_of_epoch(each.tp, each.last_epoch)
            if found.end_offset >= 0 and (found.leader_epoch < each.last_epoch or found.end_offset < each.log_end):
                self._truncate(each, found.leader_epoch, found.end_offset)
                return
        each.is_verified = True

    def _restart(self, each: MirroredPartition, start: int) -> None:
        """Begin the target's log at the log start of the source, which is above its end."""
        request = evolve(
            self._continuation(each),
            truncate_to=start,
            log_start=start,
        )
        self._send(each, request)

    def _truncate(self, each: MirroredPartition, epoch: int, end: int) -> None:
        """Cut the target's log where it diverges; the next look finds out whether that is enough."""
        before = each.log_end
        request = evolve(
            self._continuation(each),
            truncate_to=end,
            truncate_epoch=epoch,
        )
        self._send(each, request)
        each.is_verified = False
        self.copied.truncations += 1
        log_report(f"{each.tp}: the source does not have what is behind {each.log_end}; cut, from {before}")

    def _append(self, each: MirroredPartition, answer: FetchResultPartition) -> None:
        each.source_end = answer.high_watermark
        found = answer.records
        records = bytes(found) if isinstance(found, bytes | bytearray | memoryview) else found.read()
        if is_legacy(records):
            records = self._converted(each, records)
        batches = [batch for batch in _batches(records) if batch[1].next_offset > each.log_end]
        if not batches and answer.log_start_offset <= each.log_start:
            if each.high_watermark < each.log_end:
                self._send(each, self._description(each.tp))
            return
        begin = batches[0][0] if batches else 0
        end = batches[-1][0] + batches[-1][1].size if batches else 0
        request = evolve(
            self._continuation(each),
            leader_epoch=max((header.leader_epoch for _, header in batches), default=-1),
            log_start=answer.log_start_offset,
            records=records[begin:end],
        )
        if self._send(each, request):
            self.copied.batches += len(batches)
            self.copied.bytes += end - begin

    def _converted(self, each: MirroredPartition, records: bytes) -> bytes:
        """Return batches of messages from before Kafka 0.11, with the same offsets. Raises `ApiError`."""
        done = convert_records(
            records, self._codecs, from_offset=each.log_end, group_bytes=GROUP_BYTES, leader_epoch=each.last_epoch
        )
        self._note(
            f"topic {each.tp.topic} has messages from before Kafka 0.11 (formats 0 and 1): they become record "
            "batches with the same offsets, timestamps, keys, values and codecs"
        )
        return done.records

    # --- promotion

    def promote(self, topic: str, timeout_s: float = 60.0) -> float:
        """End the mirroring of a topic: when the target has all, it takes records of producers; return the seconds.

        On return all leaders take them. Producers of the source must have ended: what they write later is not copied.
        Raises `BarnabasError`.
        """
        began = time.monotonic()
        self.begin()
        mine = [each for tp, each in self.partitions.items() if tp.topic == topic]
        if not mine:
            raise ConfigError(f"topic {topic} of the target is not a mirror of this source")
        while True:
            self.copy_once([topic])
            if topic not in self.copied.topics:
                raise ConfigError(f"topic {topic} of the target is not a mirror of this source any longer")
            for each in mine:
                if each.is_verified:
                    each.source_end = max(each.source_end, self._source_range(each.tp)[1])
            if all(each.is_complete for each in mine):
                break
            if time.monotonic() - began > timeout_s:
                behind = ", ".join(f"{each.tp} by {each.lag}" for each in mine if not each.is_complete)
                raise BarnabasError(f"topic {topic} is not complete after {timeout_s:g} s: {behind}")
        self._follow_groups()
        for each in mine:
            epoch = (max(each.last_epoch, each.leader_epoch) // EPOCHS_OF_PROMOTION + 1) * EPOCHS_OF_PROMOTION
            self._send(each, evolve(self._description(each.tp), leader_epoch=epoch))
        self._target.alter_configs(ResourceKind.TOPIC, topic, {SOURCE_KEY: None})
        self._ended.add(topic)
        self._leave(topic, "it is promoted")
        while sum(self._send(each, self._description(each.tp)) for each in mine):
            if time.monotonic() - began > timeout_s:
                raise BarnabasError(
                    f"topic {topic} is promoted, but its leaders have not applied that within {timeout_s:g} s"
                )
            self._stopped.wait(WAIT_MS / 1000)
        self._abort_transactions([each.tp for each in mine])
        return time.monotonic() - began

    def _abort_transactions(self, partitions: Sequence[TopicPartition]) -> None:
        """Abort the transactions that the source has left open: no coordinator here knows them."""
        for tp, producers in self._target.describe_producers(partitions).items():
            for producer in producers:
                if producer.current_txn_start_offset >= 0:
                    self._target.abort_transaction(
                        tp, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
                    )

    # --- settings, ACLs and offsets of groups

    def follow(self) -> None:
        """Look at topics, settings, ACLs, quotas and offsets of groups, and copy what has changed.

        Raises `BarnabasError`.
        """
        self.begin()
        for name in sorted(self.copied.topics):
            self._follow_configs(name)
        steps = {"ACLs": self._follow_acls, "quotas": self._follow_quotas, "offsets of groups": self._follow_groups}
        for what, step in steps.items():
            try:
                step()
            except ApiError as error:
                if error.retriable:
                    raise
                self._note(f"{what} are not copied: {error.message}")  # an old broker, or a right that is missing

    def _follow_configs(self, topic: str) -> None:
        for key, value in self._config_changes(topic).items():
            try:
                self._target.alter_configs(ResourceKind.TOPIC, topic, {key: value})
            except ApiError as error:
                self._note(f"topic {topic}: {key}={value} is not copied: {error.message}")

    def _config_changes(self, topic: str) -> dict[str, str | None]:
        at_source = self._source.topic_overrides(topic)
        at_target = self._target.topic_overrides(topic)
        changes: dict[str, str | None] = {
            key: value for key, value in at_source.items() if key != SOURCE_KEY and at_target.get(key) != value
        }
        return changes | {key: None for key in at_target if key != SOURCE_KEY and key not in at_source}

    def _follow_acls(self) -> None:
        """Copy the ACLs of the source; those that it has deleted since the start of this mirror are deleted here."""
        try:
            present = set(self._source.describe_acls())
            missing = present - set(self._target.describe_acls())
        except ApiError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            return
        if missing:
            self._target.create_acls(missing)
        for acl in self._acls - present:
            self._target.delete_acls([_exactly(acl)])
        self._acls = present

    def _follow_quotas(self) -> None:
        """Copy the quotas of the source; limits that it has removed since the start of this mirror are removed here."""
        at_source = _limits_of(self._source)
        changes = self._quota_changes(at_source)
        for entity, limits in self._quotas.items():
            gone: dict[str, float | None] = {key: None for key in limits if key not in at_source.get(entity, {})}
            if gone:
                changes[entity] = changes.get(entity, {}) | gone
        if changes:
            self._target.alter_client_quotas(
                [ClientQuotaAlteration(entity=dict(entity), limits=limits) for entity, limits in changes.items()]
            )
        self._quotas = at_source

    def _quota_changes(
        self, at_source: Mapping[_Entity, Mapping[str, float]]
    ) -> dict[_Entity, dict[str, float | None]]:
        """Return the limits that the target lacks, or has otherwise."""
        at_target = _limits_of(self._target)
        changes: _QuotaChanges = {
            entity: {key: value for key, value in limits.items() if at_target.get(entity, {}).get(key) != value}
            for entity, limits in at_source.items()
        }
        return {entity: limits for entity, limits in changes.items() if limits}

    def _follow_groups(self) -> None:
        for group, offsets in self._group_changes().items():
            try:
                self._target.alter_group_offsets(group, offsets)
            except ApiError as error:
                self._note(f"the offsets of group {group} are not copied: {error.message}")

    def _group_changes(self) -> dict[str, dict[TopicPartitionLike, int]]:
        """Return the offsets to commit by group: those of mirrored topics that the target has messages for."""
        changes: dict[str, dict[TopicPartitionLike, int]] = {}
        for listed in self._source.list_groups():
            found = self._source.group_offsets(listed.group_id)
            known = self._target.group_offsets(listed.group_id)
            offsets = {
                tp: min(each.offset, self.partitions[tp].log_end)
                for tp, each in found.items()
                if tp in self.partitions and self.partitions[tp].log_end >= 0
            }
            wanted: dict[TopicPartitionLike, int] = {
                tp: offset for tp, offset in offsets.items() if tp not in known or known[tp].offset != offset
            }
            if wanted:
                changes[listed.group_id] = wanted
        return changes

    # --- differences

    def differences(self) -> list[MirrorDifference]:
        """Return how the target differs from the source now, without a change. Raises `BarnabasError`."""
        found = []
        there = {topic.name: topic for topic in self._target.describe_topics()}
        for topic in self._source.describe_topics(self.topics()):
            name, count = topic.name or "", len(topic.partitions)
            if name not in there:
                found.append(MirrorDifference(topic=name, text=f"is missing in the target ({count} partitions)"))
                continue
            known = self._target.topic_overrides(name).get(SOURCE_KEY)
            if known != self._cluster_id:
                found.append(MirrorDifference(topic=name, text="is not a mirror of this source in the target"))
            if len(there[name].partitions) != count:
                found.append(
                    MirrorDifference(topic=name, text=f"has {len(there[name].partitions)} partitions, not {count}")
                )
            for key, value in self._config_changes(name).items():
                found.append(MirrorDifference(topic=name, text=f"{key} is not {value} in the target"))
            for number in range(min(count, len(there[name].partitions))):
                found += self._log_differences(TopicPartition(name, number), is_mirror=known == self._cluster_id)
        return found

    def cluster_differences(self) -> list[MirrorDifference]:
        """Return which ACLs, quotas and users the target lacks, and what cannot be compared. Raises
        `BarnabasError`."""
        found: list[MirrorDifference] = []
        compared = {
            "ACLs": self._acl_differences,
            "quotas": self._quota_differences,
            "users": self._user_differences,
        }
        for what, differences in compared.items():
            try:
                found += [MirrorDifference(text=text) for text in differences()]
            except ApiError as error:
                if error.retriable:
                    raise
                if error.code is not ErrorCode.SECURITY_DISABLED:
                    found.append(MirrorDifference(text=f"{what} cannot be compared: {error.message}"))
        return found

    def _acl_differences(self) -> list[str]:
        missing = set(self._source.describe_acls()) - set(self._target.describe_acls())
        return [f"{counted(len(missing), 'ACL is', 'ACLs are')} missing in the target"] if missing else []

    def _quota_differences(self) -> list[str]:
        return sorted(
            f"quota {key} of {entity_text(dict(entity))} is not {value} in the target"
            for entity, limits in self._quota_changes(_limits_of(self._source)).items()
            for key, value in limits.items()
        )

    def _user_differences(self) -> list[str]:
        """Return the SCRAM users to create in the target: no request reads passwords out of a cluster."""
        at_source, at_target = (
            {
                (user, each.mechanism)
                for user, credentials in admin.describe_user_scram_credentials().items()
                for each in credentials
            }
            for admin in (self._source, self._target)
        )
        return [
            f"user {user} ({mechanism}) is missing in the target: 'barnabas users' creates it with its password, which "
            "Kafka gives to no one"
            for user, mechanism in sorted(at_source - at_target)
        ]

    def _log_differences(self, tp: TopicPartition, *, is_mirror: bool) -> list[MirrorDifference]:
        start, end = self._source_range(tp)
        at_target = self._range(self._to, tp)
        if (start, end) == at_target:
            return []
        text = f"partition {tp.partition} has the offsets {at_target[0]} to {at_target[1]}, not {start} to {end}"
        if is_mirror and at_target[1] > end:
            text += ": the source was truncated"
        return [MirrorDifference(topic=tp.topic, text=text)]

    # --- requests

    def _fetch(self, ready: Sequence[MirroredPartition]) -> list[FetchResultPartition | BarnabasError]:
        items = [
            FetchPartition(*each.tp, each.log_end, FETCH_BYTES, last_fetched_epoch=each.last_epoch) for each in ready
        ]
        return self._from.ask_leaders(
            items,
            lambda item: TopicPartition(item.topic, item.partition),
            lambda group: Fetch(partitions=group, max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES * 16),
            _fetched,
        )

    def _description(self, tp: TopicPartition) -> MirrorRecords:
        """Return the request that only describes the target's log."""
        return MirrorRecords(topic=tp.topic, partition=tp.partition, source=self._cluster_id)

    def _continuation(self, each: MirroredPartition) -> MirrorRecords:
        """Return a request that changes the target's log only as long as it is what this mirror knows."""
        return evolve(self._description(each.tp), log_end=each.log_end, last_epoch=each.last_epoch)

    def _send(self, each: MirroredPartition, request: MirrorRecords) -> bool:
        """Send a request to the leader of the target; return False if it knows another log end. Raises
        `BarnabasError`."""
        (found,) = self._to.ask_leaders(
            [request],
            lambda item: TopicPartition(item.topic, item.partition),
            lambda group: group[0],
            lambda result: [(result.error if result.log_end < 0 else ErrorCode.NONE, result)],
        )
        if isinstance(found, BarnabasError):
            each.is_verified = False  # what it has changed is unknown
        if isinstance(found, ApiError) and found.code is ErrorCode.POLICY_VIOLATION:
            # Its leader may not have heard yet that it is a mirror: the next look finds out.
            self._leave(each.tp.topic, f"the target refuses it: {found.message}")
            return False
        if isinstance(found, BarnabasError):
            raise found
        each.update(found)
        if found.error is ErrorCode.NONE:
            return True
        each.is_verified = False
        if found.error not in _TAKEN_AGAIN:
            raise ApiError(found.error, found.error_message or f"{each.tp} of the target")
        self._note(f"{each.tp}: {found.error_message}")
        return False

    def _end_of_epoch(self, tp: TopicPartition, epoch: int) -> EpochEndOffset:
        asked = OffsetForLeaderPartition(topic=tp.topic, partition=tp.partition, leader_epoch=epoch)
        (found,) = self._from.ask_leaders(
            [asked],
            lambda item: TopicPartition(item.topic, item.partition),
            lambda group: OffsetForLeaderEpoch(partitions=group),
            lambda result: [(each.error, each) for each in result.partitions],
        )
        if isinstance(found, BarnabasError):
            raise found
        end: EpochEndOffset = found
        return end

    def _source_range(self, tp: TopicPartition) -> tuple[int, int]:
        return self._range(self._from, tp)

    def _range(self, shell: ClientShell, tp: TopicPartition) -> tuple[int, int]:
        """Return the log start and the high watermark of a partition."""
        found = []
        for timestamp in (EARLIEST, LATEST):
            asked = ListOffsetsPartition(topic=tp.topic, partition=tp.partition, timestamp=timestamp)
            (answer,) = shell.ask_leaders(
                [asked],
                lambda item: TopicPartition(item.topic, item.partition),
                lambda group: ListOffsets(partitions=group),
                _offsets,
            )
            if isinstance(answer, BarnabasError):
                raise answer
            found.append(int(answer))
        return found[0], found[1]

    def _note(self, text: str) -> None:
        """Report something once."""
        if text not in self._notes:
            self._notes.add(text)
            log_report(text)


def _shell(settings: Mapping[str, Any]) -> ClientShell:
    config = dict(settings)
    bootstrap = config.pop("bootstrap.servers", None)
    return open_shell(bootstrap, read_settings(CommonSettings, config, {}))


def _fetched(result: FetchResult) -> list[tuple[ErrorCode, Any]]:
    if result.error is not ErrorCode.NONE:
        return [(result.error, None) for _ in result.partitions]
    return [(outcome.error, outcome) for outcome in result.partitions]


def _offsets(result: ListOffsetsResult) -> list[tuple[ErrorCode, Any]]:
    return [(outcome.error, outcome.offset) for outcome in result.partitions]


def _limits_of(admin: Admin) -> dict[_Entity, dict[str, float]]:
    return {tuple(sorted(each.entity.items())): dict(each.limits) for each in admin.describe_client_quotas()}


def _exactly(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def _batches(records: bytes) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of the whole batches, up to messages from before Kafka 0.11. Raises `ApiError`."""
    found: list[tuple[int, BatchHeader]] = []
    try:
        found.extend(whole_batches(records))
    except ApiError:
        end = found[-1][0] + found[-1][1].size if found else 0
        if not found or not is_legacy(records, end):
            raise
    return found
