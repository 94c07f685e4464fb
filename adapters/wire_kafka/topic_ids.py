"""Topics by their ids (KIP-516), in versions of Produce, OffsetCommit and OffsetFetch that know no names.

In such a version a topic stands in our values as the hex text of its id. The broker's end puts the names in before the
broker gets the request, answers UNKNOWN_TOPIC_ID itself for ids that nothing has, and puts the ids back into the
answer.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from attrs import evolve

from ...ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    PartitionOutcome,
)
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from ...ports.broker_api.transactions import TxnOffsetCommit, TxnOffsetCommitResult
from ...ports.error_codes import ErrorCode
from ...ports.types import TopicPartition
from .wire import Reader, Writer

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_ID
_CommitResultT = TypeVar("_CommitResultT", OffsetCommitResult, TxnOffsetCommitResult)
TopicName = Callable[[bytes], str]
"""The name of the topic with an id; empty where there is none."""


class Resolved(NamedTuple):
    """A request with the names of its topics, and what makes the answer for its client of the broker's result; or, at
    the client's end, the other way round."""

    request: Any
    answer: Callable[[Any], Any]


def read_id(reader: Reader) -> str:
    return reader.span(len(NO_TOPIC_ID)).hex()


def id_of(topic: str) -> bytes:
    """Raises `ValueError` for what is no id."""
    topic_id = bytes.fromhex(topic)
    if len(topic_id) != len(NO_TOPIC_ID):
        raise ValueError(f"an id has {len(NO_TOPIC_ID)} bytes, not {len(topic_id)}")
    return topic_id


def write_id(writer: Writer, topic: str) -> None:
    """Raises `ValueError` for what is no id."""
    writer.out += id_of(topic)


def _names(partitions: Sequence[Any], topic_name: TopicName) -> dict[str, str]:
    """Return the names of the topics whose ids these partitions carry, empty where there is none."""
    return {topic: topic_name(bytes.fromhex(topic)) for topic in dict.fromkeys(part.topic for part in partitions)}


class _ProduceAnswer:
    """The answer to a Produce with ids, of the broker's result; an object, since a function made for each request is
    called slowly."""

    __slots__ = ("_ids", "_unknown")

    def __init__(self, ids: dict[str, str], unknown: list[ProduceResultPartition]) -> None:
        self._ids = ids
        self._unknown = unknown

    def __call__(self, result: ProduceResult) -> ProduceResult:
        answered = [
            ProduceResultPartition(
                self._ids[each.topic],
                each.partition,
                each.error,
                each.base_offset,
                each.log_append_time_ms,
                each.log_start_offset,
                each.error_message,
                each.record_errors,
                each.current_leader,
            )
            for each in result.partitions
        ]
        return ProduceResult(partitions=answered + self._unknown, throttle_ms=result.throttle_ms, nodes=result.nodes)


def resolve_produce(request: Produce, topic_name: TopicName) -> Resolved:
    """Return the request with names in place of topic ids.

    Constructors make the values: `evolve` costs several times as much, and most requests come here.
    """
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    known: list[ProducePartition] = []
    unknown: list[ProduceResultPartition] = []
    for part in request.partitions:
        topic_id = bytes.fromhex(part.topic)
        name = names.get(part.topic)
        if name is None:
            name = names[part.topic] = topic_name(topic_id)
            ids[name] = part.topic
        if name:
            known.append(ProducePartition(name, part.partition, part.records, topic_id))
        else:
            unknown.append(ProduceResultPartition(part.topic, part.partition, _UNKNOWN))
    by_name = Produce(
        partitions=known,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        transactional_id=request.transactional_id,
        allows_zstd=request.allows_zstd,
        supported_operation=request.supported_operation,
    )
    return Resolved(by_name, _ProduceAnswer(ids, unknown))


def resolve_offset_commit(request: OffsetCommit | TxnOffsetCommit, topic_name: TopicName) -> Resolved:
    names = _names(request.partitions, topic_name)
    ids = {name: topic for topic, name in names.items()}
    known: list[OffsetCommitPartition] = []
    unknown = []
    for part in request.partitions:
        if name := names[part.topic]:
            known.append(evolve(part, topic=name, topic_id=bytes.fromhex(part.topic)))
        else:
            unknown.append(PartitionOutcome(part.topic, part.partition, _UNKNOWN))

    def answer(result: _CommitResultT) -> _CommitResultT:
        answered = [evolve(each, topic=ids[each.topic]) for each in result.partitions]
        return evolve(result, partitions=answered + unknown)

    return Resolved(evolve(request, partitions=known), answer)


def commits_by_id(request: OffsetCommit | TxnOffsetCommit) -> bool:
    """Return True if the topics of all positions are known by their ids."""
    return all(part.topic_id != NO_TOPIC_ID for part in request.partitions)


def offset_commit_by_id(request: OffsetCommit | TxnOffsetCommit) -> Resolved:
    """Return, for a client, the request with ids in place of names, and how its result gets the names again."""
    names = {part.topic_id.hex(): part.topic for part in request.partitions}

    def answer(result: _CommitResultT) -> _CommitResultT:
        answered = [evolve(each, topic=names.get(each.topic, each.topic)) for each in result.partitions]
        return evolve(result, partitions=answered)

    by_id = [evolve(part, topic=part.topic_id.hex()) for part in request.partitions]
    return Resolved(evolve(request, partitions=by_id), answer)


def resolve_offset_fetch(request: OffsetFetch, topic_name: TopicName) -> Resolved:
    groups = []
    unknown: dict[str, list[FetchedOffset]] = {}
    for group in request.groups:
        if group.partitions is None:
            groups.append(group)
            continue
        names = _names(group.partitions, topic_name)
        unknown[group.group_id] = [
            FetchedOffset(*each, error=_UNKNOWN) for each in group.partitions if not names[each.topic]
        ]
        groups.append(_named_group(group, group.partitions, names))

    def answer(result: OffsetFetchResult) -> OffsetFetchResult:
        return evolve(result, groups=[_answered_group(each, unknown) for each in result.groups])

    return Resolved(evolve(request, groups=groups), answer)


def _named_group(
    group: OffsetFetchGroup, partitions: Sequence[TopicPartition], names: dict[str, str]
) -> OffsetFetchGroup:
    return evolve(
        group,
        partitions=[TopicPartition(names[each.topic], each.partition) for each in partitions if names[each.topic]],
        topic_ids={name: bytes.fromhex(topic) for topic, name in names.items() if name},
    )


def _answered_group(group: FetchedGroup, unknown: dict[str, list[FetchedOffset]]) -> FetchedGroup:
    """Leave out the offsets without a topic id, which the answer cannot carry, and add those of unknown ids."""
    answered = [evolve(each, topic=each.topic_id.hex()) for each in group.partitions if each.topic_id != NO_TOPIC_ID]
    return evolve(group, partitions=answered + unknown.get(group.group_id, []))
