"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31)."""

from collections.abc import Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request
from .operations import Operation

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""
WILDCARD = "*"
"""The literal resource name for every resource of a type, and the host for every host."""


class ResourceType(IntEnum):
    """The type of a resource that ACLs protect, Kafka's `ResourceType`."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of a resource name; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """The effect of an ACL, Kafka's `AclPermissionType`; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@frozen(kw_only=True)
class AclBinding:
    """An access control entry for a resource pattern, Kafka's `AclBinding`. `principal` is text, as `User:alice`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    principal: str
    host: str = WILDCARD
    operation: Operation
    permission: PermissionType = PermissionType.ALLOW


@frozen(kw_only=True)
class AclBindingFilter:
    """A filter for ACLs, Kafka's `AclBindingFilter`; None and ANY match all.

    `pattern_type` MATCH: the ACLs that apply to a resource of this name.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches(self, acl: AclBinding) -> bool:
        """Return True if the filter selects this ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_name(self, acl: AclBinding) -> bool:
        name, pattern = self.resource_name, self.pattern_type
        if pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if pattern is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)


@frozen(kw_only=True)
class DescribeAcls(Request["DescribeAclsResult"]):
    filter: AclBindingFilter = AclBindingFilter()

    def failed(self, error: ApiError) -> "DescribeAclsResult":
        return DescribeAclsResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class DescribeAclsResult:
    acls: Sequence[AclBinding] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0


@frozen(kw_only=True)
class CreateAcls(Request["CreateAclsResult"]):
    """Add ACLs. One that exists already is a success."""

    acls: Sequence[AclBinding]

    def failed(self, error: ApiError) -> "CreateAclsResult":
        return CreateAclsResult(results=[AclOutcome(error=error.code, error_message=error.message) for _ in self.acls])


@frozen(kw_only=True)
class AclOutcome:
    """The outcome for one ACL."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class CreateAclsResult:
    """The outcomes in the order of the request."""

    results: Sequence[AclOutcome]
    throttle_ms: int = 0


@frozen(kw_only=True)
class DeleteAcls(Request["DeleteAclsResult"]):
    """Remove the ACLs that one of the filters selects."""

    filters: Sequence[AclBindingFilter]

    def failed(self, error: ApiError) -> "DeleteAclsResult":
        rows = [DeletedAcls(error=error.code, error_message=error.message) for _ in self.filters]
        return DeleteAclsResult(results=rows)


@frozen(kw_only=True)
class DeletedAcls:
    """The ACLs that one filter has removed."""

    acls: Sequence[AclBinding] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteAclsResult:
    """The outcomes in the order of the request."""

    results: Sequence[DeletedAcls]
    throttle_ms: int = 0
