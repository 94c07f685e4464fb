"""DescribeClientQuotas (48) and AlterClientQuotas (49)."""

from struct import Struct as Layout

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
from .api import Api
from .schema import BOOL, ERROR, ERROR_TEXT, I8, I32, NULLABLE_TEXT, TEXT, Array, Field, NullableArray, Pairs, Struct
from .wire import Reader, Writer

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

APIS = (DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS)
