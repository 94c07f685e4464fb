"""ACLs: DescribeAcls (29), CreateAcls (30), DeleteAcls (31). Delegation tokens: CreateDelegationToken (38),
RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...ports.broker_api.acls import (
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
from ...ports.broker_api.envelope import Principal
from ...ports.broker_api.operations import Operation
from ...ports.broker_api.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenResult,
    DelegationToken,
    DescribeDelegationToken,
    DescribeDelegationTokenResult,
    ExpireDelegationToken,
    ExpireDelegationTokenResult,
    RenewDelegationToken,
    RenewDelegationTokenResult,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from . import wire
from .api import Api
from .schema import ERROR, ERROR_TEXT, I32, I64, NULLABLE_TEXT, TEXT, Array, Field, Filler, NullableArray, Struct
from .scram import SECRET_DATA
from .wire import Reader, Writer


class Code:
    """A code of one byte. Kafka closes the connection of a client that sends an unknown one, or UNKNOWN."""

    def __init__(self, codes: type[IntEnum]) -> None:
        self._codes = codes

    def read(self, reader: Reader, version: int) -> Any:  # noqa: ARG002
        number: int = reader.unpack(wire.I8)[0]
        try:
            code = self._codes(number)
        except ValueError:
            code = None
        if code is None or number == Operation.UNKNOWN:
            raise Malformed(f"the {self._codes.__name__} {number} is unknown")
        return code

    def write(self, writer: Writer, version: int, value: Any) -> None:  # noqa: ARG002
        writer.put(wire.I8, value)


_RESOURCE_TYPE = Field("resource_type", Code(ResourceType))
_PATTERN_TYPE = Field("pattern_type", Code(PatternType))
_ENTRY = (
    Field("principal", TEXT),
    Field("host", TEXT),
    Field("operation", Code(Operation)),
    Field("permission", Code(PermissionType)),
)
_ENTRY_STRUCT = Struct(AclBinding, *_ENTRY, given=("resource_type", "resource_name", "pattern_type"))
_BINDING = (_RESOURCE_TYPE, Field("resource_name", TEXT), _PATTERN_TYPE, *_ENTRY)
_FILTER = Struct(
    AclBindingFilter,
    _RESOURCE_TYPE,
    Field("resource_name", NULLABLE_TEXT),
    _PATTERN_TYPE,
    Field("principal", NULLABLE_TEXT),
    Field("host", NULLABLE_TEXT),
    Field("operation", Code(Operation)),
    Field("permission", Code(PermissionType)),
)


class _FilterOnly:
    """The request DescribeAcls: the fields of its filter."""

    def read(self, reader: Reader, version: int) -> DescribeAcls:
        return DescribeAcls(filter=_FILTER.read(reader, version))

    def write(self, writer: Writer, version: int, value: DescribeAcls) -> None:
        _FILTER.write(writer, version, value.filter)


class _ByPattern:
    """ACLs, grouped by their resource pattern."""

    def read(self, reader: Reader, version: int) -> Sequence[AclBinding]:
        acls: list[AclBinding] = []
        for _ in range(reader.count()):
            resource_type = _RESOURCE_TYPE.codec.read(reader, version)
            name = TEXT.read(reader, version)
            pattern_type = _PATTERN_TYPE.codec.read(reader, version)
            given = resource_type, name, pattern_type
            acls += [_ENTRY_STRUCT.read_with(reader, version, *given) for _ in range(reader.count())]
            reader.skip_tags()
        return acls

    def write(self, writer: Writer, version: int, value: Sequence[AclBinding]) -> None:
        patterns: dict[tuple[ResourceType, str, PatternType], list[AclBinding]] = {}
        for acl in value:
            patterns.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
        writer.count(len(patterns))
        for (resource_type, name, pattern_type), acls in patterns.items():
            _RESOURCE_TYPE.codec.write(writer, version, resource_type)
            TEXT.write(writer, version, name)
            _PATTERN_TYPE.codec.write(writer, version, pattern_type)
            writer.count(len(acls))
            for acl in acls:
                _ENTRY_STRUCT.write(writer, version, acl)
            writer.end()


DESCRIBE_ACLS = Api(
    key=29,
    versions=(1, 3),
    flexible_from=2,
    request_type=DescribeAcls,
    request=_FilterOnly(),
    result=Struct(
        DescribeAclsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("acls", _ByPattern()),
    ),
)

CREATE_ACLS = Api(
    key=30,
    versions=(1, 3),
    flexible_from=2,
    request_type=CreateAcls,
    request=Struct(CreateAcls, Field("acls", Array(Struct(AclBinding, *_BINDING)))),
    result=Struct(
        CreateAclsResult,
        Field("throttle_ms", I32),
        Field("results", Array(Struct(AclOutcome, Field("error", ERROR), Field("error_message", ERROR_TEXT)))),
    ),
)

DELETE_ACLS = Api(
    key=31,
    versions=(1, 3),
    flexible_from=2,
    request_type=DeleteAcls,
    request=Struct(DeleteAcls, Field("filters", Array(_FILTER))),
    result=Struct(
        DeleteAclsResult,
        Field("throttle_ms", I32),
        Field(
            "results",
            Array(
                Struct(
                    DeletedAcls,
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                    Field(
                        "acls",
                        Array(
                            Struct(
                                AclBinding,
                                Filler(ERROR, ErrorCode.NONE),
                                Filler(NULLABLE_TEXT, None),
                                *_BINDING,
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)


WITH_OWNER = 3
"""The version of 38 and 41 in which a token may have another owner than its requester (KIP-373)."""


class NullablePrincipal:
    """Type and name, both null or neither."""

    def read(self, reader: Reader, version: int) -> Principal | None:
        kind, name = NULLABLE_TEXT.read(reader, version), NULLABLE_TEXT.read(reader, version)
        return None if not kind or name is None else Principal(kind, name)

    def write(self, writer: Writer, version: int, value: Principal | None) -> None:
        NULLABLE_TEXT.write(writer, version, None if value is None else value.kind)
        NULLABLE_TEXT.write(writer, version, None if value is None else value.name)


PRINCIPAL = Struct(Principal, Field("kind", TEXT), Field("name", TEXT))
INLINE_PRINCIPAL = Struct(Principal, Field("kind", TEXT), Field("name", TEXT), inline=True)

CREATE_DELEGATION_TOKEN = Api(
    key=38,
    versions=(1, 3),
    flexible_from=2,
    request_type=CreateDelegationToken,
    request=Struct(
        CreateDelegationToken,
        Field("owner", NullablePrincipal(), since=WITH_OWNER, absent=None),
        Field("renewers", Array(PRINCIPAL)),
        Field("max_lifetime_ms", I64),
    ),
    result=Struct(
        CreateDelegationTokenResult,
        Field("error", ERROR),
        Field("owner", INLINE_PRINCIPAL),
        Field("requester", INLINE_PRINCIPAL, since=WITH_OWNER),
        Field("issue_timestamp_ms", I64),
        Field("expiry_timestamp_ms", I64),
        Field("max_timestamp_ms", I64),
        Field("token_id", TEXT),
        Field("hmac", SECRET_DATA),
        Field("throttle_ms", I32),
    ),
    least_version=lambda request: 1 if request.owner is None else WITH_OWNER,
)
RENEW_DELEGATION_TOKEN = Api(
    key=39,
    versions=(1, 2),
    flexible_from=2,
    request_type=RenewDelegationToken,
    request=Struct(RenewDelegationToken, Field("hmac", SECRET_DATA), Field("renew_period_ms", I64)),
    result=Struct(
        RenewDelegationTokenResult, Field("error", ERROR), Field("expiry_timestamp_ms", I64), Field("throttle_ms", I32)
    ),
)
EXPIRE_DELEGATION_TOKEN = Api(
    key=40,
    versions=(1, 2),
    flexible_from=2,
    request_type=ExpireDelegationToken,
    request=Struct(ExpireDelegationToken, Field("hmac", SECRET_DATA), Field("expiry_time_period_ms", I64)),
    result=Struct(
        ExpireDelegationTokenResult, Field("error", ERROR), Field("expiry_timestamp_ms", I64), Field("throttle_ms", I32)
    ),
)
DESCRIBE_DELEGATION_TOKEN = Api(
    key=41,
    versions=(1, 3),
    flexible_from=2,
    request_type=DescribeDelegationToken,
    request=Struct(DescribeDelegationToken, Field("owners", NullableArray(PRINCIPAL))),
    result=Struct(
        DescribeDelegationTokenResult,
        Field("error", ERROR),
        Field(
            "tokens",
            Array(
                Struct(
                    DelegationToken,
                    Field("owner", INLINE_PRINCIPAL),
                    Field("requester", INLINE_PRINCIPAL, since=WITH_OWNER, absent=Principal("", "")),
                    Field("issue_timestamp_ms", I64),
                    Field("expiry_timestamp_ms", I64),
                    Field("max_timestamp_ms", I64),
                    Field("token_id", TEXT),
                    Field("hmac", SECRET_DATA),
                    Field("renewers", Array(PRINCIPAL)),
                )
            ),
        ),
        Field("throttle_ms", I32),
    ),
)


APIS = (
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
)
