"""DescribeClientQuotas (48)."""

from collections.abc import Mapping, Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


@frozen(kw_only=True)
class QuotaFilter:
    """A filter of the entities of one type ("user", "client-id", "ip").

    `match` is 0 for the entity `name`, 1 for the default of the type, and 2 for any entity of the type.
    """

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
