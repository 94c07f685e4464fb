"""The rules of Kafka's `StandardAuthorizer`: who may perform which operation on which resource.

Super users may do everything. Else a matching DENY wins, wherever it stands; then a matching ALLOW; then, if no ACL at
all protects the resource, `allow.everyone.if.no.acl.found`; else the operation is denied.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ...ports.broker_api.acls import WILDCARD, AclBinding, PatternType, PermissionType, ResourceType
from ...ports.broker_api.envelope import Caller
from ...ports.broker_api.operations import Operation
from ...ports.values import frozen
from .acl import ResourcePattern, acls_in

EVERY_PRINCIPAL = "User:*"
CACHED_DECISIONS_MAX = 20_000

_IMPLYING: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
"""The operations whose ALLOW implies an operation."""


@frozen
class AuthorizationResult:
    """A decision and the rule that made it, in the words of Kafka's audit log."""

    is_allowed: bool
    rule: str


@frozen
class Action:
    """An operation on a resource, Kafka's `Action`."""

    operation: Operation
    resource_type: ResourceType
    resource_name: str

    def __str__(self) -> str:
        return (
            f"{self.operation.name} on {ResourcePattern(self.resource_type, PatternType.LITERAL, self.resource_name)}"
        )


class Authorizer(Protocol):
    """An authorizer of a plug-in (hook `barnabas_authorizer`)."""

    def authorize(self, caller: Caller, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether the caller may perform it. Called on the broker's thread: it must be quick.

        An error, or an answer of another length, denies all of them.
        """
        ...


_SUPER_USER = AuthorizationResult(True, "SuperUser")
_DEFAULT_ALLOW = AuthorizationResult(True, "DefaultAllow")
_DEFAULT_DENY = AuthorizationResult(False, "DefaultDeny")

_Key = tuple[str, str, Operation, ResourceType, str]


class _TypeIndex:
    """The ACLs of one resource type, by their resource name."""

    def __init__(self) -> None:
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[str, list[AclBinding]] = {}
        self.prefix_lengths: tuple[int, ...] = ()

    def add(self, acl: AclBinding) -> None:
        named = self.literal if acl.pattern_type is PatternType.LITERAL else self.prefixed
        named.setdefault(acl.resource_name, []).append(acl)

    def finish(self) -> None:
        self.prefix_lengths = tuple(sorted({len(name) for name in self.prefixed}))

    def matching(self, name: str) -> Iterable[AclBinding]:
        """Return the ACLs that apply to the resource of this name."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                return
            yield from self.prefixed.get(name[:length], ())


class StandardAuthorizer:
    """Decides by ACLs. It has none until `set_acls` is called: only super users may do something until then.

    It caches decisions until the ACLs change, so that the cost of a request does not depend on their number.
    """

    def __init__(self, super_users: Collection[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._default = _DEFAULT_ALLOW if allow_everyone_if_no_acl_found else _DEFAULT_DENY
        self._index: dict[ResourceType, _TypeIndex] = {}
        self._denies_all: str | None = "the ACLs are not loaded"
        self._decisions: dict[_Key, AuthorizationResult] = {}

    def set_acls(
        self, entities: Mapping[str, Mapping[str, object]], unreadable: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Replace all ACLs by those of the entities in the tree; returns unreadable ones, with the reasons.

        What an unreadable entity protects is denied: it may have been a DENY.
        """
        acls: list[AclBinding] = []
        bad = dict.fromkeys(unreadable, "")
        for name, found in acls_in(entities):
            if isinstance(found, ValueError):
                bad[name] = str(found)
            else:
                acls += found
        self._denies_all = None
        for name in bad:
            try:
                acls.append(_deny_all(ResourcePattern.parse(name)))
            except ValueError:  # perhaps of a newer version: it is not known what it protects
                self._denies_all = f"an ACL entity with the unknown name {name[:200]!r}"
        self._index = {}
        for acl in acls:
            self._index.setdefault(acl.resource_type, _TypeIndex()).add(acl)
        for index in self._index.values():
            index.finish()
        self._decisions.clear()
        return {name: reason for name, reason in bad.items() if reason}

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationResult:
        """Return the decision for a principal such as `User:alice` at this address."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= CACHED_DECISIONS_MAX:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(principal, host, operation, resource_type, name)
        return decision

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationResult:
        if principal in self._super_users:
            return _SUPER_USER
        if self._denies_all is not None:
            return AuthorizationResult(False, self._denies_all)
        index = self._index.get(resource_type)
        allowing = _IMPLYING.get(operation, (operation, Operation.ALL))
        allowed: AclBinding | None = None
        is_protected = False
        for acl in index.matching(name) if index is not None else ():
            is_protected = True
            if acl.principal not in (principal, EVERY_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission is PermissionType.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return AuthorizationResult(False, _rule_of(acl))
            elif allowed is None and acl.operation in allowing:
                allowed = acl
        if allowed is not None:
            return AuthorizationResult(True, _rule_of(allowed))
        return _DEFAULT_DENY if is_protected else self._default

    def decide_by_resource_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Return True if the principal may perform the operation on some resource of this type, by Kafka's
        `authorizeByResourceType`."""
        hard_coded = self.decide(principal, host, operation, resource_type, "hardcode")
        if hard_coded.is_allowed or self._denies_all is not None:
            return hard_coded
        index = self._index.get(resource_type) or _TypeIndex()

        def names(named: Mapping[str, list[AclBinding]], permission: PermissionType) -> set[str]:
            return {
                name
                for name, acls in named.items()
                for acl in acls
                if acl.permission is permission
                and acl.host in (host, WILDCARD)
                and acl.principal in (principal, EVERY_PRINCIPAL)
                and acl.operation in (operation, Operation.ALL)
            }

        denied = names(index.literal, PermissionType.DENY)
        denied_prefixes = names(index.prefixed, PermissionType.DENY)
        if WILDCARD in denied:
            return _DEFAULT_DENY
        allowed = names(index.literal, PermissionType.ALLOW)
        if WILDCARD in allowed:
            return _DEFAULT_ALLOW

        def is_dominated(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

        candidates = (allowed - denied) | names(index.prefixed, PermissionType.ALLOW)
        return _DEFAULT_ALLOW if any(not is_dominated(name) for name in candidates) else _DEFAULT_DENY


def _deny_all(pattern: ResourcePattern) -> AclBinding:
    return AclBinding(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=EVERY_PRINCIPAL,
        operation=Operation.ALL,
        permission=PermissionType.DENY,
    )


def _rule_of(acl: AclBinding) -> str:
    entry = f"principal={acl.principal}, host={acl.host}, operation={acl.operation.name}"
    return f"MatchingAcl(acl=StandardAcl({ResourcePattern.of(acl)}, {entry}, permissionType={acl.permission.name}))"
