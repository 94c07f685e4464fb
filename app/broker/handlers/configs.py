"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (facts C5, C6); DescribeClientQuotas and AlterClientQuotas
(KIP-546), whose limits are nodes of the coordination tree.
"""

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from ....core.cluster.change_queue import elsewhere
from ....core.cluster.deltas import Delta, EntityChanged
from ....core.cluster.entity_store import ChangeEntity
from ....core.cluster.image import ClusterImage
from ....core.cluster.layout import EntityKind
from ....core.cluster.topics import ALL_LOG_DIRS, CORDONED_KEY
from ....core.coordinator.group.group_config import GroupConfigManager
from ....core.security.quotas.entities import altered, check_alteration, describe, entity_name, stored_entry
from ....core.traffic.steps import Steps
from ....ports.broker_api.configs import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    ListConfigResources,
    ListConfigResourcesResult,
    ResourceKind,
    ResourceOutcome,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.quotas import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    AlteredQuota,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    QuotaAlteration,
    QuotaEntry,
)
from ....ports.coordination import BadVersion, CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ...config.classic import FORMAT_KEY
from ..state.broker_state import BrokerState
from ..state.changes import as_api_error
from .topics import ATTEMPTS, TopicService

Plan = Callable[[Mapping[str, str]], Sequence[ConfigAlteration]]
"""Returns the changes to make, by the present configs."""


class ConfigService:
    """Describes and changes the configs of topics, groups and brokers. Each resource succeeds or fails alone, as a
    whole."""

    def __init__(self, state: BrokerState, topics: TopicService, groups: "GroupConfigService") -> None:
        self._state = state
        self._changes = state.changes
        self._topics = topics
        self._groups = groups

    def describe(self, request: DescribeConfigs, caller: Caller, reply: Reply[DescribeConfigsResult]) -> None:
        """Describe the configs; a resource that is named twice is described once."""

        def all_of_them() -> Steps[DescribeConfigsResult]:
            outcomes = []
            made: dict[Hashable, Sequence[ConfigEntry]] = {}
            for wanted in {wanted.resource: wanted for wanted in request.resources}.values():
                try:
                    entries = self._entries(wanted, request, made)
                    outcomes.append(ResourceOutcome(resource=wanted.resource, entries=entries))
                except ApiError as error:
                    outcomes.append(_failed(wanted.resource, error))
                yield None
            return DescribeConfigsResult(resources=outcomes)

        self._state.answer_in_steps("DescribeConfigs", all_of_them(), caller, reply)

    def list_resources(
        self, request: ListConfigResources, caller: Caller, reply: Reply[ListConfigResourcesResult]
    ) -> None:
        """List what may have configs: topics, groups with configs, brokers. No client metrics have any here."""
        unknown = next((kind for kind in request.kinds if kind not in tuple(ResourceKind)), None)
        if unknown is not None:
            reply(request.failed(ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of kind {unknown}")))
            return

        def all_of_them() -> Steps[ListConfigResourcesResult]:
            found = []
            for kind in dict.fromkeys(request.kinds or tuple(ResourceKind)):
                for name in self._names(ResourceKind(kind)):
                    found.append(ConfigResource(kind=kind, name=name))
                    yield None
            return ListConfigResourcesResult(resources=found)

        self._state.answer_in_steps("ListConfigResources", all_of_them(), caller, reply)

    def _names(self, kind: ResourceKind) -> Sequence[str]:
        image = self._state.image
        match kind:
            case ResourceKind.TOPIC:
                return sorted(image.topics)
            case ResourceKind.BROKER | ResourceKind.BROKER_LOGGER:
                return [str(number) for number in sorted(image.brokers)]
            case ResourceKind.GROUP:
                return sorted(image.entities(EntityKind.GROUP_CONFIGS))
            case ResourceKind.CLIENT_METRICS:
                return ()

    def _entries(
        self, wanted: ConfigDescription, request: DescribeConfigs, made: dict[Hashable, Sequence[ConfigEntry]]
    ) -> Sequence[ConfigEntry]:
        """Return the entries of a resource.

        `made`: the entries of topics by their inputs, which most topics share; thousands of copies would slow down the
        garbage collector.
        """
        resource, keys = wanted.resource, wanted.keys
        settings, documentation = self._state.settings, request.include_documentation
        synonyms = request.include_synonyms
        if resource.kind == ResourceKind.TOPIC:
            topic = self._state.image.topic(resource.name)
            own_defaults = topic.name if settings.has_own_defaults(topic.name) else ""
            like = (own_defaults, frozenset(topic.configs.items()), None if keys is None else tuple(keys))
            entries = made.get(like)
            if entries is None:
                entries = made[like] = settings.topic_entries(
                    topic.configs, topic.name, keys=keys, synonyms=synonyms, documentation=documentation
                )
            return entries
        if resource.kind == ResourceKind.GROUP:
            configs = self._groups.configs_of(resource.name)
            return settings.group_entries(configs, keys=keys, synonyms=synonyms, documentation=documentation)
        if self._is_default(resource):
            return settings.default_entries(keys=keys, documentation=documentation)
        return settings.broker_entries(keys=keys, synonyms=synonyms, documentation=documentation)

    def alter(self, request: IncrementalAlterConfigs, _caller: Caller, reply: Reply[AlterConfigsResult]) -> None:
        changes: dict[ConfigResource, list[ConfigAlteration]] = {resource: [] for resource in request.resources}
        for change in request.alterations:
            changes.setdefault(change.resource, []).append(change)
        plans: dict[ConfigResource, Plan] = {resource: _making(each) for resource, each in changes.items()}
        self._alter_each("IncrementalAlterConfigs", plans, reply, validate_only=request.validate_only)

    def replace(self, request: AlterConfigs, _caller: Caller, reply: Reply[AlterConfigsResult]) -> None:
        plans: dict[ConfigResource, Plan] = {
            wanted.resource: partial(_replacing, wanted) for wanted in request.resources
        }
        self._alter_each("AlterConfigs", plans, reply, validate_only=request.validate_only)

    def _alter_each(
        self, what: str, plans: Mapping[ConfigResource, Plan], reply: Reply[AlterConfigsResult], *, validate_only: bool
    ) -> None:
        async def one(resource: ConfigResource, plan: Plan) -> ResourceOutcome:
            try:
                if resource.kind == ResourceKind.TOPIC:
                    alter = partial(self._alter_topic, resource.name, plan, validate_only=validate_only)
                    await self._topics.retry_if_late(resource.name, alter)
                elif resource.kind == ResourceKind.GROUP:
                    await self._groups.alter(resource.name, plan, validate_only=validate_only)
                else:
                    await self._alter_broker_resource(resource, plan, validate_only=validate_only)
            except ApiError as error:
                return _failed(resource, error)
            except (CoordinationError, ClosedError) as error:
                self._changes.report_failure("a change of configs", error)
                return _failed(resource, as_api_error(error))
            return ResourceOutcome(resource=resource)

        def all_of(some: Sequence[ConfigResource]) -> Callable[[], Coroutine[Any, Any, Sequence[ResourceOutcome]]]:
            async def make() -> Sequence[ResourceOutcome]:
                return [await one(resource, plans[resource]) for resource in some]

            return make

        outcomes: dict[ConfigResource, ResourceOutcome] = {}
        failures: list[BarnabasError] = []

        def done(result: Sequence[ResourceOutcome] | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                failures.append(result)
                if len(failures) == 1:
                    reply(result)
                return
            outcomes.update({outcome.resource: outcome for outcome in result})
            if not failures and len(outcomes) == len(plans):
                reply(AlterConfigsResult(resources=[outcomes[resource] for resource in plans]))

        # Entities have a queue of their own, in which they are also read again: see `MetadataListener`.
        of_groups = [resource for resource in plans if resource.kind == ResourceKind.GROUP]
        others = [resource for resource in plans if resource.kind != ResourceKind.GROUP]
        if others or not of_groups:
            self._changes.submit(what, all_of(others), done)
        if of_groups:
            self._state.entities.submit(what, all_of(of_groups), done)

    async def _alter_topic(self, name: str, plan: Plan, *, validate_only: bool) -> None:
        state = self._state
        state.check_owns_topics()
        await self._topics.resolve_outcome(name)
        for _ in range(ATTEMPTS):
            topic = state.image.topic(name)
            altered = state.settings.altered_topic_configs(topic.configs, plan(topic.configs))
            if validate_only:
                return
            try:
                with self._topics.reread_on_failure(name):
                    await state.registry.set_configs(name, altered)
                return
            except BadVersion:  # another broker has changed them in between, or the topic
                await self._topics.read_again(name)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change topic {name} as often as it is tried")

    async def _alter_broker_resource(self, resource: ConfigResource, plan: Plan, *, validate_only: bool) -> None:
        if resource.kind == ResourceKind.BROKER and resource.name.isdecimal() and self._cordons(resource, plan):
            await self._cordon_other(int(resource.name), plan, validate_only=validate_only)
        else:
            await self._alter_broker(plan, everywhere=self._is_default(resource), validate_only=validate_only)

    def _cordons(self, resource: ConfigResource, plan: Plan) -> bool:
        """Return True for a change that only cordons another broker, or ends that. It may be down: it must get no new
        replicas when it is back."""
        if self._state.is_alone or int(resource.name) == self._state.node_id:
            return False
        changes = plan(self._state.image.configs.get(int(resource.name), {}))
        return bool(changes) and all(
            each.name == CORDONED_KEY and (each.op == ConfigOp.DELETE or each.value == ALL_LOG_DIRS) for each in changes
        )

    async def _cordon_other(self, broker_id: int, plan: Plan, *, validate_only: bool) -> None:
        subject = f"the configs of broker {broker_id}"
        await self._changes.resolve_outcome(subject)
        if validate_only:
            return
        for _ in range(ATTEMPTS):
            stored = dict(self._state.image.configs.get(broker_id, {}))
            for change in plan(stored):
                if change.op == ConfigOp.DELETE or change.value is None:
                    stored.pop(change.name, None)
                else:
                    stored[change.name] = change.value
            if await self._store_configs(subject, broker_id, stored):
                return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change {subject} as often as it is tried")

    async def _alter_broker(self, plan: Plan, *, everywhere: bool, validate_only: bool) -> None:
        settings = self._state.settings
        subject = "the configs of all brokers" if everywhere else "the configs of this broker"
        await self._changes.resolve_outcome(subject)
        for _ in range(ATTEMPTS):
            changes = plan(settings.stored_broker_configs(everywhere=everywhere))
            changed = settings.planned_broker_change(changes, everywhere=everywhere)
            if changed.check is not None:
                try:
                    await elsewhere(changed.check)
                except ConfigError as error:
                    raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
            if validate_only or await self._store_configs(subject, changed.broker_id, changed.configs):
                return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change {subject} as often as it is tried")

    async def _store_configs(self, subject: str, broker_id: int | None, configs: Mapping[str, str]) -> bool:
        """Store the configs of a broker, or with None of all. Return False, with those of the tree in the image, if
        another broker has changed them."""
        registry = self._state.registry
        reread = partial(registry.reread_configs, broker_id)
        with self._changes.reread_on_failure(subject, reread):
            try:
                await registry.set_broker_configs(broker_id, configs)
                return True
            except BadVersion:
                await elsewhere(registry.coordination.heartbeat)  # what is read from now on is not older than now
                await reread()
                return False

    def _is_default(self, resource: ConfigResource) -> bool:
        """Return True for the default of all brokers, False for this broker.

        Raises `ApiError(INVALID_REQUEST)` for other resources.
        """
        if resource.kind != ResourceKind.BROKER:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.kind} have no configs here")
        if resource.name in ("", str(self._state.node_id)):
            return not resource.name
        text = f"this is broker {self._state.node_id}; ask broker {resource.name[:20]!r} itself"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


class GroupConfigService:
    """The settings of single groups: nodes of the coordination tree, which each new image gives to the
    `GroupConfigManager`. Owner thread only."""

    def __init__(self, state: BrokerState, manager: GroupConfigManager | None = None) -> None:
        self._state = state
        self.manager = manager or GroupConfigManager(state.settings.group_defaults)
        state.registry.listen(self._on_delta)
        for group_id in state.image.entities(EntityKind.GROUP_CONFIGS):
            self._update(group_id)

    def configs_of(self, group_id: str) -> Mapping[str, str]:
        """Return what is set for a group, which need not exist. Raises `ApiError(INVALID_REQUEST)` for an empty id."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "name a group; its defaults are the configs of brokers, group.*")
        return _stored_configs(self._state.image.entities(EntityKind.GROUP_CONFIGS).get(group_id))

    async def alter(self, group_id: str, plan: Plan, *, validate_only: bool) -> None:
        """Change what is set for a group. Raises `ApiError`, `CoordinationError`."""
        present = self.configs_of(group_id)
        altered = self._state.settings.altering_group(plan)
        altered(present)
        if validate_only:
            return

        def change(stored: Mapping[str, object] | None) -> Mapping[str, object] | None:
            configs = altered(_stored_configs(stored))
            return {_CONFIGS: configs} if configs else None

        await self._state.entities.put(EntityKind.GROUP_CONFIGS, group_id, change, replace_unreadable=True)

    def _on_delta(self, delta: Delta, _before: ClusterImage) -> None:
        if isinstance(delta, EntityChanged) and delta.kind is EntityKind.GROUP_CONFIGS:
            self._update(delta.name)

    def _update(self, group_id: str) -> None:
        self.manager.update_group_config(
            group_id, self._state.settings.group_overrides(group_id, self.configs_of(group_id))
        )


