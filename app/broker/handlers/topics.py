"""CreateTopics, CreatePartitions, DeleteTopics (facts C6, D7)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import repeat
from typing import TypeVar

from attrs import evolve

from ....core.cluster.brokers import children
from ....core.cluster.change_queue import elsewhere, on_disk
from ....core.cluster.election import new_state
from ....core.cluster.layout import TOPICS, deleted_path, topic_path
from ....core.cluster.registry import TOPICS_AT_A_TIME
from ....core.cluster.stray_replicas import why_orphan_is_stray
from ....core.cluster.topic_planning import plan_partitions, plan_topic
from ....core.cluster.topic_store import confirm_deleted, read_live_topics
from ....core.cluster.topics import (
    PartitionState,
    Topic,
    check_not_internal,
    check_topic_name,
    is_topic_name,
    metric_name,
)
from ....core.security.quotas.request_quotas import ControllerMutationQuota
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsResult,
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicOutcomes,
)
from ....ports.coordination import BadVersion, CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.scheduler import Outcome
from ....ports.storage import StorageError
from ...config.classic import is_classic
from ..state.broker_state import BrokerState
from .internal_topics import as_it_must_be
from .topic_creation import Creating, named_twice, refusal

ATTEMPTS = 10
"""The maximum number of attempts at a change while other brokers change the topic in between."""

_CAUSED_BY_LATENESS = (
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
)
"""The errors that a broker may see only because other brokers' changes have not arrived yet."""

T = TypeVar("T")
T2 = TypeVar("T2")


