"""DescribeClientQuotas (48) and AlterClientQuotas (49), KIP-546."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
"""The types of a quota entity, Kafka's `ClientQuotaEntity`. User and client id may stand together, an ip is alone."""


class QuotaMatch(IntEnum):
    """The comparison of a filter with the name of an entity, Kafka's match type."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@frozen(kw_only=True)
class QuotaFilter:
    """A filter of the entities of one type, Kafka's `ClientQuotaFilterComponent`.

    `match` is a `QuotaMatch`, or a number we do not know; `name` comes with `EXACT` only.
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


@frozen(kw_only=True)
class QuotaOp:
    """The new limit for one key, Kafka's `ClientQuotaAlteration.Op`; `value` None removes the limit."""

    key: str
    value: float | None


@frozen(kw_only=True)
class QuotaAlteration:
    """Changes of one entity (type → name, None = the default of the type), made all or none."""

    entity: Mapping[str, str | None]
    ops: Sequence[QuotaOp]


@frozen(kw_only=True)
class AlterClientQuotas(Request["AlterClientQuotasResult"]):
    """Set and remove limits; each entity stands for itself. `validate_only`: check, and change nothing."""

    entries: Sequence[QuotaAlteration]
    validate_only: bool = False

    def failed(self, error: ApiError) -> "AlterClientQuotasResult":
        return AlterClientQuotasResult(
            entries=[
                AlteredQuota(entity=entry.entity, error=error.code, error_message=error.message)
                for entry in self.entries
            ]
        )


@frozen(kw_only=True)
class AlteredQuota:
    """The outcome for one entity."""

    entity: Mapping[str, str | None]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class AlterClientQuotasResult:
    """One row per entity, in the order of the request."""

    entries: Sequence[AlteredQuota]
    throttle_ms: int = 0
