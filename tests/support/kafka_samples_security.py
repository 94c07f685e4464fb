"""Samples of the APIs of SCRAM credentials and delegation tokens."""

from attrs import evolve
from support.kafka_sample import Sample

from barnabas.ports.broker_api.envelope import Principal
from barnabas.ports.broker_api.scram import (
    AlteredScramUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    ScramUser,
)
from barnabas.ports.broker_api.tokens import (
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
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.values import Secret

ANN, BOB, CAT = Principal("User", "ann"), Principal("User", "bob"), Principal("User", "cat")
NO_PRINCIPAL = Principal("", "")


def _wire(principal: Principal) -> dict[str, str]:
    return {"principal_type": principal.kind, "principal_name": principal.name}


DESCRIBE_USER_SCRAM_CREDENTIALS = Sample(
    DescribeUserScramCredentials(users=["ann", "bob"]),
    {"users": [{"name": "ann"}, {"name": "bob"}]},
    DescribeUserScramCredentialsResult(
        throttle_ms=3,
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message="no",
        users=[
            ScramUser(
                user="ann",
                credentials=[
                    ScramCredentialInfo(mechanism=1, iterations=4096),
                    ScramCredentialInfo(mechanism=2, iterations=8192),
                ],
            ),
            ScramUser(user="bob", error=ErrorCode.RESOURCE_NOT_FOUND, error_message="none"),
        ],
    ),
    {
        "throttle_time": 3,
        "error_code": 31,
        "error_message": "no",
        "results": [
            {
                "user": "ann",
                "error_code": 0,
                "error_message": None,
                "credential_infos": [
                    {"mechanism": 1, "iterations": 4096},
                    {"mechanism": 2, "iterations": 8192},
                ],
            },
            {"user": "bob", "error_code": 91, "error_message": "none", "credential_infos": []},
        ],
    },
)
ALTER_USER_SCRAM_CREDENTIALS = Sample(
    AlterUserScramCredentials(
        deletions=[ScramDeletion(user="ann", mechanism=1)],
        upsertions=[
            ScramUpsertion(user="bob", mechanism=2, iterations=4097, salt=b"salt", salted_password=Secret(b"salted"))
        ],
    ),
    {
        "deletions": [{"name": "ann", "mechanism": 1}],
        "upsertions": [
            {"name": "bob", "mechanism": 2, "iterations": 4097, "salt": b"salt", "salted_password": b"salted"}
        ],
    },
    AlterUserScramCredentialsResult(
        throttle_ms=4,
        users=[
            AlteredScramUser(user="ann"),
            AlteredScramUser(user="bob", error=ErrorCode.UNACCEPTABLE_CREDENTIAL, error_message="few"),
        ],
    ),
    {
        "throttle_time": 4,
        "results": [
            {"user": "ann", "error_code": 0, "error_message": None},
            {"user": "bob", "error_code": 93, "error_message": "few"},
        ],
    },
)


def _create(owner: Principal | None, requester: Principal) -> Sample:
    owned = {
        "owner_principal_type": None if owner is None else owner.kind,
        "owner_principal_name": None if owner is None else owner.name,
    }
    return Sample(
        CreateDelegationToken(owner=owner, renewers=[BOB, CAT], max_lifetime_ms=77),
        {**owned, "renewers": [_wire(BOB), _wire(CAT)], "max_lifetime": 77},
        CreateDelegationTokenResult(
            error=ErrorCode.INVALID_PRINCIPAL_TYPE,
            owner=ANN,
            requester=requester,
            issue_timestamp_ms=1_000,
            expiry_timestamp_ms=2_000,
            max_timestamp_ms=3_000,
            token_id="id",
            hmac=Secret(b"hmac"),
            throttle_ms=5,
        ),
        {
            "error_code": 67,
            **_wire(ANN),
            "token_requester_principal_type": requester.kind,
            "token_requester_principal_name": requester.name,
            "issue_timestamp": 1_000,
            "expiry_timestamp": 2_000,
            "max_timestamp": 3_000,
            "token_id": "id",
            "hmac": b"hmac",
            "throttle_time": 5,
        },
    )


CREATE_DELEGATION_TOKEN = evolve(_create(CAT, BOB), older=_create(None, NO_PRINCIPAL), older_until=2)
RENEW_DELEGATION_TOKEN = Sample(
    RenewDelegationToken(hmac=Secret(b"hmac"), renew_period_ms=66),
    {"hmac": b"hmac", "renew_period": 66},
    RenewDelegationTokenResult(error=ErrorCode.DELEGATION_TOKEN_EXPIRED, expiry_timestamp_ms=2_000, throttle_ms=1),
    {"error_code": 66, "expiry_timestamp": 2_000, "throttle_time": 1},
)
EXPIRE_DELEGATION_TOKEN = Sample(
    ExpireDelegationToken(hmac=Secret(b"hmac"), expiry_time_period_ms=67),
    {"hmac": b"hmac", "expiry_time_period": 67},
    ExpireDelegationTokenResult(error=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp_ms=2_001, throttle_ms=2),
    {"error_code": 62, "expiry_timestamp": 2_001, "throttle_time": 2},
)


def _describe(requester: Principal) -> Sample:
    token = DelegationToken(
        owner=ANN,
        requester=requester,
        issue_timestamp_ms=1_000,
        expiry_timestamp_ms=2_000,
        max_timestamp_ms=3_000,
        token_id="id",
        hmac=Secret(b"hmac"),
        renewers=[BOB],
    )
    return Sample(
        DescribeDelegationToken(owners=[ANN, CAT]),
        {"owners": [_wire(ANN), _wire(CAT)]},
        DescribeDelegationTokenResult(error=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, tokens=[token], throttle_ms=9),
        {
            "error_code": 61,
            "tokens": [
                {
                    **_wire(ANN),
                    "token_requester_principal_type": requester.kind,
                    "token_requester_principal_name": requester.name,
                    "issue_timestamp": 1_000,
                    "expiry_timestamp": 2_000,
                    "max_timestamp": 3_000,
                    "token_id": "id",
                    "hmac": b"hmac",
                    "renewers": [_wire(BOB)],
                }
            ],
            "throttle_time": 9,
        },
    )


DESCRIBE_DELEGATION_TOKEN = evolve(_describe(BOB), older=_describe(NO_PRINCIPAL), older_until=2)
