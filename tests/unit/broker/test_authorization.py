"""The gate asks for what Apache Kafka asks for, of each API; the same cases run in tests/compatibility."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve
from support.authorization_cases import (
    ACL,
    ADMIN,
    ALICE,
    CASES,
    FOLLOWER,
    OTHER,
    STANDARD,
    TOPIC_29,
    TP,
    Case,
    Op,
    R,
    Right,
    codes,
    group,
    topic,
    transactional_id,
)

from barnabas.app.broker.handlers.authorization import DENIED, STEPS
from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.cluster.entity_store import change_entities
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.security.acl import ResourcePattern, encode_acls
from barnabas.plugins import hookimpl
from barnabas.ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    CreateAcls,
    DeleteAcls,
    DescribeAcls,
    PatternType,
    PermissionType,
)
from barnabas.ports.broker_api.cluster import DescribeCluster
from barnabas.ports.broker_api.envelope import Caller, Origin, Principal, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.groups import (
    DescribeGroups,
    FindCoordinator,
    Heartbeat,
    ListGroups,
    OffsetFetch,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NO_AUTHORIZED_OPERATIONS,
    TOPIC_OPERATIONS,
    bit_field,
)
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.tokens import CreateDelegationToken
from barnabas.ports.broker_api.topics import (
    CreateTopics,
    DeleteTopics,
    NewTopic,
)
from barnabas.ports.broker_api.transactions import (
    AddPartitionsToTxn,
    ListTransactions,
)
from barnabas.ports.error_codes import AUTHORIZATION_ERRORS, ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker, batch


def secured(**settings: Any) -> ManualBroker:
    return ManualBroker(authorizer_class_name=STANDARD, super_users="User:admin", **settings)


def grant(broker: ManualBroker, *rights: Right, permission: PermissionType = PermissionType.ALLOW) -> None:
    acls = [
        AclBinding(
            resource_type=kind, resource_name=name, operation=operation, principal="User:alice", permission=permission
        )
        for operation, kind, name in rights
    ]
    result = broker.ask(CreateAcls(acls=acls), ADMIN)
    assert all(each.error is ErrorCode.NONE for each in result.results)


@pytest.fixture(scope="module")
def broker() -> Iterator[ManualBroker]:
    running = secured()
    running.ask(CreateTopics(topics=[NewTopic(name=each, partitions=1) for each in ("t", "other")]), ADMIN)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _no_acls(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").ask(DeleteAcls(filters=[AclBindingFilter()]), ADMIN)


MISSING = [
    pytest.param(case, right, id=f"{case.name}-{right[0].name}-{right[1].name}-{number}")
    for number, case in enumerate(CASES)
    for right in case.rights
]
WITHOUT_RULES = {"RenewDelegationToken", "ExpireDelegationToken", "CreateDelegationToken", "DescribeDelegationToken"}
WITHOUT_RULES |= {"DescribeFeatures", "GetTelemetrySubscriptions", "PushTelemetry"}
FILTERED = {"ListGroups", "ListTransactions", "DescribeCluster", "DescribeTopicPartitions"}


def asked(broker: ManualBroker, request: Request[Any]) -> tuple[list[Any], list[Any]]:
    """Alice's answers, and the requests that reach the handlers, which answer nothing."""
    api: Any = broker.node.api
    handlers = api._handlers
    handled: list[Any] = []
    answers: list[Any] = []
    try:
        api._handlers = dict.fromkeys(handlers, lambda each, _caller, _reply: handled.append(each))
        api.submit(request, ALICE, answers.append)
    finally:
        api._handlers = handlers
    return answers, handled


def test_each_api_has_rules_and_a_case(broker: ManualBroker) -> None:
    assert set(broker.node.api._handlers) == set(STEPS)
    assert {kind.__name__ for kind in STEPS} == {case.name for case in CASES} | WITHOUT_RULES | FILTERED


@pytest.mark.parametrize(("case", "missing"), MISSING)
def test_request_without_one_right_is_denied(broker: ManualBroker, case: Case, missing: Right) -> None:
    grant(broker, *(right for right in case.rights if right != missing))
    answers, handled = asked(broker, case.request)
    if isinstance(case.request, Metadata):
        assert [each.topics for each in handled] == [[]]
        return
    if isinstance(case.request, OffsetFetch) and missing[1] is R.TOPIC:
        assert [each.groups[0].partitions for each in handled] == [[]]
        return
    if not answers:  # nothing of it is left, and the handler is asked about the rest
        assert "t" not in str(handled[0].topics if hasattr(handled[0], "topics") else "")
        assert not getattr(handled[0], "names", ()), handled
        assert not getattr(handled[0], "resources", ()), handled
        return
    assert handled == []
    assert codes(answers[0]) == {case.rights[missing]}


