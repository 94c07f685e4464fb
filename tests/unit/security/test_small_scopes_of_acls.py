"""All sets of at most two ACLs over a small universe: the index and the caches decide as the plain definition."""

from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_tests import first_is_quick

from barnabas.app.broker.state.authorization import AclDecider, Authorization
from barnabas.core.cluster.deltas import EntityChanged
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.security.acl import ResourcePattern, encode_acls
from barnabas.core.security.standard_authorizer import StandardAuthorizer
from barnabas.ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.envelope import Caller, Principal
from barnabas.ports.broker_api.operations import Operation

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC = ResourceType.TOPIC
HOST = "10.0.0.1"

PATTERNS = ((LITERAL, "a"), (LITERAL, "*"), (PREFIXED, "a"))
RULES = [
    AclBinding(
        resource_type=TOPIC,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )
    for (pattern, name), principal, host, operation, permission in product(
        PATTERNS, ("User:ann", "User:*"), (HOST, "*"), (READ, DESCRIBE, ALL), (ALLOW, DENY)
    )
]
Question = tuple[str, str, Operation, str]
QUESTIONS: list[Question] = list(product(("ann", "bob"), (HOST, "10.0.0.2"), (READ, WRITE, DESCRIBE), ("a", "abc")))


def protects(rule: AclBinding, name: str) -> bool:
    if rule.pattern_type is PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")


def is_about(rule: AclBinding, user: str, host: str) -> bool:
    return rule.principal in (f"User:{user}", "User:*") and rule.host in (host, "*")


def allowed(rules: Collection[AclBinding], question: Question, *, everyone: bool) -> bool:
    """Return the answer by the definition of ACLs."""
    user, host, operation, name = question
    protecting = [rule for rule in rules if protects(rule, name)]
    mine = [rule for rule in protecting if is_about(rule, user, host)]
    if any(rule.permission is DENY and rule.operation in (operation, ALL) for rule in mine):
        return False
    implying = {operation, ALL} | ({READ, WRITE} if operation is DESCRIBE else set())
    if any(rule.permission is ALLOW and rule.operation in implying for rule in mine):
        return True
    return everyone and not protecting


def entities(rules: Collection[AclBinding]) -> Mapping[str, Mapping[str, object]]:
    by_pattern: dict[str, list[AclBinding]] = {}
    for rule in rules:
        by_pattern.setdefault(str(ResourcePattern.of(rule)), []).append(rule)
    return {name: encode_acls(each) for name, each in by_pattern.items()}


@pytest.mark.parametrize("everyone", first_is_quick([False, True]))
def test_every_set_of_two_rules_is_decided_as_defined(everyone: bool) -> None:
    authorizer = StandardAuthorizer(allow_everyone_if_no_acl_found=everyone)
    for size in (0, 1, 2):
        for rules in combinations(RULES, size):
            authorizer.set_acls(entities(rules))
            for question in QUESTIONS:
                user, host, operation, name = question
                decided = authorizer.decide(f"User:{user}", host, operation, TOPIC, name).is_allowed
                assert decided == allowed(rules, question, everyone=everyone), (rules, question)


class Image:
    """The part of a cluster's image that the decider reads, and of the registry that it listens to."""

    def __init__(self) -> None:
        self.rules: Collection[AclBinding] = ()
        self._listeners: list[Callable[..., None]] = []

    @property
    def image(self) -> "Image":
        return self

    def entities(self, _kind: EntityKind) -> Mapping[str, Mapping[str, object]]:
        return entities(self.rules)

    def unreadable_entities(self, _kind: EntityKind) -> frozenset[str]:
        return frozenset()

    def listen(self, listener: Callable[..., None]) -> None:
        self._listeners.append(listener)

    def change(self, rules: Collection[AclBinding]) -> None:
        self.rules = rules
        for listener in self._listeners:
            listener(EntityChanged(kind=EntityKind.ACLS, name="Topic:LITERAL:a", value=None), self)


STEPS = st.lists(
    st.one_of(st.lists(st.sampled_from(RULES), max_size=4, unique=True), st.sampled_from(QUESTIONS)), max_size=30
)


@given(STEPS)
def test_cached_decisions_are_those_of_the_acls_of_the_moment(steps: list[Any]) -> None:
    image = Image()
    decider = AclDecider(StandardAuthorizer(), image, lambda _: None)  # type: ignore[arg-type]
    authorization = Authorization(decider, denied=lambda _: None, allowed=None)
    for step in steps:
        if isinstance(step, list):
            image.change(step)
            continue
        user, host, operation, name = step
        caller = Caller(principal=Principal("User", user), host=host)
        decision = ("User", user, host, operation, TOPIC, name)
        expected = allowed(image.rules, step, everyone=False)
        for _ in range(2):
            assert (decision in authorization.seen) <= expected
            assert authorization.allows(caller, operation, TOPIC, name) == expected
        assert (decision in authorization.seen) == expected
