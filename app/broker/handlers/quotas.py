"""DescribeClientQuotas and AlterClientQuotas (KIP-546): the limits are nodes of the coordination tree."""

from collections.abc import Callable, Sequence

from ....core.cluster.deltas import Delta, EntityChanged
from ....core.cluster.entity_store import ChangeEntity
from ....core.cluster.image import ClusterImage
from ....core.cluster.layout import EntityKind
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
from ....ports.errors import ApiError, BarnabasError
from ..state.broker_state import BrokerState
from ..state.changes import as_api_error


class QuotaService:
    """Answers with the limits of the cluster image, and changes them. Gives each new image's limits to the meters."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._listeners: list[Callable[[Sequence[QuotaEntry]], None]] = []
        state.registry.listen(self._on_delta)
        self.add_quotas_listener(state.quotas.update)

    def add_quotas_listener(self, callback: Callable[[Sequence[QuotaEntry]], None]) -> None:
        """Call back with all quotas now and after each change."""
        self._listeners.append(callback)
        callback(self._entries())

    def describe(
        self, request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        try:
            reply(DescribeClientQuotasResult(entries=describe(request, self._entries())))
        except ApiError as error:
            reply(request.failed(error))

    def alter(self, request: AlterClientQuotas, _caller: Caller, reply: Reply[AlterClientQuotasResult]) -> None:
        """Change each entity that passes the checks; the others do not hinder it."""
        refused = [_refusal(entry) for entry in request.entries]
        accepted = [entry for entry, error in zip(request.entries, refused, strict=True) if error is None]

        def answer(failure: ApiError | None) -> None:
            entries = [_outcome(entry, error or failure) for entry, error in zip(request.entries, refused, strict=True)]
            reply(AlterClientQuotasResult(entries=entries))

        if request.validate_only or not accepted:
            answer(None)
            return

        async def change() -> None:
            await self._state.entities.put_all(EntityKind.QUOTAS, _changes(accepted), replace_unreadable=True)

        def done(result: BarnabasError | None) -> None:
            answer(None if result is None else as_api_error(result))

        self._state.entities.submit("AlterClientQuotas", change, done)

    def _entries(self) -> Sequence[QuotaEntry]:
        entries = map(stored_entry, self._state.image.entities(EntityKind.QUOTAS).values())
        return [entry for entry in entries if entry is not None and entry.limits]

    def _on_delta(self, delta: Delta, _before: ClusterImage) -> None:
        if isinstance(delta, EntityChanged) and delta.kind is EntityKind.QUOTAS:
            entries = self._entries()
            for callback in self._listeners:
                callback(entries)


def _refusal(entry: QuotaAlteration) -> ApiError | None:
    try:
        check_alteration(entry)
    except ApiError as error:
        return error
    return None


def _outcome(entry: QuotaAlteration, error: ApiError | None) -> AlteredQuota:
    if error is None:
        return AlteredQuota(entity=entry.entity)
    return AlteredQuota(entity=entry.entity, error=error.code, error_message=error.message)


def _changes(entries: Sequence[QuotaAlteration]) -> dict[str, ChangeEntity]:
    """Return the changes by the stored name of their entity, those of one entity in the order of the request."""
    changes: dict[str, ChangeEntity] = {}
    for entry in entries:
        name = entity_name(entry.entity)
        changes[name] = _both(changes[name], altered(entry)) if name in changes else altered(entry)
    return changes


def _both(first: ChangeEntity, second: ChangeEntity) -> ChangeEntity:
    return lambda value: second(first(value))
