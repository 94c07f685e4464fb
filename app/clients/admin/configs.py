"""`Admin`: the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....core.client.calls import Target
from ....ports.broker_api.configs import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    ConfigSource,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    ResourceKind,
)
from .asker import AdminRequests, check


class ConfigAdmin:
    """Describes and changes settings."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_configs(
        self,
        kind: ResourceKind,
        name: str | int,
        keys: Sequence[str] | None = None,
        *,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """Return the settings of a topic, or of a broker by its id; `keys` None: all.

        Raises `ApiError`, `ConfigError` for a broker that does not exist.
        """
        resource = ConfigResource(kind=kind, name=str(name))
        request = DescribeConfigs(
            resources=[ConfigDescription(resource=resource, keys=keys)],
            include_synonyms=True,
            include_documentation=documentation,
        )
        result: DescribeConfigsResult = self._asker.shell.ask(request, self._home(resource))
        outcome = result.resources[0]
        check(outcome.error, outcome.error_message, str(resource.name))
        return list(outcome.entries)

    def describe_topic_configs(self, name: str) -> dict[str, str | None]:
        """Return all settings of a topic. Raises `ApiError`."""
        return {entry.name: entry.value for entry in self.describe_configs(ResourceKind.TOPIC, name)}

    def topic_overrides(self, name: str) -> dict[str, str | None]:
        """Return the settings that this topic itself overrides. Raises `ApiError`."""
        entries = self.describe_configs(ResourceKind.TOPIC, name)
        return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}

    def alter_configs(
        self,
        kind: ResourceKind,
        name: str | int,
        changes: Mapping[str, str | None] | Iterable[tuple[str, ConfigOp, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change settings, all of them or none: key → value (None: back to the default), or (key, operation, value).

        Other settings stay as they are. Raises `ApiError` (INVALID_CONFIG, ...).
        """
        resource = ConfigResource(kind=kind, name=str(name))
        operations = (
            [(key, ConfigOp.DELETE if value is None else ConfigOp.SET, value) for key, value in changes.items()]
            if isinstance(changes, Mapping)
            else list(changes)
        )
        request = IncrementalAlterConfigs(
            resources=[resource],
            alterations=[
                ConfigAlteration(resource=resource, name=key, value=value, op=op) for key, op, value in operations
            ],
            validate_only=validate_only,
        )
        self._alter(request, resource)

    def replace_configs(
        self, kind: ResourceKind, name: str | int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set these keys, and reset all others to their defaults. Raises `ApiError` (INVALID_CONFIG, ...)."""
        resource = ConfigResource(kind=kind, name=str(name))
        wanted = ConfigReplacement(resource=resource, configs=configs)
        self._alter(AlterConfigs(resources=[wanted], validate_only=validate_only), resource)

    def _alter(self, request: AlterConfigs | IncrementalAlterConfigs, resource: ConfigResource) -> None:
        target = Target.CONTROLLER if resource.kind == ResourceKind.TOPIC else self._home(resource)
        result: AlterConfigsResult = self._asker.shell.ask(request, target)
        for outcome in result.resources:
            check(outcome.error, outcome.error_message, outcome.resource.name)

    def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None resets a key to its default. Raises `ApiError`."""
        self.alter_configs(ResourceKind.TOPIC, name, changes)

    def _home(self, resource: ConfigResource) -> Target | int:
        """Return the broker to ask: only a broker itself knows its settings (facts C6). Raises `ConfigError`."""
        if resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and resource.name.isdigit():
            node = int(resource.name)
            self._asker.know(node)
            return node
        return Target.ANY
