"""DescribeAcls, CreateAcls and DeleteAcls (facts A6)."""

from collections.abc import Iterable, Mapping, Sequence

from ....core.cluster.entity_store import ChangeEntity
from ....core.cluster.layout import EntityKind
from ....core.security.acl import ResourcePattern, acls_in, check_acl, decode_acls, encode_acls, is_concrete
from ....ports.broker_api.acls import (
    AclBinding,
    AclOutcome,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResult,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.coordination import CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState

CHANGES_MAX = 10_000
"""The most ACLs that one request may create, Kafka's limit."""
NO_AUTHORIZER = "No Authorizer is configured on the broker"

Value = Mapping[str, object]


class AclService:
    """Describes and changes the ACLs in the coordination tree. Where other rules decide, it answers SECURITY_DISABLED.

    Every broker may change them; compare-and-set keeps changes of two brokers apart.
    """

    def __init__(self, state: BrokerState, *, has_acls: bool) -> None:
        self._state = state
        self._has_acls = has_acls

    def _stored(self) -> Iterable[tuple[str, Sequence[AclBinding]]]:
        for name, acls in acls_in(self._state.image.entities(EntityKind.ACLS)):
            if not isinstance(acls, ValueError):
                yield name, acls

    def describe(self, request: DescribeAcls, _caller: Caller, reply: Reply[DescribeAclsResult]) -> None:
        if not self._has_acls:
            reply(request.failed(_disabled()))
            return
        found = [acl for _, acls in self._stored() for acl in acls if request.filter.matches(acl)]
        reply(DescribeAclsResult(acls=found))

    def create(self, request: CreateAcls, _caller: Caller, reply: Reply[CreateAclsResult]) -> None:
        refused = self._refused(request)
        if refused is not None:
            reply(request.failed(refused))
            return
        outcomes: list[AclOutcome] = []
        added: dict[str, list[AclBinding]] = {}
        for acl in request.acls:
            try:
                check_acl(acl)
            except ApiError as error:
                outcomes.append(AclOutcome(error=error.code, error_message=error.message))
                continue
            outcomes.append(AclOutcome())
            added.setdefault(str(ResourcePattern.of(acl)), []).append(acl)

        async def creating() -> CreateAclsResult:
            changes = {name: _adding(name, acls) for name, acls in added.items()}
            await self._state.entities.put_all(EntityKind.ACLS, changes)
            return CreateAclsResult(results=outcomes)

        self._state.entities.submit("CreateAcls", creating, reply)

    def _refused(self, request: CreateAcls) -> ApiError | None:
        if not self._has_acls:
            return _disabled()
        if len(request.acls) > CHANGES_MAX:
            return ApiError(ErrorCode.INVALID_REQUEST, f"a request may create {CHANGES_MAX} ACLs at most")
        if not all(is_concrete(acl) for acl in request.acls):
            text = "an ACL to create has ANY or MATCH, which only filters may have"
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return None

    def delete(self, request: DeleteAcls, _caller: Caller, reply: Reply[DeleteAclsResult]) -> None:
        if not self._has_acls:
            reply(request.failed(_disabled()))
            return

        async def deleting() -> DeleteAclsResult:
            deleted: dict[str, Sequence[AclBinding]] = {}

            def removing(name: str) -> ChangeEntity:
                def remove(value: Value | None) -> Value | None:
                    acls = [] if value is None else _decoded(name, value)
                    deleted[name] = [acl for acl in acls if any(each.matches(acl) for each in request.filters)]
                    kept = [acl for acl in acls if acl not in deleted[name]]
                    return encode_acls(kept) if kept else None

                return remove

            named = [
                name
                for name, acls in self._stored()
                if any(each.matches(acl) for acl in acls for each in request.filters)
            ]
            await self._state.entities.put_all(EntityKind.ACLS, {name: removing(name) for name in named})
            every = [acl for acls in deleted.values() for acl in acls]
            return DeleteAclsResult(
                results=[DeletedAcls(acls=[acl for acl in every if each.matches(acl)]) for each in request.filters]
            )

        self._state.entities.submit("DeleteAcls", deleting, reply)


def _disabled() -> ApiError:
    return ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _decoded(name: str, value: Value) -> Sequence[AclBinding]:
    try:
        return decode_acls(name, value)
    except ValueError as error:
        raise CoordinationError(f"the ACLs of {name[:300]} are unreadable; delete their node: {error}") from error


def _adding(name: str, acls: Sequence[AclBinding]) -> ChangeEntity:
    def add(value: Value | None) -> Value:
        known = [] if value is None else _decoded(name, value)
        return encode_acls(dict.fromkeys([*known, *acls]))

    return add
