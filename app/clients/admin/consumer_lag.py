"""`Admin`: the lag of all groups, in messages and in time, with a bounded number of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ....core.client.errors import ClientTimeout
from ....core.message.batch_header import HEADER_SIZE, parse_header
from ....core.message.batch_reader import decode_batch
from ....ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
)
from ....ports.broker_api.fetch import Fetch, FetchPartition, FetchResult
from ....ports.broker_api.groups import (
    DescribeGroups,
    DescribeGroupsResult,
    ListedGroup,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from ....ports.broker_api.metadata import Metadata, MetadataResult
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.broker_api.share_group_offsets import (
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResult,
    ShareGroupOffsets,
    ShareGroupOffsetsQuery,
)
from ....ports.broker_api.share_groups import ShareGroupDescribe, ShareGroupDescribeResult, ShareGroupDescription
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.storage import Region
from ....ports.transport import TransportError
from ....ports.types import Buffer, TopicPartition
from ....ports.values import frozen
from ..shared.list_offsets import list_offsets
from .group_details import CLASSIC, CONSUMER, DEAD, SHARE

if TYPE_CHECKING:
    from ....core.message.codec import Codecs
    from .asker import AdminRequests

GROUPS_PER_REQUEST = 100
"""The number of groups in one request to a coordinator."""
PARTITIONS_PER_ROUND = 256
"""The number of partitions whose oldest unread record is read at a time."""
ROUNDS_MAX = 40
"""The most rounds of such reads; later partitions have no known time."""
RECORD_BYTES = 16_384
"""The bytes that are read of each partition; of a larger batch only its header is used."""

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int]


@frozen(kw_only=True)
class GroupSummary:
    """One group with its lag in all partitions together.

    `members`, `topics` and `lag` (messages, about) are None and empty if the group's coordinator does not return them,
    `lag` also without a committed offset.
    """

    group_id: str
    state: str
    protocol_type: str
    coordinator: int
    """The broker that coordinates the group."""
    type: str = CLASSIC
    """classic, consumer or share."""
    protocol: str = ""
    """The assignor; empty for a classic group unless it is stable."""
    members: int | None = None
    topics: Sequence[str] = ()
    lag: int | None = None
    unread_since_ms: int | None = None
    """The timestamp of the oldest unread message, in the partitions that could be read; None: the group has read all,
    or it is unknown."""


class _Described(NamedTuple):
    """A group as its coordinator describes it."""

    state: str
    protocol: str
    members: int


_NO_ERROR = (ErrorCode.NONE,)


def _described(group: ConsumerGroupDescription | ShareGroupDescription) -> _Described:
    return _Described(group.group_state, group.assignor_name, len(group.members))


def starts_of(group: ShareGroupOffsets) -> dict[TopicPartition, int]:
    """Return the known start offsets of a share group."""
    return {
        TopicPartition(topic.topic, each.partition): each.start_offset
        for topic in group.topics
        for each in topic.partitions
        if each.error is ErrorCode.NONE and each.start_offset >= 0
    }


def unfinished_of(group: ShareGroupOffsets) -> int | None:
    """Return the messages of a share group that are not done with, in all partitions; None: not known of one."""
    lags = [each.lag for topic in group.topics for each in topic.partitions if each.start_offset >= 0]
    return None if not lags or min(lags) < 0 else sum(lags)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


class LagReader:
    """Reads committed offsets, ends and timestamps of many partitions at a time."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def summarize(self, groups: Mapping[int, Sequence[ListedGroup]], *, times: bool) -> list[GroupSummary]:
        """Return the groups, given by coordinator, with their lags, sorted by name. With `times` also the timestamps.

        A group whose coordinator has an error for it has no lag. Raises `BarnabasError` if the cluster does not answer.
        """
        described: dict[str, _Described] = {}
        committed: dict[str, dict[TopicPartition, int]] = {}
        unfinished: dict[str, int | None] = {}
        for node, listed in groups.items():
            of_type: dict[str, list[str]] = {}
            for group in listed:
                of_type.setdefault(group.group_type, []).append(group.group_id)
            try:
                for group_type, ids in of_type.items():
                    for chunk in _chunks(ids, GROUPS_PER_REQUEST):
                        described.update(self._describe(node, chunk, group_type))
                        if group_type == SHARE:
                            for offsets in self.share_starts(node, chunk):
                                committed[offsets.group_id] = starts_of(offsets)
                                unfinished[offsets.group_id] = unfinished_of(offsets)
                        else:
                            committed.update(self._committed(node, chunk))
            except (TransportError, ClientTimeout):
                continue  # the broker is going down: its groups have no lag until others coordinate them
        ends = self.ends({tp for offsets in committed.values() for tp in offsets})
        since: dict[tuple[TopicPartition, int], int] = {}
        if times:
            unread = {
                (tp, offset)
                for offsets in committed.values()
                for tp, offset in offsets.items()
                if offset < ends.get(tp, offset)
            }
            since = self.timestamps(unread)
        found = {
            group.group_id: _summary(
                group,
                node,
                described.get(group.group_id),
                committed.get(group.group_id),
                unfinished.get(group.group_id),
                ends,
                since,
            )
            for node, listed in groups.items()
            for group in listed
        }
        return [found[group_id] for group_id in sorted(found)]

    def _describe(self, node: int, group_ids: Sequence[str], group_type: str) -> dict[str, _Described]:
        """Return the groups of one type that exist."""
        ask = self._asker.shell.ask
        try:
            if group_type == CONSUMER:
                of_consumers: ConsumerGroupDescribeResult = ask(ConsumerGroupDescribe(group_ids=group_ids), node)
                return {each.group_id: _described(each) for each in of_consumers.groups if each.error in _NO_ERROR}
            if group_type == SHARE:
                of_shares: ShareGroupDescribeResult = ask(ShareGroupDescribe(group_ids=group_ids), node)
                return {each.group_id: _described(each) for each in of_shares.groups if each.error in _NO_ERROR}
            result: DescribeGroupsResult = ask(DescribeGroups(group_ids=group_ids), node)
        except ApiError:
            return {}
        # Kafka describes groups of other types as dead here.
        return {
            group.group_id: _Described(group.state, group.protocol, len(group.members))
            for group in result.groups
            if group.error is ErrorCode.NONE and group.state != DEAD
        }

    def share_starts(self, node: int, group_ids: Sequence[str]) -> Sequence[ShareGroupOffsets]:
        """Return the start offsets of share groups; those whose coordinator has an error for them are left out."""
        request = DescribeShareGroupOffsets(groups=[ShareGroupOffsetsQuery(group_id=each) for each in group_ids])
        try:
            result: DescribeShareGroupOffsetsResult = self._asker.shell.ask(request, node)
        except ApiError:
            return ()
        return [group for group in result.groups if group.error is ErrorCode.NONE]

    def _committed(self, node: int, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        asked = [OffsetFetchGroup(group_id=group_id) for group_id in group_ids]
        try:
            result: OffsetFetchResult = self._asker.shell.ask(OffsetFetch(groups=asked), node)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION or len(group_ids) == 1:
                return {}
            # Brokers before Kafka 3.0 take one group in a request.
            return {name: found for each in group_ids for name, found in self._committed(node, [each]).items()}
        return {
            group.group_id: {
                TopicPartition(found.topic, found.partition): found.offset
                for found in group.partitions
                if found.offset >= 0 and found.error is ErrorCode.NONE
            }
            for group in result.groups
            if group.error is ErrorCode.NONE
        }

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions; those that do not exist or have no leader are left out."""
        return self._list_offsets(partitions, LATEST)

    def _list_offsets(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        there = self._led(partitions)
        answers = list_offsets(self._asker.shell, [(tp, time) for tp in there])
        return {tp: a.offset for tp, a in zip(there, answers, strict=True) if not isinstance(a, BarnabasError)}

    def _led(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that exist and have a leader: requests for others would wait for one."""
        wanted = sorted(partitions)
        if not wanted:
            return []
        names = sorted({tp.topic for tp in wanted})
        result: MetadataResult = self._asker.shell.ask(Metadata(topics=names, allow_auto_topic_creation=False))
        led = {
            TopicPartition(str(topic.name), p.partition)
            for topic in result.topics
            for p in topic.partitions
            if p.leader >= 0
        }
        return [tp for tp in wanted if tp in led]

    def timestamps(
        self, topic_partitions: Iterable[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return (partition, offset) → the timestamp of the first record from the offset on.

        One batch of each partition is read, of at most `RECORD_BYTES`; of a larger one its first timestamp counts.
        What cannot be read is left out: without the right to read a topic, or beyond `ROUNDS_MAX` rounds.
        """
        waiting: dict[TopicPartition, list[int]] = {}
        for tp, offset in sorted(topic_partitions, reverse=True):
            waiting.setdefault(tp, []).append(offset)  # the oldest is the last
        found: dict[tuple[TopicPartition, int], int] = {}
        deleted: list[tuple[TopicPartition, int]] = []
        tried: set[tuple[TopicPartition, int]] = set()
        for _ in range(ROUNDS_MAX):
            asked = [(tp, waiting[tp][-1]) for tp in list(waiting)[:PARTITIONS_PER_ROUND]]
            if not asked:
                break
            for topic_partition, answer in self._read(asked):
                tp = topic_partition[0]
                if answer is None and topic_partition not in tried:  # the answer may have had no room for it
                    tried.add(topic_partition)
                    waiting[tp] = waiting.pop(tp)
                    continue
                later = waiting.pop(tp)[:-1]
                if later:
                    waiting[tp] = later  # after the other partitions
                if isinstance(answer, int):
                    found[topic_partition] = answer
                elif answer is not None and answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    deleted.append(topic_partition)
        return {**found, **self._first_timestamps(deleted)} if deleted else found

    def _first_timestamps(
        self, topic_partitions: Sequence[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the timestamps of the first records of partitions, whose retention has deleted these offsets."""
        starts = self._list_offsets({tp for tp, _ in topic_partitions}, EARLIEST)
        first = {
            topic_partition[0]: answer
            for chunk in _chunks(starts.items(), PARTITIONS_PER_ROUND)
            for topic_partition, answer in self._read(chunk)
            if isinstance(answer, int)
        }
        return {(tp, offset): first[tp] for tp, offset in topic_partitions if tp in first}

    def _read(
        self, topic_partitions: Sequence[tuple[TopicPartition, int]]
    ) -> Iterator[tuple[tuple[TopicPartition, int], int | ApiError | None]]:
        """Yield each partition with a timestamp, an error, or None if the answer had no records for it."""
        from ....plugins.builtin.codecs import builtin_codecs

        def build(chunk: Sequence[tuple[TopicPartition, int]]) -> Fetch:
            return Fetch(
                partitions=[FetchPartition(tp.topic, tp.partition, offset, RECORD_BYTES) for tp, offset in chunk],
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=RECORD_BYTES * len(chunk),
            )

        def outcomes(result: FetchResult) -> list[tuple[ErrorCode, Any]]:
            return [(partition.error, partition) for partition in result.partitions]

        answers = self._asker.shell.ask_leaders(
            topic_partitions, lambda topic_partition: topic_partition[0], build, outcomes, retries_max=2
        )
        codecs = builtin_codecs()
        for topic_partition, answer in zip(topic_partitions, answers, strict=True):
            if isinstance(answer, BarnabasError):
                unknown = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(answer))
                yield topic_partition, answer if isinstance(answer, ApiError) else unknown
                continue
            try:
                yield topic_partition, first_timestamp(answer.records, topic_partition[1], codecs)
            except ApiError as error:
                yield topic_partition, error


def first_timestamp(records: Buffer | Region, offset: int, codecs: Codecs) -> int | None:
    """Return the timestamp of the first record from `offset` on; None without a batch header of it.

    Of a truncated batch the first timestamp counts. Raises the errors of `decode_batch`.
    """
    view = memoryview(records if isinstance(records, bytes | bytearray | memoryview) else records.read())
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = parse_header(view, position)
        batch = view[position : position + header.size]
        position += header.size
        if header.next_offset <= offset:
            continue
        if header.log_append_time:
            return header.max_timestamp
        if header.base_offset < offset and len(batch) == header.size:
            messages = decode_batch(batch, codecs, from_offset=offset, header=header)
            if messages:
                return messages[0].timestamp_ms
            continue
        return header.base_timestamp
    return None


def _summary(
    group: ListedGroup,
    node: int,
    described: _Described | None,
    committed: Offsets | None,
    unfinished: int | None,
    ends: Offsets,
    since: Mapping[tuple[TopicPartition, int], int],
) -> GroupSummary:
    known = {tp: offset for tp, offset in (committed or {}).items() if tp in ends}
    times = [since[tp, offset] for tp, offset in known.items() if (tp, offset) in since and since[tp, offset] >= 0]
    lag = sum(max(0, ends[tp] - offset) for tp, offset in known.items()) if known else None
    return GroupSummary(
        group_id=group.group_id,
        type=group.group_type or CLASSIC,
        state=(described.state if described is not None else group.state) or group.state,
        protocol_type=group.protocol_type,
        coordinator=node,
        protocol=described.protocol if described is not None else "",
        members=described.members if described is not None else None,
        topics=sorted({tp.topic for tp in committed or ()}),
        lag=lag if unfinished is None else unfinished,
        unread_since_ms=min(times, default=None),
    )