@pytest.mark.parametrize("case", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(CASES)])
def test_request_with_all_rights_reaches_its_handler_unchanged(broker: ManualBroker, case: Case) -> None:
    for rights in (list(case.rights), *case.also):
        grant(broker, *rights)
        assert asked(broker, case.request) == ([], [case.request])
        broker.ask(DeleteAcls(filters=[AclBindingFilter()]), ADMIN)


@pytest.mark.parametrize("case", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(CASES)])
def test_broker_and_super_user_need_no_rights(broker: ManualBroker, case: Case) -> None:
    api: Any = broker.node.api
    handlers = api._handlers
    handled: list[Any] = []
    try:
        api._handlers = dict.fromkeys(handlers, lambda each, _caller, _reply: handled.append(each))
        for caller in (ADMIN, Caller(origin=Origin.BROKER)):
            api.submit(case.request, caller, handled.append)
    finally:
        api._handlers = handlers
    assert handled == [case.request] * 2


# --- real answers


def test_allowed_items_are_handled_and_denied_ones_answered_in_order(broker: ManualBroker) -> None:
    grant(broker, topic(Op.WRITE))
    parts = [ProducePartition(name, 0, memoryview(bytearray(batch(b"x")))) for name in ("other", "t", "absent")]
    result = broker.ask(Produce(partitions=parts), ALICE)
    assert [(each.topic, each.error) for each in result.partitions] == [
        ("other", TOPIC_29),
        ("t", ErrorCode.NONE),
        ("absent", TOPIC_29),
    ]
    other = broker.ask(Fetch(partitions=[FetchPartition("other", 0, 0, 100)], max_wait_ms=0), ADMIN)
    assert other.partitions[0].high_watermark == 0


def test_right_that_was_used_is_gone_once_its_acl_is_deleted(broker: ManualBroker) -> None:
    def error() -> ErrorCode:
        parts = [ProducePartition("t", 0, memoryview(bytearray(batch(b"x"))))]
        return broker.ask(Produce(partitions=parts), ALICE).partitions[0].error

    grant(broker, topic(Op.WRITE))
    assert (error(), error()) == (ErrorCode.NONE, ErrorCode.NONE)
    broker.ask(DeleteAcls(filters=[AclBindingFilter()]), ADMIN)
    assert error() is TOPIC_29


def test_filter_deletes_acls_that_another_broker_created_a_moment_ago(broker: ManualBroker) -> None:
    acl = AclBinding(
        resource_type=R.TOPIC,
        resource_name="new",
        operation=Op.WRITE,
        principal="User:alice",
        permission=PermissionType.ALLOW,
    )
    name = str(ResourcePattern.of(acl))
    change_entities(broker.tree.session(), EntityKind.ACLS, {name: lambda _: encode_acls([acl])}, False)
    result = broker.ask(DeleteAcls(filters=[AclBindingFilter(principal="User:alice")]), ADMIN)
    assert [list(each.acls) for each in result.results] == [[acl]]
    broker.wait(1000)
    assert list(broker.ask(DescribeAcls(filter=AclBindingFilter()), ADMIN).acls) == []


def test_metadata_of_all_topics_leaves_out_hidden_ones(broker: ManualBroker) -> None:
    assert broker.ask(Metadata(topics=None), ALICE).topics == []
    grant(broker, topic(Op.READ))
    assert [each.name for each in broker.ask(Metadata(topics=None), ALICE).topics] == ["t"]
    assert {"t", "other"} <= {each.name for each in broker.ask(Metadata(topics=None), ADMIN).topics}


def test_metadata_by_id_of_a_hidden_topic_has_no_name_and_no_other_topics(broker: ManualBroker) -> None:
    identifier = broker.node.state.image.topic("t").topic_id
    result = broker.ask(Metadata(topics=None, topic_ids=[identifier]), ALICE)
    assert [(each.name, each.topic_id, each.error) for each in result.topics] == [(None, identifier, TOPIC_29)]


