"""DescribeClientQuotas and AlterClientQuotas (KIP-546): limits, stored in the coordination tree."""

from collections.abc import Sequence
from typing import Any

from ....core.security.quotas.entities import altered, check_alteration, describe, entity_name, stored_entry
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.quotas import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    AlteredQuota,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    QuotaAlteration,
    QuotaEntry,
)
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState


class QuotaService:
    """Answers with the limits of this broker's image, and changes them."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._stored: dict[str, Any] = {}

    def _entries(self) -> Sequence[QuotaEntry]:
        entries = (stored_entry(value) for value in self._stored.values())
        return [entry for entry in entries if entry is not None and entry.limits]

    def describe(
        self, request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        try:
            reply(DescribeClientQuotasResult(entries=describe(request, self._entries())))
        except ApiError as error:
            reply(request.failed(error))

    def alter(self, request: AlterClientQuotas, _caller: Caller, reply: Reply[AlterClientQuotasResult]) -> None:
        reply(AlterClientQuotasResult(entries=[self._alter(entry, request) for entry in request.entries]))

    def _alter(self, entry: QuotaAlteration, request: AlterClientQuotas) -> AlteredQuota:
        try:
            check_alteration(entry)
        except ApiError as error:
            return AlteredQuota(entity=entry.entity, error=error.code, error_message=error.message)
        if not request.validate_only:
            name = entity_name(entry.entity)
            value = altered(entry)(self._stored.get(name))
            if value is None:
                self._stored.pop(name, None)
            else:
                self._stored[name] = value
            self._state.quotas.update(self._entries())
        return AlteredQuota(entity=entry.entity)
