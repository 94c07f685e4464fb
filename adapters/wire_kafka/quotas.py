"""DescribeClientQuotas (48)."""

from struct import Struct as Layout

from ...ports.broker_api.quotas import DescribeClientQuotas, DescribeClientQuotasResult, QuotaEntry, QuotaFilter
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
            NullableArray(
                Struct(QuotaEntry, Field("entity", Pairs(TEXT, NULLABLE_TEXT)), Field("limits", Pairs(TEXT, Real())))
            ),
        ),
    ),
)

APIS = (DESCRIBE_CLIENT_QUOTAS,)
