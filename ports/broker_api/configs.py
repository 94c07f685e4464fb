"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


class ResourceKind(IntEnum):
    """The type of a resource that has configs, Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value, Kafka's `ConfigSource`."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a value, Kafka's `ConfigType`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOp(IntEnum):
    """The operation on a key, Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen(kw_only=True)
class ConfigResource:
    """A topic, a group, or a broker by its id as text ("" = the default of all brokers).

    `kind` is a `ResourceKind`, or a number we do not know.
    """

    kind: int
    name: str


@frozen(kw_only=True)
class ConfigSynonym:
    """A value that counts if the synonyms before it are not set."""

    name: str
    value: str | None
    source: ConfigSource


@frozen(kw_only=True)
class ConfigEntry:
    """One key; sensitive values are None."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.DEFAULT
    read_only: bool = False
    sensitive: bool = False
    synonyms: Sequence[ConfigSynonym] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None


@frozen(kw_only=True)
class ConfigDescription:
    """Ask for the configs of one resource; `keys` None = all."""

    resource: ConfigResource
    keys: Sequence[str] | None = None


@frozen(kw_only=True)
class DescribeConfigs(Request["DescribeConfigsResult"]):
    resources: Sequence[ConfigDescription]
    include_synonyms: bool = False
    include_documentation: bool = False

    def failed(self, error: ApiError) -> "DescribeConfigsResult":
        return DescribeConfigsResult(
            resources=[
                ResourceOutcome(resource=wanted.resource, error=error.code, error_message=error.message)
                for wanted in self.resources
            ]
        )


@frozen(kw_only=True)
class ResourceOutcome:
    """The outcome for one resource; `entries` only for a description."""

    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    entries: Sequence[ConfigEntry] = ()


@frozen(kw_only=True)
class DescribeConfigsResult:
    resources: Sequence[ResourceOutcome]
    throttle_ms: int = 0


@frozen(kw_only=True)
class ConfigAlteration:
    """One change. `op` may be a number we do not know (answered with INVALID_REQUEST)."""

    resource: ConfigResource
    name: str
    value: str | None = field(repr=False)  # it may be a password
    op: int = ConfigOp.SET


@frozen(kw_only=True)
class IncrementalAlterConfigs(Request["AlterConfigsResult"]):
    """Changes, made all or none for each resource. `resources` also names those without changes."""

    resources: Sequence[ConfigResource]
    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False

    def failed(self, error: ApiError) -> "AlterConfigsResult":
        return AlterConfigsResult(
            resources=[
                ResourceOutcome(resource=resource, error=error.code, error_message=error.message)
                for resource in self.resources
            ]
        )


@frozen(kw_only=True)
class AlterConfigsResult:
    resources: Sequence[ResourceOutcome]
    throttle_ms: int = 0


@frozen(kw_only=True)
class ConfigReplacement:
    """The complete configs of a resource."""

    resource: ConfigResource
    configs: Mapping[str, str | None] = field(repr=False)


@frozen(kw_only=True)
class AlterConfigs(Request["AlterConfigsResult"]):
    """Set keys and reset every other key to its default, all or none for each resource."""

    resources: Sequence[ConfigReplacement]
    validate_only: bool = False

    def failed(self, error: ApiError) -> "AlterConfigsResult":
        return AlterConfigsResult(
            resources=[
                ResourceOutcome(resource=wanted.resource, error=error.code, error_message=error.message)
                for wanted in self.resources
            ]
        )


@frozen(kw_only=True)
class ListConfigResources(Request["ListConfigResourcesResult"]):
    """List the resources of these kinds, a `ResourceKind` each, that have configs; none named: of all kinds.

    Version 0 can ask for CLIENT_METRICS only.
    """

    kinds: Sequence[int] = ()

    def failed(self, error: ApiError) -> "ListConfigResourcesResult":
        return ListConfigResourcesResult(error=error.code)


@frozen(kw_only=True)
class ListConfigResourcesResult:
    resources: Sequence[ConfigResource] = ()
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0