class TopicService:
    """Creates, extends and deletes topics. Each topic of a request succeeds or fails alone, as a whole."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._registry = state.registry
        self._changes = state.changes
        self._reported_orphans: set[str] = set()

    # --- create

    def create(self, request: CreateTopics, caller: Caller, reply: Reply[CreateTopicsResult]) -> None:
        """Create a few topics at a time, so that other changes have their turn in between; see `Creating`."""
        quota = self._state.quotas.controller_mutations(caller, is_strict=request.allows_throttling)
        Creating(self._state, request, self, reply, quota).start()

    async def create_one(self, new: NewTopic) -> Topic:
        """Create a topic and its logs. Raises the errors of `create_some`.

        Nothing is left of the topic here when it raises.
        """
        made = (await self.create_some([new]))[0]
        if isinstance(made, BarnabasError):
            raise made
        return made

    async def create_some(
        self, news: Sequence[NewTopic], *, validate_only: bool = False, quota: ControllerMutationQuota | None = None
    ) -> Sequence[Topic | BarnabasError]:
        """Create topics and their logs; return each, or its error: `ApiError`, `StorageError`, `CoordinationError`.

        A topic none of whose logs can be created is removed again by a broker without others. Where one of its
        partitions is open, here or on other brokers, it stays, as in Kafka: messages may have been acknowledged there
        meanwhile. The failure is reported. `quota` pays for the partitions.
        """
        planned = [await self._planned_or_not(new, quota) for new in news]
        if validate_only:
            return planned
        [results] = await self._stored([planned])
        topics = {made.name: made for made in results if isinstance(made, Topic)}
        failures = dict(await self._state.open_topics(list(topics.values())))
        partial_topics = [name for name in failures if self._may_be_open(name, topics[name].partitions)]
        self._report_unopened({name: failures.pop(name) for name in partial_topics})
        for name in failures:
            try:
                await self._remove(name)
            except (ApiError, CoordinationError, ClosedError) as error:
                self._changes.report_failure(f"removing topic {name}, whose logs cannot be made,", error)
        return [failures.get(made.name, made) if isinstance(made, Topic) else made for made in results]

    def _may_be_open(self, topic: str, numbers: Iterable[int]) -> bool:
        """Return True if one of these partitions is open here, or may be open elsewhere and acknowledge messages."""
        state = self._state
        return not state.is_alone or any((topic, number) in state.replicas.partitions for number in numbers)

    async def store_some(
        self, portions: Sequence[Sequence[NewTopic]], quota: ControllerMutationQuota | None = None
    ) -> Sequence[Sequence[Topic | BarnabasError]]:
        """Create topics in the coordination tree as `create_some` does, each portion in a commit of its own; their logs
        are left to `open_stored`, or to the next start. Until then these partitions have no leader here."""
        planned = [[await self._planned_or_not(new, quota) for new in news] for news in portions]
        topics = [each for portion in planned for each in portion if isinstance(each, Topic)]
        self._state.await_logs(topics)  # before the image has them, so that nothing else opens each alone
        made: Sequence[Sequence[Topic | BarnabasError]] = ()
        try:
            made = await self._stored(planned)
        finally:
            stored = {each.topic_id for portion in made for each in portion if isinstance(each, Topic)}
            self._state.end_awaiting_logs(each for each in topics if each.topic_id not in stored)
        return made

    async def open_stored(self, topics: Sequence[Topic]) -> None:
        """Create the logs of topics that `store_some` returned, unless they were deleted meanwhile.

        Failures are reported: the topics were answered for, and stay. Other brokers may lead these partitions.
        """
        state = self._state
        known = (state.image.topics.get(topic.name) for topic in topics)
        ids = {topic.topic_id for topic in topics}
        try:
            failures = await state.open_topics([each for each in known if each is not None and each.topic_id in ids])
        finally:
            state.end_awaiting_logs(topics)
        self._report_unopened(failures)

    def _report_unopened(self, failures: Mapping[str, BarnabasError]) -> None:
        for name, error in failures.items():
            self._state.failed(f"opening the logs of topic {name}", error)

    async def _planned_or_not(self, new: NewTopic, quota: ControllerMutationQuota | None) -> Topic | BarnabasError:
        try:
            topic = await self.retry_if_late(new.name, partial(self._planned, new))
            if quota is not None:
                quota.record(len(topic.partitions))
            return topic
        except (ApiError, StorageError, CoordinationError, ClosedError) as error:
            return error

    async def _stored(
        self, planned: Sequence[Sequence[Topic | BarnabasError]]
    ) -> Sequence[Sequence[Topic | BarnabasError]]:
        """Store the topics of each portion in one commit, which is one sync of the tree, and the portions side by side;
        where a commit is refused, each of its topics alone, whose error is exact."""
        portions = [[each for each in portion if isinstance(each, Topic)] for portion in planned]
        names = [metric_name(topic.name) for portion in portions for topic in portion]
        if not names or len(set(names)) < len(names):
            return [await self._stored_singly(portion) for portion in planned]
        groups = [[(topic, self._first_states(topic, topic.partitions)) for topic in portion] for portion in portions]
        try:
            outcomes = iter(await self._registry.create_all([group for group in groups if group]))
        except (CoordinationError, ClosedError) as error:
            outcomes = repeat(Outcome(error=error))
        stored: list[Sequence[Topic | BarnabasError]] = []
        for portion, group in zip(planned, groups, strict=True):
            outcome = next(outcomes) if group else Outcome(value=True)
            if outcome.error is not None or outcome.value:
                stored.append(self._known(portion, outcome))
            else:
                stored.append(await self._stored_singly(portion))
        return stored

    def _known(
        self, portion: Sequence[Topic | BarnabasError], outcome: Outcome[bool]
    ) -> Sequence[Topic | BarnabasError]:
        """Return what became of topics whose commit has this outcome; after an error they are read again."""
        try:
            with ExitStack() as contexts:
                for each in portion:
                    if isinstance(each, Topic):
                        contexts.enter_context(self.reread_on_failure(each.name))
                outcome.get()
        except (CoordinationError, ClosedError) as error:
            return [error if isinstance(each, Topic) else each for each in portion]
        return portion

    async def _stored_singly(self, portion: Sequence[Topic | BarnabasError]) -> Sequence[Topic | BarnabasError]:
        return [await self._stored_alone(each) if isinstance(each, Topic) else each for each in portion]

    async def _stored_alone(self, topic: Topic) -> Topic | BarnabasError:
        async def store() -> None:
            with self.reread_on_failure(topic.name):
                await self._registry.create(topic, self._first_states(topic, topic.partitions))

        try:
            await self.retry_if_late(topic.name, store)
        except (ApiError, StorageError, CoordinationError, ClosedError) as error:
            return error
        return topic

    def _first_states(self, topic: Topic, numbers: Iterable[int]) -> Mapping[int, PartitionState]:
        """Return the states of new partitions; a broker without others stores none, and classic topics have none."""
        if self._state.is_alone or is_classic(topic.configs):
            return {}
        brokers, min_isr = self._state.image.brokers, self._state.election_rules(topic).min_isr
        return {number: new_state(topic.partitions[number], brokers, min_isr=min_isr) for number in numbers}

    async def _planned(self, new: NewTopic) -> Topic:
        state, static = self._state, self._state.settings.static
        check_topic_name(new.name)
        new = as_it_must_be(new, static, state.live_machines())
        state.check_owns_topics()
        await self.resolve_outcome(new.name)
        state.classic.check_free(new.name)
        self._check_no_orphans(new.name)
        configs = state.settings.new_topic_configs(new.configs)
        counted = state.classic.default_partitions(new.name) if is_classic(configs) else static.num_partitions
        with state.explaining_cordoned():
            return plan_topic(
                state.image,
                new,
                state.racks(),
                state.entropy,
                default_partitions=counted,
                default_replication_factor=static.default_replication_factor,
                configs=configs,
            )

    def _check_no_orphans(self, name: str) -> None:
        """Raise `ApiError(POLICY_VIOLATION)` where new logs would replace data of a topic unknown to the tree."""
        orphans = self._state.logs.orphans_of(name)
        if orphans:
            text = f"the broker has data of a topic {name!r} that the coordination tree does not know"
            cure = "take it back with 'barnabas topics recover', or move the folder away"
            if name not in self._reported_orphans:
                self._reported_orphans.add(name)
                self._state.report(f"topic {name} is not made: {text}, in {orphans[0]}: {cure}")
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{text}: {cure}")

    # --- grow

    def grow(self, request: CreatePartitions, caller: Caller, reply: Reply[TopicOutcomes]) -> None:
        twice = named_twice(new.topic for new in request.topics)
        quota = self._state.quotas.controller_mutations(caller, is_strict=request.allows_throttling)

        async def one(new: NewPartitions) -> TopicOutcome:
            if new.topic in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {new.topic[:260]!r} is named twice in the request")
            grow = partial(self._grow_one, new, validate_only=request.validate_only, quota=quota)
            await self.retry_if_late(new.topic, grow)
            return TopicOutcome(name=new.topic)

        def failed(new: NewPartitions, code: ErrorCode, text: str | None) -> TopicOutcome:
            return TopicOutcome(name=new.topic, error=code, error_message=text)

        async def all_of_them() -> TopicOutcomes:
            topics = await self._each(one, failed, request.topics)
            return TopicOutcomes(topics=topics, throttle_ms=0 if quota is None else quota.throttle_ms())

        self._changes.submit("CreatePartitions", self._state.in_time(request.timeout_ms, all_of_them), reply)

    async def _grow_one(
        self, new: NewPartitions, *, validate_only: bool, quota: ControllerMutationQuota | None
    ) -> None:
        state, registry = self._state, self._registry
        check_not_internal(new.topic, "the number of its partitions determines the coordinator of each group")
        state.check_owns_topics()
        await self.resolve_outcome(new.topic)
        self._check_no_orphans(new.topic)
        for _ in range(ATTEMPTS):
            before = state.image.topic(new.topic)
            if before.adding or before.removing:
                text = f"partitions of {new.topic} move to other brokers; add to it when they have arrived"
                raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
            with state.explaining_cordoned():
                grown = plan_partitions(state.image, new.topic, new.count, state.racks(), assignments=new.assignments)
            if quota is not None:
                quota.record(len(grown.partitions) - len(before.partitions))
                quota = None  # the next attempt costs nothing
            if validate_only:
                return
            added = self._first_states(grown, grown.partitions.keys() - before.partitions.keys())
            try:
                with self.reread_on_failure(new.topic):
                    await registry.resize(grown, added)
                break
            except BadVersion:  # another broker has changed it in between
                await self.read_again(new.topic)
        else:
            text = f"others change topic {new.topic} as often as it is tried"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text)
        failures = await state.open_topics([grown])
        numbers = grown.partitions.keys() - before.partitions.keys()
        if failures and self._may_be_open(new.topic, numbers):
            # Clients may have written messages: only the replicas that could not be opened are out of use.
            self._report_unopened(failures)
        elif failures:
            state.drop_partitions(new.topic, numbers)
            with self.reread_on_failure(new.topic):
                await registry.resize(before)
            raise failures[new.topic]

    # --- delete

    def delete(self, request: DeleteTopics, caller: Caller, reply: Reply[DeleteTopicsResult]) -> None:
        by_name = [DeletedTopic(name=name) for name in dict.fromkeys(request.names)]
        by_id = [DeletedTopic(name=None, topic_id=topic_id) for topic_id in dict.fromkeys(request.topic_ids)]

        def failed(wanted: DeletedTopic, code: ErrorCode, text: str | None) -> DeletedTopic:
            return evolve(wanted, error=code, error_message=text)

        quota = self._state.quotas.controller_mutations(caller, is_strict=request.allows_throttling)

        ids: dict[str, bytes | None] = {}

        async def one(wanted: DeletedTopic) -> DeletedTopic:
            if wanted.name is None:
                name = await self._name_of(wanted.topic_id)
                return await self.retry_if_late(name, partial(self._delete_one, name, wanted.topic_id, quota))
            name = wanted.name
            if name in ids and ids[name] is None:
                raise await self._unknown(name)
            try:
                return await self.retry_if_late(name, partial(self._delete_one, name, ids.get(name), quota))
            except ApiError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                    raise await self._unknown(name) from error
                raise

        async def all_of_them() -> DeleteTopicsResult:
            ids.update(await self._ids_now([wanted.name for wanted in by_name if wanted.name is not None]))
            topics = await self._each(one, failed, [*by_name, *by_id])
            return DeleteTopicsResult(topics=topics, throttle_ms=0 if quota is None else quota.throttle_ms())

        self._changes.submit("DeleteTopics", self._state.in_time(request.timeout_ms, all_of_them), reply)

    async def _ids_now(self, names: Sequence[str]) -> Mapping[str, bytes | None]:
        """Return the ids that the tree has for these names, None for a topic that does not exist or is being deleted;
        nothing for an unreadable one, and at a broker without others.

        A topic is deleted by the id that its name had when the request had its turn: a broker that is suspended in
        between must not delete a later topic of that name.
        """
        found: dict[str, bytes | None] = {}
        wanted = [] if self._state.is_alone else [name for name in names if is_topic_name(name)]
        for start in range(0, len(wanted), TOPICS_AT_A_TIME):
            some = wanted[start : start + TOPICS_AT_A_TIME]
            topics = await elsewhere(partial(read_live_topics, self._registry.coordination, some))
            found |= {name: None if topic is None else topic.topic_id for name, topic in topics.items()}
        return found

    async def _unknown(self, name: str) -> ApiError:
        """Return the error for a topic that the tree does not have, or no longer, and let the image follow."""
        if name in self._state.image.topics:
            await self.catch_up([name])
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")

    async def _delete_one(
        self, name: str, topic_id: bytes | None, quota: ControllerMutationQuota | None
    ) -> DeletedTopic:
        """`topic_id`: None for any topic of this name."""
        self._state.check_owns_topics()
        await self.resolve_outcome(name)
        image = self._state.image
        topic = image.topic(name) if topic_id is None else image.topic_by_id(topic_id)
        check_not_internal(topic.name, "it is not deleted")
        if not self._state.settings.static.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        if quota is not None:
            quota.record(len(topic.partitions))
        topic = await self._remove(topic.name, topic_id)
        return DeletedTopic(name=topic.name, topic_id=topic.topic_id)

    async def _remove(self, name: str, topic_id: bytes | None = None) -> Topic:
        """Delete the topic; its name is free once its logs are removed, at the latest after a restart.

        `topic_id`: None for any topic of this name. Returns the topic.
        """
        for _ in range(ATTEMPTS):
            topic = self._state.image.topic(name) if topic_id is None else self._state.image.topic_by_id(topic_id)
            holders = () if self._state.is_alone else topic.log_holders
            try:
                with self.reread_on_failure(name):
                    topic = await self._registry.begin_delete(name, holders)
                break
            except BadVersion:  # the topic was deleted, or created again, and this broker has not heard of it yet
                await self.read_again(name)
        else:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change topic {name} as often as it is tried")
        try:
            await self._finish_delete(topic)
        except (CoordinationError, ClosedError) as error:
            self._changes.report_failure(f"removing what is left of topic {name}", error)
        return topic

    async def _finish_delete(self, topic: Topic) -> None:
        if await self._forget(topic):
            with self.reread_on_failure(topic.name):
                await self._registry.finish_delete(topic)

    async def _forget(self, topic: Topic) -> bool:
        """Remove the logs of a deleted topic, and confirm it in the tree, where other brokers wait for that.

        It is durable before: after a power cut the tree would no longer say that the topic was deleted.
        """
        is_gone = self._state.drop_topic(topic)
        if is_gone and not self._state.is_alone:
            try:
                await on_disk(self._state.logs.flush_folder_names)
            except StorageError as error:  # the next start confirms it
                self._changes.report_failure(f"removing the logs of topic {topic.name}", error)
                return is_gone
            coordination, own = self._registry.coordination, self._state.node_id
            await elsewhere(partial(confirm_deleted, coordination, topic.topic_id, own))
        return is_gone

    # --- what other brokers have changed

    async def retry_if_late(self, name: str, attempt: Callable[[], Awaitable[T]], *, with_states: bool = False) -> T:
        """Call `attempt`; if it refuses a change of a topic, and other brokers have changed the topic before this call
        (`with_states`: or the states of its partitions), apply that and call it once more.

        Kafka's controller answers such requests, and knows each topic. The image of a broker may be late: without a
        look into the tree it would deny a topic that was created a moment ago, or claim that a deleted one exists.
        """
        try:
            return await attempt()
        except ApiError as error:
            if error.code not in _CAUSED_BY_LATENESS or not is_topic_name(name):
                raise
            if not await self.catch_up([name], with_states=with_states):
                raise
        return await attempt()

    async def catch_up(self, names: Sequence[str], *, with_states: bool = False) -> bool:
        """Apply the tree's state of these topics, not older than this call; return whether this broker was late."""
        registry = self._registry
        await elsewhere(registry.coordination.heartbeat)
        changed = await registry.changed_topics(names)
        for name in changed:
            with self.reread_on_failure(name):
                await self.apply_topic(name)
        return (with_states and await registry.catch_up_with_states(names)) or bool(changed)

    async def catch_up_with_all(self, *, with_states: bool = False) -> None:
        """Apply the tree's state of all topics, not older than this call."""
        registry = self._registry
        await elsewhere(registry.coordination.heartbeat)
        names = await elsewhere(partial(children, registry.coordination, TOPICS))
        await self.catch_up(list({**dict.fromkeys(names), **registry.image.topics}), with_states=with_states)

    async def read_again(self, name: str) -> None:
        """Apply the tree's state of a topic and of its partitions, not older than this call: a write has met another
        version of one of them."""
        await elsewhere(self._registry.coordination.heartbeat)
        with self.reread_on_failure(name):
            await self.apply_topic(name)

    async def _name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id, which may be new to this broker. Raises
        `ApiError(UNKNOWN_TOPIC_ID)`.

        Only for a caller that may delete each topic: the gate cannot know the name.
        """
        registry = self._registry
        if not registry.image.has_id(topic_id) and not self._state.is_alone:
            for name in await registry.topics_of_unknown_id(topic_id):
                with self.reread_on_failure(name):
                    await self.apply_topic(name)
        return registry.image.topic_by_id(topic_id).name

    # --- what a failed write has left

    async def resolve_outcome(self, name: str) -> None:
        """Return when the topic is in no doubt. Raises `CoordinationError`."""
        await self._changes.resolve_outcome(_subject(name))

    def reread_on_failure(self, name: str) -> AbstractContextManager[None]:
        """Return the context of each write of a topic."""
        return self._changes.reread_on_failure(_subject(name), partial(self.apply_topic, name))

    async def apply_topics(self, names: Sequence[str]) -> None:
        """Apply the tree's state of a topic, or of several that are new, to this broker."""
        if len(names) == 1:
            await self.apply_topic(names[0])
            return
        state = self._state
        await self._registry.reread(*names)
        if not state.owns_topics:
            return
        found = [state.image.topics[name] for name in names if name in state.image.topics]
        for error in (await state.open_topics([each for each in found if not self._is_orphaned(each.name)])).values():
            state.failed("opening the logs of new topics", error)
        for name in names:
            if (going := state.image.deleting.get(name)) is not None:
                await self._finish_delete(going)

    async def apply_topic(self, name: str) -> None:
        """Apply the tree's state of a topic to this broker."""
        state = self._state
        before = state.image.topics.get(name)
        if before is not None and not state.is_alone and await self._was_removed_by_hand(before):
            return
        await self._registry.reread(name)
        if not state.owns_topics:
            return
        after, going = state.image.topics.get(name), state.image.deleting.get(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            if going is None or going.topic_id != before.topic_id:
                await self._forget(before)
        elif before is not None and after is not None:
            state.drop_partitions(name, before.partitions.keys() - after.partitions.keys())
            state.drop_partitions(name, state.moved_away(after))
        if after is not None and not self._is_orphaned(name):
            for error in (await state.open_topics([after])).values():
                state.failed(f"opening the logs of topic {name}", error)
        if going is not None:
            await self._finish_delete(going)

    async def _was_removed_by_hand(self, topic: Topic) -> bool:
        """Return whether the topic's nodes were removed without a deletion while this broker has data of the topic.

        Data wins, so the topic stays served: docs/design/recovery.md, 'Data folders and the coordination tree'. A
        broker without data has nothing to serve, and no note waits for it: docs/design/controller.md, 'Deleted topics'.
        """
        if not self._state.has_replicas_of(topic):
            return False
        wanted = [topic_path(topic.name), deleted_path(topic.topic_id)]
        own, deleted = await elsewhere(partial(self._registry.coordination.get_many, wanted))
        by_hand = own is None and deleted is None and self._state.owns_topics
        if by_hand:
            cure = "put the node back before the broker stops, or let 'barnabas topics recover' create it again then"
            self._report_once(topic.name, f"{wanted[0]} was removed by hand; the topic is still served: {cure}")
        return by_hand

    def _is_orphaned(self, name: str) -> bool:
        """Return True if a topic has appeared whose folders here were not opened at the start. Those of an earlier
        topic of this name are stray, and are renamed."""
        topic = self._state.image.topics[name]
        for key in [key for key in self._state.logs.orphans if key.topic == name]:
            cause = why_orphan_is_stray(topic, self._state.logs.orphans[key].topic_id)
            if cause is not None:
                try:
                    self._state.logs.rename_orphan_to_stray(key, cause)
                except StorageError as error:
                    self._state.failed(f"renaming the folder of {key}, which is stray,", error)
        if not self._state.logs.orphans_of(name):
            return False
        cure = "restart the broker to open them"
        self._report_once(name, f"topic {name} has come back to the coordination tree, and has folders here: {cure}")
        return True

    def _report_once(self, name: str, text: str) -> None:
        if name not in self._reported_orphans:
            self._reported_orphans.add(name)
            self._state.report(text)

    async def _each(
        self, do: Callable[[T], Awaitable[T2]], failed: Callable[[T, ErrorCode, str | None], T2], items: Iterable[T]
    ) -> Sequence[T2]:
        """Return the result of each item; an error affects its item only."""
        outcomes = []
        for item in items:
            try:
                outcomes.append(await do(item))
            except (ApiError, StorageError, CoordinationError, ClosedError) as error:
                refused = refusal(self._state, error)
                outcomes.append(failed(item, refused.code, refused.message or None))
        return outcomes


def _subject(name: str) -> str:
    return f"topic {name}"