def test_metadata_creates_a_topic_only_with_the_right_to_create_it(broker: ManualBroker) -> None:
    grant(broker, topic(Op.DESCRIBE, "new"))
    assert broker.ask(Metadata(topics=["new"]), ALICE).topics[0].error is TOPIC_29
    assert "new" not in broker.node.state.image.topics
    grant(broker, topic(Op.CREATE, "new"))
    assert broker.ask(Metadata(topics=["new"]), ALICE).topics[0].error is ErrorCode.NONE
    assert "new" in broker.node.state.image.topics
    broker.ask(DeleteTopics(names=["new"]), ADMIN)


def test_authorized_operations_follow_the_acls(broker: ManualBroker) -> None:
    asking = Metadata(topics=["t"], include_topic_authorized_operations=True)
    grant(broker, topic(Op.READ))
    assert broker.ask(asking, ALICE).topics[0].authorized_operations == 264  # READ and DESCRIBE
    assert broker.ask(asking, ADMIN).topics[0].authorized_operations == TOPIC_OPERATIONS == 3576
    grant(broker, topic(Op.DESCRIBE_CONFIGS))
    described = bit_field([Op.READ, Op.DESCRIBE, Op.DESCRIBE_CONFIGS])
    assert broker.ask(asking, ALICE).topics[0].authorized_operations == described
    assert broker.ask(Metadata(topics=["t"]), ALICE).topics[0].authorized_operations == NO_AUTHORIZED_OPERATIONS
    asking_cluster = DescribeCluster(include_authorized_operations=True)
    assert broker.ask(asking_cluster, ALICE).authorized_operations == 0
    assert broker.ask(asking_cluster, ADMIN).authorized_operations == CLUSTER_OPERATIONS == 8096
    grant(broker, group(Op.DESCRIBE))
    broker.submit(FindCoordinator(keys=["g"]), ADMIN)
    broker.wait(1000)
    asking_group = DescribeGroups(group_ids=["g"], include_authorized_operations=True)
    assert broker.ask(asking_group, ALICE).groups[0].authorized_operations == bit_field([Op.DESCRIBE])
    assert broker.ask(asking_group, ADMIN).groups[0].authorized_operations == GROUP_OPERATIONS == 3400


def test_listings_leave_out_what_may_not_be_described(broker: ManualBroker) -> None:
    assert broker.ask(ListGroups(), ALICE).error is ErrorCode.NONE
    assert broker.ask(ListTransactions(), ALICE).error is ErrorCode.NONE


def test_deleted_topic_by_id_is_named_only_to_those_who_may_describe_it(broker: ManualBroker) -> None:
    identifier = broker.node.state.image.topic("t").topic_id
    asking = DeleteTopics(names=[], topic_ids=[identifier])
    assert [(each.name, each.error) for each in broker.ask(asking, ALICE).topics] == [(None, TOPIC_29)]
    grant(broker, topic(Op.DESCRIBE))
    assert [(each.name, each.error) for each in broker.ask(asking, ALICE).topics] == [("t", TOPIC_29)]


