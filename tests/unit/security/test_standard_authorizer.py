"""Kafka's rules for ACLs, as its own class applies them (facts A5); random cases: tests/compatibility."""

from collections.abc import Mapping

import pytest

from barnabas.core.security.acl import (
    ResourcePattern,
    acls_in,
    check_acl,
    decode_acls,
    encode_acls,
    parse_principals,
)
from barnabas.core.security.standard_authorizer import CACHED_DECISIONS_MAX, StandardAuthorizer
from barnabas.ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.errors import ApiError

TOPIC, DENY, PREFIXED = ResourceType.TOPIC, PermissionType.DENY, PatternType.PREFIXED
ALICE, HOST = "User:alice", "10.0.0.1"


def acl(name: str, operation: Operation, **changes: object) -> AclBinding:
    values: dict[str, object] = {"resource_type": TOPIC, "principal": ALICE, **changes}
    return AclBinding(resource_name=name, operation=operation, **values)  # type: ignore[arg-type]


def entities(*acls: AclBinding) -> Mapping[str, Mapping[str, object]]:
    by_pattern: dict[str, list[AclBinding]] = {}
    for each in acls:
        by_pattern.setdefault(str(ResourcePattern.of(each)), []).append(each)
    return {name: encode_acls(each) for name, each in by_pattern.items()}


def authorizer(*acls: AclBinding, allow_everyone: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(["User:admin"], allow_everyone_if_no_acl_found=allow_everyone)
    assert not made.set_acls(entities(*acls))
    return made


def allows(
    made: StandardAuthorizer, operation: Operation, name: str = "t", principal: str = ALICE, host: str = HOST
) -> bool:
    return made.decide(principal, host, operation, TOPIC, name).is_allowed


def test_deny_of_describe_does_not_deny_read() -> None:
    made = authorizer(acl("t", Operation.READ), acl("*", Operation.DESCRIBE, permission=DENY))
    assert allows(made, Operation.READ)
    assert not allows(made, Operation.DESCRIBE)


def test_wildcard_deny_wins_over_prefixed_allow_of_one_host() -> None:
    made = authorizer(
        acl("t", Operation.WRITE, pattern_type=PREFIXED, host=HOST), acl("*", Operation.WRITE, permission=DENY)
    )
    assert not allows(made, Operation.WRITE, "t1")


def test_acl_of_another_protects_a_resource_that_is_open_otherwise() -> None:
    made = authorizer(acl("t", Operation.READ, principal="User:bob"), allow_everyone=True)
    assert not allows(made, Operation.WRITE, "t")
    assert allows(made, Operation.WRITE, "other")


def test_super_user_is_allowed_before_and_after_the_acls_are_loaded() -> None:
    made = StandardAuthorizer(["User:admin"], allow_everyone_if_no_acl_found=True)
    assert allows(made, Operation.ALTER, principal="User:admin")
    assert not allows(made, Operation.ALTER)
    made.set_acls(entities(acl("*", Operation.ALL, principal="User:*", permission=DENY)))
    assert allows(made, Operation.ALTER, principal="User:admin")
    assert not allows(made, Operation.ALTER)


def test_decision_changes_with_the_acls_although_it_was_cached() -> None:
    made = authorizer(acl("t", Operation.READ))
    assert allows(made, Operation.READ)
    made.set_acls({})
    assert not allows(made, Operation.READ)


def test_cache_of_decisions_has_a_bound() -> None:
    made = authorizer(acl("t", Operation.READ))
    for number in range(CACHED_DECISIONS_MAX + 10):
        allows(made, Operation.READ, f"t{number}")
    assert len(made._decisions) <= CACHED_DECISIONS_MAX
    assert allows(made, Operation.READ)


@pytest.mark.parametrize("value", [{"acls": "all"}, {"acls": [["User:alice", "*", "READ"]]}, {}, {"acls": [[1] * 4]}])
def test_unreadable_acls_deny_what_they_protect_and_nothing_else(value: Mapping[str, object]) -> None:
    made = StandardAuthorizer(["User:admin"], allow_everyone_if_no_acl_found=True)
    bad = made.set_acls({**entities(acl("x", Operation.READ)), "Topic:PREFIXED:pay": value})
    assert list(bad) == ["Topic:PREFIXED:pay"]
    assert not allows(made, Operation.READ, "payments")
    assert allows(made, Operation.READ, "x")
    assert allows(made, Operation.READ, "t")
    assert allows(made, Operation.READ, "payments", principal="User:admin")


def test_unreadable_node_denies_what_it_protects() -> None:
    made = StandardAuthorizer()
    made.set_acls(entities(acl("*", Operation.ALL)), unreadable=["Topic:LITERAL:t"])
    assert not allows(made, Operation.READ)
    assert allows(made, Operation.READ, "other")


def test_unreadable_node_with_an_unknown_name_denies_all_but_super_users() -> None:
    made = StandardAuthorizer(["User:admin"], allow_everyone_if_no_acl_found=True)
    made.set_acls({}, unreadable=["Topic:SUFFIXED:t"])
    assert not allows(made, Operation.READ)
    assert not made.decide_by_resource_type(ALICE, HOST, Operation.WRITE, TOPIC).is_allowed
    assert allows(made, Operation.READ, principal="User:admin")


def test_acls_survive_their_encoding() -> None:
    acls = [acl("a:b", Operation.READ), acl("a:b", Operation.ALL, permission=DENY, host=HOST, principal="User:a,b=c")]
    (name, value), *rest = entities(*acls).items()
    assert not rest
    assert set(decode_acls(name, value)) == set(acls)
    assert [found for _, found in acls_in({name: value})] == [decode_acls(name, value)]


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_principals("User:admin; User:CN=b,O=c;") == {"User:admin", "User:CN=b,O=c"}
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_principals("admin")


@pytest.mark.parametrize(
    "bad",
    [
        acl("", Operation.READ),
        acl("t", Operation.READ, principal="alice"),
        acl("mine", Operation.ALTER, resource_type=ResourceType.CLUSTER),
    ],
)
def test_acl_that_cannot_be_created_is_refused_with_its_reason(bad: AclBinding) -> None:
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        check_acl(bad)
