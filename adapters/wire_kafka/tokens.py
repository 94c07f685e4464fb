"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41)."""

from ...ports.broker_api.envelope import Principal
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
from .api import Api
from .schema import ERROR, I32, I64, NULLABLE_TEXT, TEXT, Array, Field, NullableArray, Struct
from .scram import SECRET_DATA
from .wire import Reader, Writer

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

APIS = (CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN)
