"""DescribeConfigs and IncrementalAlterConfigs (facts C5, C6)."""

from collections.abc import Callable, Sequence

from ...ports.broker_api import (
    AlterConfigsResult,
    Caller,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    Reply,
    ResourceKind,
    ResourceOutcome,
)
from ...ports.coordination import CoordinationError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .state import BrokerState


class ConfigService:
    """Tells and changes the configs of topics and brokers. Each resource succeeds or fails by itself, wholly."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeConfigs, _caller: Caller, reply: Reply[DescribeConfigsResult]) -> None:
        def one(wanted: ConfigDescription) -> ResourceOutcome:
            return self._outcome(wanted.resource, lambda: self._entries(wanted, request))

        reply(DescribeConfigsResult(resources=[one(wanted) for wanted in request.resources]))

    def _entries(self, wanted: ConfigDescription, request: DescribeConfigs) -> Sequence[ConfigEntry]:
        resource, keys = wanted.resource, wanted.keys
        settings, documentation = self._state.settings, request.include_documentation
        synonyms = request.include_synonyms
        if resource.kind == ResourceKind.TOPIC:
            topic = self._state.registry.topic(resource.name)
            return settings.topic_entries(topic.configs, keys=keys, synonyms=synonyms, documentation=documentation)
        if self._is_default(resource):
            return settings.default_entries(keys=keys, documentation=documentation)
        return settings.broker_entries(keys=keys, synonyms=synonyms, documentation=documentation)

    def alter(self, request: IncrementalAlterConfigs, _caller: Caller, reply: Reply[AlterConfigsResult]) -> None:
        def one(resource: ConfigResource) -> ResourceOutcome:
            changes = [change for change in request.alterations if change.resource == resource]
            return self._outcome(resource, lambda: self._alter(resource, changes, validate_only=request.validate_only))

        reply(AlterConfigsResult(resources=[one(resource) for resource in dict.fromkeys(request.resources)]))

    def _alter(
        self, resource: ConfigResource, changes: Sequence[ConfigAlteration], *, validate_only: bool
    ) -> Sequence[ConfigEntry]:
        state = self._state
        if resource.kind == ResourceKind.TOPIC:
            topic = state.registry.topic(resource.name)
            altered = state.settings.altered_topic_configs(topic.configs, changes)
            if not validate_only:
                state.registry.set_configs(topic.name, altered)
                state.apply_log_configs([topic.name])
            return ()
        everywhere = self._is_default(resource)
        state.settings.alter_broker(changes, everywhere=everywhere, validate_only=validate_only)
        if not validate_only:
            state.apply_broker_configs()
        return ()

    def _is_default(self, resource: ConfigResource) -> bool:
        """True for the default of all brokers, False for this broker; `ApiError(INVALID_REQUEST)` for all else."""
        if resource.kind != ResourceKind.BROKER:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.kind} have no configs here")
        if resource.name in ("", str(self._state.node_id)):
            return not resource.name
        text = f"this is broker {self._state.node_id}; ask broker {resource.name[:20]!r} itself"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)

    def _outcome(self, resource: ConfigResource, do: Callable[[], Sequence[ConfigEntry]]) -> ResourceOutcome:
        try:
            return ResourceOutcome(resource=resource, entries=do())
        except ApiError as error:
            return ResourceOutcome(resource=resource, error=error.code, error_message=error.message or None)
        except CoordinationError as error:
            self._state.failed("a change of configs", error)
            return ResourceOutcome(resource=resource, error=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error))
