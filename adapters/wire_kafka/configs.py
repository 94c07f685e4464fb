"""Configs and quotas: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), DescribeClientQuotas (48),
AlterClientQuotas (49), ListConfigResources (74).
"""

from struct import Struct as Layout

from ...ports.broker_api.configs import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigReplacement,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    ListConfigResources,
    ListConfigResourcesResult,
    ResourceKind,
    ResourceOutcome,
)
from ...ports.broker_api.quotas import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    AlteredQuota,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    QuotaAlteration,
    QuotaEntry,
    QuotaFilter,
    QuotaOp,
)
from . import wire
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I32,
    NULLABLE_TEXT,
    TEXT,
    Array,
    Choice,
    Field,
    NullableArray,
    Pairs,
    Struct,
)
from .wire import Reader, Writer

_RESOURCE = Struct(ConfigResource, Field("kind", I8), Field("name", TEXT), inline=True)
_SOURCE = Choice(wire.I8, ConfigSource, ConfigSource.UNKNOWN)
_TYPE = Choice(wire.I8, ConfigType, ConfigType.UNKNOWN)

_ENTRY = Struct(
    ConfigEntry,
    Field("name", TEXT),
    Field("value", NULLABLE_TEXT),
    Field("read_only", BOOL),
    Field("source", _SOURCE),
    Field("sensitive", BOOL),
    Field(
        "synonyms",
        Array(Struct(ConfigSynonym, Field("name", TEXT), Field("value", NULLABLE_TEXT), Field("source", _SOURCE))),
    ),
    Field("type", _TYPE, since=3),
    Field("documentation", NULLABLE_TEXT, since=3),
)

DESCRIBE_CONFIGS = Api(
    key=32,
    versions=(1, 4),
    flexible_from=4,
    request_type=DescribeConfigs,
    request=Struct(
        DescribeConfigs,
        Field(
            "resources",
            Array(Struct(ConfigDescription, Field("resource", _RESOURCE), Field("keys", NullableArray(TEXT)))),
        ),
        Field("include_synonyms", BOOL),
        Field("include_documentation", BOOL, since=3),
    ),
    result=Struct(
        DescribeConfigsResult,
        Field("throttle_ms", I32),
        Field(
            "resources",
            Array(
                Struct(
                    ResourceOutcome,
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                    Field("resource", _RESOURCE),
                    Field("entries", Array(_ENTRY)),
                )
            ),
        ),
    ),
    long_answers=True,
)


class IncrementalAlterConfigsRequest:
    """The request: resources with their changes, which we hold as one flat sequence."""

    def read(self, reader: Reader, version: int) -> IncrementalAlterConfigs:
        resources: list[ConfigResource] = []
        alterations: list[ConfigAlteration] = []
        for _ in range(reader.count()):
            resource = _RESOURCE.read(reader, version)
            resources.append(resource)
            for _ in range(reader.count()):
                name, op, value = reader.text(), I8.read(reader, version), reader.nullable_text()
                alterations.append(ConfigAlteration(resource=resource, name=name, value=value, op=op))
                reader.skip_tags()
            reader.skip_tags()
        validate_only = BOOL.read(reader, version)
        reader.skip_tags()
        return IncrementalAlterConfigs(resources=resources, alterations=alterations, validate_only=validate_only)

    def write(self, writer: Writer, version: int, value: IncrementalAlterConfigs) -> None:
        changes: dict[ConfigResource, list[ConfigAlteration]] = {resource: [] for resource in value.resources}
        for alteration in value.alterations:
            changes.setdefault(alteration.resource, []).append(alteration)
        writer.count(len(changes))
        for resource, alterations in changes.items():
            _RESOURCE.write(writer, version, resource)
            writer.count(len(alterations))
            for alteration in alterations:
                writer.text(alteration.name)
                writer.put(wire.I8, alteration.op)
                writer.nullable_text(alteration.value)
                writer.end()
            writer.end()
        BOOL.write(writer, version, value.validate_only)
        writer.end()


_ALTERED = Struct(
    AlterConfigsResult,
    Field("throttle_ms", I32),
    Field(
        "resources",
        Array(
            Struct(
                ResourceOutcome,
                Field("error", ERROR),
                Field("error_message", ERROR_TEXT),
                Field("resource", _RESOURCE),
            )
        ),
    ),
)

