"""DescribeClientQuotas (48)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


class QuotaMatch(IntEnum):
    """Which entities of a type are meant."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@frozen(kw_only=True)
class QuotaFilter:
    """Entities of one type ("user", "client-id", "ip"); `name` only for an exact match."""

    entity_type: str
    match: int
    name: str | None = None


@frozen(kw_only=True)
class DescribeClientQuotas(Request["DescribeClientQuotasResult"]):
    """Ask for the quotas of entities that fulfil all filters; `strict`: and have no further types."""

    filters: Sequence[QuotaFilter]
    strict: bool = False

    def failed(self, error: ApiError) -> "DescribeClientQuotasResult":
        return DescribeClientQuotasResult(entries=None, error=error.code, error_message=error.message)


@frozen(kw_only=True)
class QuotaEntry:
    """Limits by their keys for one entity: type → name, None = the default of the type."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


@frozen(kw_only=True)
class DescribeClientQuotasResult:
    """`entries` is None on error."""

    entries: Sequence[QuotaEntry] | None
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
