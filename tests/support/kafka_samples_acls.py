"""Samples of the APIs for ACLs."""

from support.kafka_sample import Sample

from barnabas.ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    AclOutcome,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResult,
    PatternType,
    PermissionType,
    ResourceType,
)
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.error_codes import ErrorCode

_READ = AclBinding(
    resource_type=ResourceType.TOPIC,
    resource_name="clicks",
    principal="User:ann",
    host="10.0.0.1",
    operation=Operation.READ,
)
_DENY = AclBinding(
    resource_type=ResourceType.TRANSACTIONAL_ID,
    resource_name="tx-",
    pattern_type=PatternType.PREFIXED,
    principal="User:*",
    operation=Operation.ALL,
    permission=PermissionType.DENY,
)
_READ_ENTRY = {"principal": "User:ann", "host": "10.0.0.1", "operation": 3, "permission_type": 3}
_DENY_ENTRY = {"principal": "User:*", "host": "*", "operation": 2, "permission_type": 2}
_ANY = AclBindingFilter()
_ANY_WIRE = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_MATCH = AclBindingFilter(
    resource_type=ResourceType.GROUP,
    resource_name="g",
    pattern_type=PatternType.MATCH,
    principal="User:ann",
    host="*",
    operation=Operation.TWO_PHASE_COMMIT,
    permission=PermissionType.ALLOW,
)
_MATCH_WIRE = {
    "resource_type_filter": 3,
    "resource_name_filter": "g",
    "pattern_type_filter": 2,
    "principal_filter": "User:ann",
    "host_filter": "*",
    "operation": 15,
    "permission_type": 3,
}

DESCRIBE_ACLS = Sample(
    DescribeAcls(filter=_MATCH),
    _MATCH_WIRE,
    DescribeAclsResult(
        acls=[_READ, _DENY], error=ErrorCode.SECURITY_DISABLED, error_message="no authorizer", throttle_ms=7
    ),
    {
        "throttle_time": 7,
        "error_code": 54,
        "error_message": "no authorizer",
        "resources": [
            {"resource_type": 2, "resource_name": "clicks", "pattern_type": 3, "acls": [_READ_ENTRY]},
            {"resource_type": 5, "resource_name": "tx-", "pattern_type": 4, "acls": [_DENY_ENTRY]},
        ],
    },
)
CREATE_ACLS = Sample(
    CreateAcls(acls=[_READ, _DENY]),
    {
        "creations": [
            {"resource_type": 2, "resource_name": "clicks", "resource_pattern_type": 3, **_READ_ENTRY},
            {"resource_type": 5, "resource_name": "tx-", "resource_pattern_type": 4, **_DENY_ENTRY},
        ]
    },
    CreateAclsResult(
        results=[AclOutcome(), AclOutcome(error=ErrorCode.INVALID_REQUEST, error_message="bad")], throttle_ms=8
    ),
    {
        "throttle_time": 8,
        "results": [{"error_code": 0, "error_message": None}, {"error_code": 42, "error_message": "bad"}],
    },
)
DELETE_ACLS = Sample(
    DeleteAcls(filters=[_ANY, _MATCH]),
    {"filters": [_ANY_WIRE, _MATCH_WIRE]},
    DeleteAclsResult(
        results=[
            DeletedAcls(acls=[_READ, _DENY]),
            DeletedAcls(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no"),
        ],
        throttle_ms=9,
    ),
    {
        "throttle_time": 9,
        "filter_results": [
            {
                "error_code": 0,
                "error_message": None,
                "matching_acls": [
                    {
                        "error_code": 0,
                        "error_message": None,
                        "resource_type": 2,
                        "resource_name": "clicks",
                        "pattern_type": 3,
                        **_READ_ENTRY,
                    },
                    {
                        "error_code": 0,
                        "error_message": None,
                        "resource_type": 5,
                        "resource_name": "tx-",
                        "pattern_type": 4,
                        **_DENY_ENTRY,
                    },
                ],
            },
            {"error_code": 31, "error_message": "no", "matching_acls": []},
        ],
    },
)