ALTER_CONFIGS = Api(
    key=33,
    versions=(0, 2),
    flexible_from=2,
    request_type=AlterConfigs,
    request=Struct(
        AlterConfigs,
        Field(
            "resources",
            Array(
                Struct(ConfigReplacement, Field("resource", _RESOURCE), Field("configs", Pairs(TEXT, NULLABLE_TEXT)))
            ),
        ),
        Field("validate_only", BOOL),
    ),
    result=_ALTERED,
)

INCREMENTAL_ALTER_CONFIGS = Api(
    key=44,
    versions=(0, 1),
    flexible_from=1,
    request_type=IncrementalAlterConfigs,
    request=IncrementalAlterConfigsRequest(),
    result=_ALTERED,
)


_F64 = Layout(">d")


class Real:
    """A number with a fraction, 8 bytes."""

    def read(self, reader: Reader, version: int) -> float:  # noqa: ARG002
        number: float = reader.unpack(_F64)[0]
        return number

    def write(self, writer: Writer, version: int, value: float) -> None:  # noqa: ARG002
        writer.put(_F64, value)


class Alteration:
    """A key, its new limit, and a byte that says to remove the limit instead."""

    def read(self, reader: Reader, version: int) -> QuotaOp:
        key, value, is_removal = TEXT.read(reader, version), _REAL.read(reader, version), BOOL.read(reader, version)
        reader.skip_tags()
        return QuotaOp(key=key, value=None if is_removal else value)

    def write(self, writer: Writer, version: int, value: QuotaOp) -> None:
        TEXT.write(writer, version, value.key)
        _REAL.write(writer, version, 0.0 if value.value is None else value.value)
        BOOL.write(writer, version, value.value is None)
        writer.end()


_REAL = Real()
_ENTITY = Field("entity", Pairs(TEXT, NULLABLE_TEXT))

DESCRIBE_CLIENT_QUOTAS = Api(
    key=48,
    versions=(0, 1),
    flexible_from=1,
    request_type=DescribeClientQuotas,
    request=Struct(
        DescribeClientQuotas,
        Field(
            "filters",
            Array(
                Struct(QuotaFilter, Field("entity_type", TEXT), Field("match", I8), Field("name", NULLABLE_TEXT)),
            ),
        ),
        Field("strict", BOOL),
    ),
    result=Struct(
        DescribeClientQuotasResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field(
            "entries",
            NullableArray(Struct(QuotaEntry, _ENTITY, Field("limits", Pairs(TEXT, _REAL)))),
        ),
    ),
)

ALTER_CLIENT_QUOTAS = Api(
    key=49,
    versions=(0, 1),
    flexible_from=1,
    request_type=AlterClientQuotas,
    request=Struct(
        AlterClientQuotas,
        Field("entries", Array(Struct(QuotaAlteration, _ENTITY, Field("ops", Array(Alteration()))))),
        Field("validate_only", BOOL),
    ),
    result=Struct(
        AlterClientQuotasResult,
        Field("throttle_ms", I32),
        Field(
            "entries", Array(Struct(AlteredQuota, Field("error", ERROR), Field("error_message", ERROR_TEXT), _ENTITY))
        ),
    ),
)


_LISTED_RESOURCE = Struct(
    ConfigResource,
    Field("name", TEXT),
    Field("kind", I8, since=1, absent=ResourceKind.CLIENT_METRICS),
)


def _least_listing(request: ListConfigResources) -> int:
    return 0 if tuple(request.kinds) == (ResourceKind.CLIENT_METRICS,) else 1


LIST_CONFIG_RESOURCES = Api(
    key=74,
    versions=(0, 1),
    flexible_from=0,
    request_type=ListConfigResources,
    request=Struct(ListConfigResources, Field("kinds", Array(I8), since=1, absent=(ResourceKind.CLIENT_METRICS,))),
    result=Struct(
        ListConfigResourcesResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("resources", Array(_LISTED_RESOURCE)),
    ),
    least_version=_least_listing,
    long_answers=True,
)

APIS = (
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    LIST_CONFIG_RESOURCES,
)