def test_topic_that_becomes_known_after_the_check_is_not_deleted_by_id(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = broker.node.state.image.topic("t").topic_id
    monkeypatch.setattr(BrokerState, "topic_name", lambda _self, _topic_id: "")
    deleted = broker.ask(DeleteTopics(names=[], topic_ids=[identifier]), ALICE).topics
    assert [(each.name, each.error) for each in deleted] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert "t" in broker.node.state.image.topics


def test_configs_of_a_new_topic_are_shown_with_the_right_to_describe_them(broker: ManualBroker) -> None:
    grant(broker, topic(Op.CREATE, "made"))
    asking = CreateTopics(topics=[NewTopic(name="made", partitions=1)], validate_only=True)
    hidden = broker.ask(asking, ALICE).topics[0]
    assert (hidden.error, hidden.configs_error, hidden.partitions) == (ErrorCode.NONE, TOPIC_29, -1)
    assert not hidden.configs
    grant(broker, topic(Op.DESCRIBE_CONFIGS, "made"))
    shown = broker.ask(asking, ALICE).topics[0]
    assert (shown.configs_error, shown.partitions) == (ErrorCode.NONE, 1)
    assert shown.configs


def test_follower_that_is_denied_in_a_fetch_session_gets_an_error_and_not_an_empty_answer(
    broker: ManualBroker,
) -> None:
    asking = Fetch(partitions=[], replica_id=FOLLOWER, session_id=7, session_epoch=2)
    assert broker.ask(asking, ALICE).error is TOPIC_29


def test_one_denied_partition_leaves_the_transaction_unchanged(broker: ManualBroker) -> None:
    grant(broker, transactional_id(Op.WRITE), topic(Op.WRITE))
    asking = AddPartitionsToTxn(
        transactional_id="tx", producer_id=1, producer_epoch=0, partitions=[TP, TopicPartition("other", 0)]
    )
    result = broker.ask(asking, ALICE)
    assert [each.error for each in result.partitions] == [ErrorCode.OPERATION_NOT_ATTEMPTED, TOPIC_29]


# --- ACLs


def test_acls_survive_a_restart_and_can_be_deleted_by_a_matching_filter() -> None:
    broker = secured()
    prefixed = AclBinding(
        resource_type=R.TOPIC,
        resource_name="pay",
        pattern_type=PatternType.PREFIXED,
        principal="User:alice",
        operation=Op.READ,
    )
    everywhere, exact = evolve(prefixed, resource_name="*", pattern_type=PatternType.LITERAL), ACL
    for acl in (prefixed, everywhere, exact, exact):
        assert broker.ask(CreateAcls(acls=[acl]), ADMIN).results[0].error is ErrorCode.NONE
    broker.restart()
    assert set(broker.ask(DescribeAcls(), ADMIN).acls) == {prefixed, everywhere, exact}
    match = AclBindingFilter(resource_type=R.TOPIC, resource_name="payments", pattern_type=PatternType.MATCH)
    literal = AclBindingFilter(resource_type=R.TOPIC, resource_name="pay", pattern_type=PatternType.LITERAL)
    assert set(broker.ask(DescribeAcls(filter=match), ADMIN).acls) == {prefixed, everywhere}
    assert broker.ask(DescribeAcls(filter=literal), ADMIN).acls == []
    assert broker.ask(DescribeAcls(filter=evolve(literal, resource_name="")), ADMIN).acls == []
    deleted = broker.ask(DeleteAcls(filters=[match, literal]), ADMIN).results
    assert [set(each.acls) for each in deleted] == [{prefixed, everywhere}, set()]
    assert broker.ask(DescribeAcls(), ADMIN).acls == [exact]
    broker.stop()


def test_bad_acl_is_refused_alone_and_a_filter_value_refuses_all(broker: ManualBroker) -> None:
    result = broker.ask(CreateAcls(acls=[evolve(ACL, principal="bob"), ACL]), ADMIN)
    assert [each.error for each in result.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    result = broker.ask(CreateAcls(acls=[evolve(ACL, operation=Op.ANY), ACL]), ADMIN)
    assert [each.error for each in result.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def test_without_an_authorizer_all_is_allowed_and_acls_are_disabled() -> None:
    broker = ManualBroker()
    broker.create("t")
    assert broker.ask(Metadata(topics=None), ALICE).topics
    disabled = ErrorCode.SECURITY_DISABLED
    assert broker.ask(DescribeAcls(), ALICE).error is disabled
    assert codes(broker.ask(CreateAcls(acls=[ACL, ACL]), ALICE).results) == {disabled}
    assert codes(broker.ask(DeleteAcls(filters=[AclBindingFilter()]), ALICE).results) == {disabled}
    broker.stop()


def test_acl_that_another_broker_creates_counts_at_once() -> None:
    broker = secured(shared=True)
    broker.ask(CreateTopics(topics=[NewTopic(name="t", partitions=1)]), ADMIN)
    broker.wait(1000)
    from barnabas.core.cluster import layout
    from barnabas.core.security.acl import encode_acls

    other = broker.tree.session()
    path = layout.entity_path(layout.EntityKind.ACLS, "Topic:LITERAL:t")
    other.create(path, layout.encode_entity(encode_acls([evolve(ACL, principal="User:alice")])))
    broker.wait(500)
    assert [each.name for each in broker.ask(Metadata(topics=None), ALICE).topics] == ["t"]
    other.set(path, layout.encode_entity({"acls": "junk"}))
    broker.wait(500)
    assert broker.ask(Metadata(topics=None), ALICE).topics == []
    assert any(path in line for line in broker.reports)
    broker.stop()


def test_token_for_another_owner_needs_create_tokens() -> None:
    broker = secured(delegation_token_secret_key="secret")
    request = CreateDelegationToken(owner=OTHER)
    encrypted = evolve(ALICE, is_encrypted=True)
    assert broker.ask(request, encrypted).error is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    grant(broker, (Op.CREATE_TOKENS, R.USER, "User:bob"))
    assert broker.ask(request, encrypted).error is ErrorCode.NONE
    broker.stop()


# --- the audit log, and plug-ins


def test_denied_request_is_logged_as_kafka_does_and_many_are_summarized() -> None:
    broker = secured()
    broker.ask(Heartbeat(group_id="g", generation_id=1, member_id="m"), ALICE)
    expected = (
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.9 on resource = Group:LITERAL:g "
        "for request = Heartbeat with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert [(str(line), line.logger) for line in broker.lines if "Principal" in line] == [  # type: ignore[attr-defined]
        (expected, "kafka.authorizer.logger")
    ]
    for _ in range(500):
        broker.ask(Heartbeat(group_id="g", generation_id=1, member_id="m"), ALICE)
    broker.wait(10_000)
    assert sum("Principal" in line for line in broker.lines) == 100
    assert any("401 more requests denied" in line for line in broker.lines)
    broker.stop()


class Suffix:
    """Allows what ends with the name of the caller."""

    def authorize(self, caller: Caller, actions: Sequence[Any]) -> Sequence[bool]:
        if caller.principal.name == "broken":
            raise RuntimeError("no")
        return [each.resource_name.endswith(caller.principal.name) for each in actions]


class SuffixPlugin:
    @hookimpl
    def barnabas_authorizer(self, name: str) -> Suffix | None:
        return Suffix() if name == "suffix" else None

    @hookimpl
    def barnabas_names(self, kind: str) -> list[str]:
        return ["suffix"] if kind == "authorizer" else []


def test_authorizer_of_a_plugin_decides_and_denies_where_it_fails() -> None:
    broker = ManualBroker(plugins=[SuffixPlugin()], authorizer_class_name="suffix", super_users="User:admin")
    names = ["of-alice", "of-bob"]
    broker.ask(CreateTopics(topics=[NewTopic(name=each, partitions=1) for each in names]), ADMIN)

    def seen(name: str) -> list[str | None]:
        caller = evolve(ALICE, principal=Principal("User", name))
        return [each.name for each in broker.ask(Metadata(topics=None), caller).topics]

    assert seen("alice") == ["of-alice"]
    assert seen("admin") == names
    assert seen("broken") == []
    assert any("the authorizer failed" in line for line in broker.reports)
    assert broker.ask(DescribeAcls(), ADMIN).error is ErrorCode.SECURITY_DISABLED
    broker.stop()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"authorizer_class_name": "com.example.Mine"}, "unknown authorizer 'com.example.Mine'"),
        ({"super_users": "admin"}, "super.users: expected a string in format principalType:principalName"),
    ],
)
def test_bad_settings_refuse_the_start(settings: Mapping[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ManualBroker(**settings)  # type: ignore[arg-type]


# --- what was allowed before


def test_allowed_produce_and_fetch_open_no_way_for_transactions_and_replica_ids(broker: ManualBroker) -> None:
    grant(broker, topic(Op.WRITE), topic(Op.READ))
    plain = [
        case
        for case in CASES
        if isinstance(case.request, Produce | Fetch) and set(case.rights) <= {topic(Op.WRITE), topic(Op.READ)}
    ]
    for kind in (Produce, Fetch):
        allowed = next(case for case in plain if isinstance(case.request, kind))
        for _ in range(2):
            assert asked(broker, allowed.request) == ([], [allowed.request])
        for case in CASES:
            if isinstance(case.request, kind) and set(case.rights) != set(allowed.rights):
                answers, handled = asked(broker, case.request)
                assert handled == []
                assert codes(answers[0])
    broker.ask(DeleteAcls(filters=[AclBindingFilter()]), ADMIN)
    for case in plain:
        answers, handled = asked(broker, case.request)
        assert (handled, codes(answers[0])) == ([], {TOPIC_29})


def test_error_of_each_denied_resource_is_an_authorization_error() -> None:
    assert set(DENIED.values()) == AUTHORIZATION_ERRORS