_CONFIGS = "configs"


def _stored_configs(node: Mapping[str, object] | None) -> Mapping[str, str]:
    """Return the configs in the node of a group; what is no text was not written by a broker."""
    configs = (node or {}).get(_CONFIGS)
    if not isinstance(configs, Mapping):
        return {}
    return {str(name): value for name, value in configs.items() if isinstance(value, str)}


def _failed(resource: ConfigResource, error: ApiError) -> ResourceOutcome:
    return ResourceOutcome(resource=resource, error=error.code, error_message=error.message or None)


def _making(changes: Sequence[ConfigAlteration]) -> Plan:
    """Return a plan with these changes, independent of the stored configs."""
    return lambda _stored: changes


def _replacing(wanted: ConfigReplacement, stored: Mapping[str, str]) -> Sequence[ConfigAlteration]:
    """Return the changes after which only the wanted configs are set; the generation of a topic cannot change."""
    resource = wanted.resource
    gone = [name for name in stored if name not in wanted.configs and name != FORMAT_KEY]
    return [
        *(ConfigAlteration(resource=resource, name=name, value=None, op=ConfigOp.DELETE) for name in gone),
        *(ConfigAlteration(resource=resource, name=name, value=value) for name, value in wanted.configs.items()),
    ]


class QuotaService:
    """Answers with the limits of the cluster image, and changes them. Gives each new image's limits to the meters."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._listeners: list[Callable[[Sequence[QuotaEntry]], None]] = []
        state.registry.listen(self._on_delta)
        self.add_quotas_listener(state.quotas.update)

    def add_quotas_listener(self, callback: Callable[[Sequence[QuotaEntry]], None]) -> None:
        """Call back with all quotas now and after each change."""
        self._listeners.append(callback)
        callback(self._entries())

    def describe(
        self, request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        try:
            reply(DescribeClientQuotasResult(entries=describe(request, self._entries())))
        except ApiError as error:
            reply(request.failed(error))

    def alter(self, request: AlterClientQuotas, _caller: Caller, reply: Reply[AlterClientQuotasResult]) -> None:
        """Change each entity that passes the checks; the others do not hinder it."""
        refused = [_refusal(entry) for entry in request.entries]
        accepted = [entry for entry, error in zip(request.entries, refused, strict=True) if error is None]

        def answer(failure: ApiError | None) -> None:
            entries = [_outcome(entry, error or failure) for entry, error in zip(request.entries, refused, strict=True)]
            reply(AlterClientQuotasResult(entries=entries))

        if request.validate_only or not accepted:
            answer(None)
            return

        async def change() -> None:
            await self._state.entities.put_all(EntityKind.QUOTAS, _changes(accepted), replace_unreadable=True)

        def done(result: BarnabasError | None) -> None:
            answer(None if result is None else as_api_error(result))

        self._state.entities.submit("AlterClientQuotas", change, done)

    def _entries(self) -> Sequence[QuotaEntry]:
        entries = map(stored_entry, self._state.image.entities(EntityKind.QUOTAS).values())
        return [entry for entry in entries if entry is not None and entry.limits]

    def _on_delta(self, delta: Delta, _before: ClusterImage) -> None:
        if isinstance(delta, EntityChanged) and delta.kind is EntityKind.QUOTAS:
            entries = self._entries()
            for callback in self._listeners:
                callback(entries)


def _refusal(entry: QuotaAlteration) -> ApiError | None:
    try:
        check_alteration(entry)
    except ApiError as error:
        return error
    return None


def _outcome(entry: QuotaAlteration, error: ApiError | None) -> AlteredQuota:
    if error is None:
        return AlteredQuota(entity=entry.entity)
    return AlteredQuota(entity=entry.entity, error=error.code, error_message=error.message)


def _changes(entries: Sequence[QuotaAlteration]) -> dict[str, ChangeEntity]:
    """Return the changes by the stored name of their entity, those of one entity in the order of the request."""
    changes: dict[str, ChangeEntity] = {}
    for entry in entries:
        name = entity_name(entry.entity)
        changes[name] = _both(changes[name], altered(entry)) if name in changes else altered(entry)
    return changes


def _both(first: ChangeEntity, second: ChangeEntity) -> ChangeEntity:
    return lambda value: second(first(value))
