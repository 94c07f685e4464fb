"""CreateTopics, CreatePartitions, DeleteTopics (facts C6, D7)."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from attrs import evolve

from ...core.cluster.topics import Topic, check_topic_name
from ...ports.broker_api import (
    Caller,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsResult,
    NewPartitions,
    NewTopic,
    Reply,
    TopicOutcome,
    TopicOutcomes,
)
from ...ports.coordination import CoordinationError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError
from .state import BrokerState

T = TypeVar("T")
T2 = TypeVar("T2")


class TopicService:
    """Makes, grows and removes topics. Each topic of a request succeeds or fails by itself, wholly."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def create(self, request: CreateTopics, _caller: Caller, reply: Reply[CreateTopicsResult]) -> None:
        twice = _named_twice(new.name for new in request.topics)

        def one(new: NewTopic) -> CreatedTopic:
            if new.name in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {new.name[:260]!r} is named twice in the request")
            topic = self.create_one(new, validate_only=request.validate_only)
            return CreatedTopic(
                name=topic.name,
                topic_id=bytes(16) if request.validate_only else topic.topic_id,
                partitions=len(topic.partitions),
                replication_factor=topic.replication_factor,
                configs=self._state.settings.topic_entries(topic.configs),
            )

        def failed(new: NewTopic, code: ErrorCode, text: str | None) -> CreatedTopic:
            return CreatedTopic(name=new.name, error=code, error_message=text)

        reply(CreateTopicsResult(topics=[self._try(one, failed, new) for new in _once(request.topics, twice)]))

    def create_one(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Create a topic and its logs; nothing is left of it when it raises.

        Raises `ApiError`, `StorageError`, `CoordinationError`.
        """
        state = self._state
        check_topic_name(new.name)
        state.classic.check_free(new.name)
        configs = state.settings.checked_topic_configs(new.configs)
        topic = state.registry.plan_topic(
            new,
            state.racks(),
            default_partitions=state.settings.static.num_partitions,
            default_replication_factor=state.settings.static.default_replication_factor,
            configs=configs,
        )
        if validate_only:
            return topic
        state.registry.create(topic)
        try:
            state.open_topic(topic)
        except StorageError:
            self._remove(topic.name)
            raise
        return topic

    def grow(self, request: CreatePartitions, _caller: Caller, reply: Reply[TopicOutcomes]) -> None:
        twice = _named_twice(new.topic for new in request.topics)

        def one(new: NewPartitions) -> TopicOutcome:
            if new.topic in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {new.topic[:260]!r} is named twice in the request")
            self._grow_one(new, validate_only=request.validate_only)
            return TopicOutcome(name=new.topic)

        def failed(new: NewPartitions, code: ErrorCode, text: str | None) -> TopicOutcome:
            return TopicOutcome(name=new.topic, error=code, error_message=text)

        reply(TopicOutcomes(topics=[self._try(one, failed, new) for new in request.topics]))

    def _grow_one(self, new: NewPartitions, *, validate_only: bool) -> None:
        state = self._state
        before = state.registry.topic(new.topic)
        grown = state.registry.plan_partitions(new.topic, new.count, state.racks(), assignments=new.assignments)
        if validate_only:
            return
        state.registry.grow(grown)
        try:
            state.open_topic(grown)
        except StorageError:
            state.drop_partitions(new.topic, grown.partitions.keys() - before.partitions.keys())
            state.registry.grow(before)
            raise

    def delete(self, request: DeleteTopics, _caller: Caller, reply: Reply[DeleteTopicsResult]) -> None:
        by_name = [DeletedTopic(name=name) for name in dict.fromkeys(request.names)]
        by_id = [DeletedTopic(name=None, topic_id=topic_id) for topic_id in dict.fromkeys(request.topic_ids)]

        def failed(wanted: DeletedTopic, code: ErrorCode, text: str | None) -> DeletedTopic:
            return evolve(wanted, error=code, error_message=text)

        reply(DeleteTopicsResult(topics=[self._try(self._delete_one, failed, wanted) for wanted in [*by_name, *by_id]]))

    def _delete_one(self, wanted: DeletedTopic) -> DeletedTopic:
        registry = self._state.registry
        topic = registry.topic_by_id(wanted.topic_id) if wanted.name is None else registry.topic(wanted.name)
        if not self._state.settings.static.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        self._remove(topic.name)
        return DeletedTopic(name=topic.name, topic_id=topic.topic_id)

    def _remove(self, name: str) -> None:
        """The topic is gone from here on; its name is free once its logs are removed, at the latest by a restart."""
        topic = self._state.registry.begin_delete(name)
        if self._state.drop_topic(topic):
            self._state.registry.finish_delete(name)

    def _try(self, do: Callable[[T], T2], failed: Callable[[T, ErrorCode, str | None], T2], item: T) -> T2:
        """The outcome for one item; what goes wrong with it is its own."""
        try:
            return do(item)
        except ApiError as error:
            return failed(item, error.code, error.message or None)
        except StorageError as error:
            self._state.failed("a change of topics", error)
            return failed(item, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        except CoordinationError as error:
            self._state.failed("a change of topics", error)
            return failed(item, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _named_twice(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}


def _once(topics: Iterable[NewTopic], twice: set[str]) -> list[NewTopic]:
    """A topic that is named twice is answered once."""
    kept: dict[str, NewTopic] = {}
    others = []
    for new in topics:
        if new.name in twice:
            if new.name in kept:
                continue
            kept[new.name] = new
        others.append(new)
    return others
