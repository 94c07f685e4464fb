"""Authorization: whether a caller may perform an operation on a resource, with the audit log of the decisions."""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from ....core.cluster.deltas import Delta, EntityChanged
from ....core.cluster.image import ClusterImage
from ....core.cluster.layout import EntityKind, entity_path
from ....core.cluster.registry import ClusterRegistry
from ....core.security.acl import ResourcePattern
from ....core.security.standard_authorizer import Action, AuthorizationResult, Authorizer, StandardAuthorizer
from ....ports.broker_api.acls import CLUSTER_NAME, PatternType, ResourceType
from ....ports.broker_api.envelope import Caller, Origin
from ....ports.broker_api.operations import Operation, bit_field
from ....ports.report import Report, debug, info, warning

_BROKER = Origin.BROKER  # the attribute of an enumeration is slow in Python 3.11
AUDIT_LOGGER = "kafka.authorizer.logger"
"""The logger of the audit log, `barnabas.kafka.authorizer.logger`: Kafka's name below ours."""

SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
"""The operations of the bit fields in answers, Kafka's `AclEntry.supportedOperations`."""


class Decider(Protocol):
    """The rules behind `Authorization`."""

    def decide(
        self, caller: Caller, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationResult:
        """Return the decision for one resource."""
        ...

    def decide_by_resource_type(
        self, caller: Caller, operation: Operation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Return the decision for some resource of the type."""
        ...


SEEN_MAX = 20_000
Seen = tuple[str, str, str, Operation, ResourceType, str]
"""A principal's type and name, its host, and what it was allowed."""


class AclDecider:
    """Decides by the ACLs of the cluster image. After a change of them the next decision reads them again."""

    def __init__(self, rules: StandardAuthorizer, registry: ClusterRegistry, report: Report) -> None:
        self._rules = rules
        self._registry = registry
        self._report = report
        self._is_stale = True
        self.seen: set[Seen] = set()
        """The rights that were granted since the last change of the ACLs, up to `SEEN_MAX`."""
        registry.listen(self._on_delta)

    def _on_delta(self, delta: Delta, _before: ClusterImage) -> None:
        if isinstance(delta, EntityChanged) and delta.kind is EntityKind.ACLS:
            self._is_stale = True
            self.seen.clear()

    def _read(self) -> None:
        image = self._registry.image
        bad = self._rules.set_acls(image.entities(EntityKind.ACLS), image.unreadable_entities(EntityKind.ACLS))
        self._is_stale = False
        for name, reason in bad.items():
            path = entity_path(EntityKind.ACLS, name)
            self._report(warning(f"{path} is unreadable, so access to its resources is denied: {reason}"))

    def decide(
        self, caller: Caller, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationResult:
        if self._is_stale:
            self._read()
        decision = self._rules.decide(_principal(caller), caller.host, operation, resource_type, name)
        if decision.is_allowed:
            if len(self.seen) >= SEEN_MAX:
                self.seen.clear()
            principal = caller.principal
            self.seen.add((principal.kind, principal.name, caller.host, operation, resource_type, name))
        return decision

    def decide_by_resource_type(
        self, caller: Caller, operation: Operation, resource_type: ResourceType
    ) -> AuthorizationResult:
        if self._is_stale:
            self._read()
        return self._rules.decide_by_resource_type(_principal(caller), caller.host, operation, resource_type)


class PluginDecider:
    """Decides by an authorizer of a plug-in; super users pass without being asked about."""

    def __init__(self, authorizer: Authorizer, super_users: Iterable[str], report: Report) -> None:
        self._authorizer = authorizer
        self._super_users = frozenset(super_users)
        self._report = report

    def decide(
        self, caller: Caller, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationResult:
        if _principal(caller) in self._super_users:
            return AuthorizationResult(True, "SuperUser")
        try:
            answers = list(self._authorizer.authorize(caller, [Action(operation, resource_type, name)]))
        except Exception as error:  # noqa: BLE001  reported; an authorizer that fails must not allow
            self._report(warning(f"the authorizer failed, so the request is denied: {type(error).__name__}: {error}"))
            return AuthorizationResult(False, "AuthorizerFailed")
        return AuthorizationResult(answers == [True], type(self._authorizer).__name__)

    def decide_by_resource_type(
        self, caller: Caller, operation: Operation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Ask about the wildcard resource: a plug-in has no list of resources."""
        return self.decide(caller, operation, resource_type, "*")


def _principal(caller: Caller) -> str:
    principal = caller.principal
    return f"{principal.kind}:{principal.name}"


class Authorization:
    """Answers whether callers may perform operations; the broker itself may perform all. Owner thread only."""

    def __init__(self, decider: Decider, denied: Callable[[str], None], allowed: Callable[[str], None] | None) -> None:
        """Create it. `denied` and `allowed` take the lines of the audit log; `allowed` None: they are not logged."""
        self._decider = decider
        self._denied = denied
        self._allowed = allowed
        self.seen: Collection[Seen] = decider.seen if isinstance(decider, AclDecider) and allowed is None else ()
        """Rights that `allows` has granted since the last change of the ACLs."""
        self.has_acls = isinstance(decider, AclDecider)
        """True if the ACLs in the tree decide."""

    def allows(
        self,
        caller: Caller,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str = "",
        log_if_denied: bool = True,
    ) -> bool:
        """Return True if the caller may perform the operation on the resource. `request` names it in the audit log."""
        if caller.origin is _BROKER:
            return True
        decision = self._decider.decide(caller, operation, resource_type, name)
        if not decision.is_allowed:
            if log_if_denied:
                self._denied(info(_line(caller, operation, resource_type, name, request, decision)))
        elif self._allowed is not None:
            self._allowed(debug(_line(caller, operation, resource_type, name, request, decision)))
        return decision.is_allowed

    def allows_some(
        self, caller: Caller, operation: Operation, resource_type: ResourceType, *, request: str = ""
    ) -> bool:
        """Return True if the caller may perform the operation on some resource of the type."""
        if caller.origin is _BROKER:
            return True
        decision = self._decider.decide_by_resource_type(caller, operation, resource_type)
        if not decision.is_allowed:
            self._denied(info(_line(caller, operation, resource_type, "*", request, decision)))
        return decision.is_allowed

    def operations(self, caller: Caller, resource_type: ResourceType, name: str) -> int:
        """Return the bit field of the operations that the caller may perform on the resource."""
        return bit_field(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(caller, operation, resource_type, name, log_if_denied=False)
        )

    def cluster_operations(self, caller: Caller) -> int:
        """Return the bit field for the cluster; 0 without the right to describe it."""
        if not self.allows(caller, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
            return 0
        return self.operations(caller, ResourceType.CLUSTER, CLUSTER_NAME)


def _line(
    caller: Caller,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    request: str,
    decision: AuthorizationResult,
) -> str:
    """Return the line of Kafka's audit log."""
    verb = "Allowed" if decision.is_allowed else "Denied"
    resource = ResourcePattern(resource_type, PatternType.LITERAL, name[:300])
    what = f"operation = {operation.name} from host = {caller.host} on resource = {_printable(str(resource))}"
    subject = f"Principal = {_printable(str(caller.principal))} is {verb}"
    text = f"{subject} {what} for request = {request} with resourceRefCount = 1"
    return f"{text} based on rule {decision.rule}"


def _printable(text: str) -> str:
    """Return a text of a client on one line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
