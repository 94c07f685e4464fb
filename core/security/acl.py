"""ACLs in the coordination tree: one security entity for each resource pattern, with its access control entries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...ports.broker_api.acls import CLUSTER_NAME, AclBinding, PatternType, PermissionType, ResourceType
from ...ports.broker_api.operations import Operation
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen

TYPE_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""The names of resource types in Kafka's log lines and tools."""
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_PATTERNS = {pattern.name: pattern for pattern in (PatternType.LITERAL, PatternType.PREFIXED)}
OPERATIONS = tuple(each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY))
"""The operations that an ACL may have."""
_OPERATIONS = {each.name: each for each in OPERATIONS}
_PERMISSIONS = {each.name: each for each in (PermissionType.DENY, PermissionType.ALLOW)}


@frozen
class ResourcePattern:
    """The resources that an ACL protects, Kafka's `ResourcePattern`; written `Topic:LITERAL:payments`."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    @classmethod
    def of(cls, acl: AclBinding) -> "ResourcePattern":
        """Return the pattern of an ACL."""
        return cls(acl.resource_type, acl.pattern_type, acl.resource_name)

    @classmethod
    def parse(cls, text: str) -> "ResourcePattern":
        """Undo `str`. Raises `ValueError`."""
        type_name, pattern, name = [*text.split(":", 2), "", ""][:3]
        if type_name not in _TYPES or pattern not in _PATTERNS or not name:
            raise ValueError(f"{text!r} is not a resource pattern")
        return cls(_TYPES[type_name], _PATTERNS[pattern], name)

    def __str__(self) -> str:
        return f"{TYPE_NAMES[self.resource_type]}:{self.pattern_type.name}:{self.name}"


def encode_acls(acls: Iterable[AclBinding]) -> Mapping[str, object]:
    """Return the entity with these ACLs, which are of one resource pattern."""
    rows = [[each.principal, each.host, each.operation.name, each.permission.name] for each in acls]
    return {"acls": sorted(rows)}


def decode_acls(name: str, value: Mapping[str, object]) -> Sequence[AclBinding]:
    """Return the ACLs of an entity. Raises `ValueError`."""
    pattern = ResourcePattern.parse(name)
    rows = value.get("acls")
    if not isinstance(rows, list):
        raise ValueError("'acls' is not a list")
    return [_decode_acl(pattern, row) for row in rows]


def _decode_acl(pattern: ResourcePattern, row: object) -> AclBinding:
    if not isinstance(row, list) or len(row) != 4 or not all(isinstance(part, str) for part in row):
        raise ValueError("an ACL is not a list of four texts")
    principal, host, operation, permission = row
    if operation not in _OPERATIONS or permission not in _PERMISSIONS:
        raise ValueError(f"an ACL has the operation {operation[:40]!r} and the permission {permission[:40]!r}")
    return AclBinding(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=principal,
        host=host,
        operation=_OPERATIONS[operation],
        permission=_PERMISSIONS[permission],
    )


def parse_principals(text: str) -> frozenset[str]:
    """Return the principals in a list such as `User:admin;User:CN=broker1,O=Example` (`super.users`).

    Raises `ValueError`.
    """
    found = [part.strip() for part in text.split(";")]
    for principal in filter(None, found):
        check_principal(principal)
    return frozenset(filter(None, found))


def check_principal(principal: str) -> None:
    """Raise `ValueError` if a text is not a type and a name with a colon between them."""
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        text = "expected a string in format principalType:principalName"
        raise ValueError(f"{text} but got {principal[:200]!r}")


def check_acl(acl: AclBinding) -> None:
    """Raise `ApiError(INVALID_REQUEST)` for an ACL that cannot be created, with Kafka's reasons."""
    if not acl.resource_name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Resource name should not be empty")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    try:
        check_principal(acl.principal)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Could not parse principal: {error}") from error


def is_concrete(acl: AclBinding) -> bool:
    """Return False for an ACL with a value that only a filter may have; Kafka refuses its request as a whole."""
    return (
        acl.resource_type is not ResourceType.ANY
        and acl.pattern_type in _PATTERNS.values()
        and acl.operation in OPERATIONS
        and acl.permission in _PERMISSIONS.values()
    )


def acls_in(entities: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, Sequence[AclBinding] | ValueError]]:
    """Return the ACLs of each entity by its name, or the reason why the entity is unreadable."""
    for name, value in entities.items():
        try:
            yield name, decode_acls(name, value)
        except ValueError as error:
            yield name, error
