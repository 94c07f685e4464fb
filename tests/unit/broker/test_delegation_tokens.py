"""Delegation tokens: created, renewed, expired, described, and swept."""

from typing import Any

import pytest

from barnabas.core.cluster.deltas import EntityChanged
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.security.delegation_tokens import token_credential, token_password
from barnabas.ports.broker_api.envelope import ANONYMOUS, Caller, Principal
from barnabas.ports.broker_api.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenResult,
    DescribeDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.values import Secret
from barnabas.testing.manual_broker import ManualBroker

DAY_MS = 86_400_000
ANN, BOB, CAT = (Principal("User", name) for name in ("ann", "bob", "cat"))
KEY: dict[str, Any] = {"delegation_token_secret_key": "masterkey"}


def as_(principal: Principal, **more: Any) -> Caller:
    return Caller(principal=principal, **more)


def create(broker: ManualBroker, caller: Caller, **more: Any) -> CreateDelegationTokenResult:
    answers = broker.submit(CreateDelegationToken(**more), caller)
    broker.wait(1000)
    return answers[0]


def later(broker: ManualBroker, request: Any, caller: Caller) -> Any:
    answers = broker.submit(request, caller)
    broker.wait(1000)
    return answers[0]


def test_new_token_lives_a_day_and_at_most_a_week() -> None:
    broker = ManualBroker(**KEY)
    now_ms = broker.clock.now_ms()
    token = create(broker, as_(ANN), renewers=[BOB])
    assert token.error is ErrorCode.NONE
    assert (token.owner, token.requester) == (ANN, ANN)
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms) == (now_ms, now_ms + DAY_MS)
    assert token.max_timestamp_ms == now_ms + 7 * DAY_MS
    assert len(token.hmac.value) == 64
    short = create(broker, as_(ANN), max_lifetime_ms=500)
    assert short.expiry_timestamp_ms == short.max_timestamp_ms == short.issue_timestamp_ms + 500
    assert not any(token_password(token.hmac) in line for line in broker.lines)


def test_login_by_token_ends_with_the_token() -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN), max_lifetime_ms=5000)
    node = broker.node.state.image.entities(EntityKind.TOKENS)[token.token_id]
    found = token_credential(node, "SCRAM-SHA-256", token.issue_timestamp_ms)
    assert found is not None
    assert (found.owner, found.expires_at_ms) == (ANN, token.expiry_timestamp_ms)
    assert token_credential(node, "SCRAM-SHA-256", token.expiry_timestamp_ms) is None


def test_requests_that_are_not_allowed_have_kafkas_codes() -> None:
    broker = ManualBroker(**KEY)
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(broker, as_(ANONYMOUS)).error is not_allowed
    assert create(broker, as_(ANN, is_token_authenticated=True)).error is not_allowed
    assert broker.ask(DescribeDelegationToken(), as_(ANONYMOUS)).error is not_allowed
    assert create(broker, as_(ANN), renewers=[Principal("Group", "x")]).error is ErrorCode.INVALID_PRINCIPAL_TYPE
    unknown = Secret(b"unknown")
    assert broker.ask(RenewDelegationToken(hmac=unknown), as_(ANN)).error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert broker.ask(ExpireDelegationToken(hmac=unknown), as_(ANN)).error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    without = ManualBroker()
    assert create(without, as_(ANN)).error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert without.ask(RenewDelegationToken(hmac=unknown), as_(ANN)).error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_token_that_another_broker_has_just_created_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN))
    monkeypatch.setattr(broker.node.state, "is_alone", False)
    broker.node.state.registry.apply(EntityChanged(kind=EntityKind.TOKENS, name=token.token_id, value=None))
    renewed = later(broker, RenewDelegationToken(hmac=token.hmac), as_(ANN))
    assert renewed.error is ErrorCode.NONE
    unknown = later(broker, RenewDelegationToken(hmac=Secret(b"unknown")), as_(ANN))
    assert unknown.error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_owner_and_renewer_may_renew_others_may_not() -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN), renewers=[BOB])
    request = RenewDelegationToken(hmac=token.hmac, renew_period_ms=3 * DAY_MS)
    assert later(broker, request, as_(CAT)).error is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    now_ms = broker.clock.now_ms()
    assert later(broker, request, as_(BOB)).expiry_timestamp_ms == now_ms + 3 * DAY_MS
    longest = RenewDelegationToken(hmac=token.hmac, renew_period_ms=30 * DAY_MS)
    assert later(broker, longest, as_(ANN)).expiry_timestamp_ms == token.max_timestamp_ms
    (described,) = broker.ask(DescribeDelegationToken(), as_(ANN)).tokens
    assert described.expiry_timestamp_ms == token.max_timestamp_ms


def test_expired_token_cannot_be_renewed() -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN), max_lifetime_ms=2000)
    broker.wait(3000)
    request = RenewDelegationToken(hmac=token.hmac)
    assert later(broker, request, as_(ANN)).error is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_negative_period_deletes_the_token() -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN))
    request = ExpireDelegationToken(hmac=token.hmac, expiry_time_period_ms=-1)
    assert later(broker, request, as_(ANN)).error is ErrorCode.NONE
    again = later(broker, request, as_(ANN))
    assert (again.error, again.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_described_tokens_are_those_of_the_named_owners() -> None:
    broker = ManualBroker(**KEY)
    mine = create(broker, as_(ANN), renewers=[CAT])
    create(broker, as_(BOB))

    def described(owners: list[Principal] | None) -> set[str]:
        return {str(token.owner) for token in broker.ask(DescribeDelegationToken(owners=owners), as_(ANN)).tokens}

    assert described(None) == {"User:ann", "User:bob"}
    assert described([]) == set()
    assert described([CAT]) == {"User:ann"}
    assert mine.token_id


def test_expired_tokens_are_deleted_after_the_check_interval() -> None:
    broker = ManualBroker(delegation_token_expiry_check_interval_ms=10_000, **KEY)
    create(broker, as_(ANN), max_lifetime_ms=2000)
    create(broker, as_(BOB))
    broker.wait(25_000)
    tokens = broker.node.state.image.entities(EntityKind.TOKENS)
    assert [node["owner"] for node in tokens.values()] == ["User:bob"]


def test_restarted_broker_knows_its_tokens() -> None:
    broker = ManualBroker(**KEY)
    token = create(broker, as_(ANN))
    broker.restart()
    (described,) = broker.ask(DescribeDelegationToken(), as_(ANN)).tokens
    assert (described.token_id, described.hmac) == (token.token_id, token.hmac)
