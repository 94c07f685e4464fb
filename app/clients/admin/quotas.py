"""`Admin`: the quotas of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....core.client.calls import Target
from ....ports.broker_api.quotas import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    QuotaAlteration,
    QuotaEntry,
    QuotaFilter,
    QuotaMatch,
    QuotaOp,
)
from ....ports.values import frozen
from .asker import AdminRequests, check


@frozen(kw_only=True)
class ClientQuotaAlteration:
    """Changes of one entity: type ("user", "client-id", "ip") → name, None = the default of the type.

    `limits`: key ("producer_byte_rate", ...) → the new limit, None = remove it.
    """

    entity: Mapping[str, str | None]
    limits: Mapping[str, float | None]


class QuotaAdmin:
    """Describes and changes quotas."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] | Mapping[str, str | None] = (), *, strict: bool = False
    ) -> list[QuotaEntry]:
        """Return the quotas of entities that fulfil all filters; `strict`: and have no further types.

        A mapping selects by exact names: type → name, None = the default of the type. Raises `ApiError`.
        """
        if isinstance(filters, Mapping):
            filters = [_exact(entity_type, name) for entity_type, name in filters.items()]
        request = DescribeClientQuotas(filters=list(filters), strict=strict)
        result: DescribeClientQuotasResult = self._asker.shell.ask(request)
        check(result.error, result.error_message, "the quotas")
        return list(result.entries or ())

    def alter_client_quotas(self, changes: Iterable[ClientQuotaAlteration], *, validate_only: bool = False) -> None:
        """Set and remove limits; those of one entity are changed all or none. Raises `ApiError`."""
        entries = [
            QuotaAlteration(
                entity=change.entity, ops=[QuotaOp(key=key, value=value) for key, value in change.limits.items()]
            )
            for change in changes
        ]
        request = AlterClientQuotas(entries=entries, validate_only=validate_only)
        result: AlterClientQuotasResult = self._asker.shell.ask(request, Target.CONTROLLER)
        for outcome in result.entries:
            named = ", ".join(
                f"{kind}={'<default>' if name is None else name}" for kind, name in outcome.entity.items()
            )
            check(outcome.error, outcome.error_message, named)


def entity_text(entity: Mapping[str, str | None]) -> str:
    """Return the text of an entity: `user=alice, client-id=<default>`."""
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity.items())


def _exact(entity_type: str, name: str | None) -> QuotaFilter:
    match = QuotaMatch.DEFAULT if name is None else QuotaMatch.EXACT
    return QuotaFilter(entity_type=entity_type, match=match, name=name)
