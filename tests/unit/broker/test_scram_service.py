"""SCRAM credentials: altered, described, stored in the tree without passwords, and used for logins."""

import pytest

from barnabas.core.cluster.layout import EntityKind
from barnabas.core.security.sasl.scram import HASHES, salted_password
from barnabas.core.security.scram_users import decode_credential, parse_bootstrap_users
from barnabas.ports.broker_api.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AlterUserScramCredentials,
    DescribeUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret
from barnabas.testing.manual_broker import ManualBroker

SALT = b"0123456789"


def upsertion(user: str, mechanism: int = SCRAM_SHA_256, iterations: int = 4096) -> ScramUpsertion:
    salted = Secret(salted_password("SCRAM-SHA-256", "secret", SALT, 4096))
    return ScramUpsertion(user=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted)


def alter(
    broker: ManualBroker, *upsertions: ScramUpsertion, delete: list[ScramDeletion] | None = None
) -> dict[str, ErrorCode]:
    answers = broker.submit(AlterUserScramCredentials(deletions=delete or [], upsertions=upsertions))
    broker.wait(1000)
    return {row.user: row.error for row in answers[0].users}


def test_each_altered_user_stands_for_itself() -> None:
    broker = ManualBroker()
    rows = alter(
        broker,
        upsertion("ann"),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16_385),
        upsertion(""),
        upsertion("odd", mechanism=3),
        upsertion("twice"),
        upsertion("twice", SCRAM_SHA_512),  # as Kafka: also for two mechanisms
        delete=[ScramDeletion(user="ghost", mechanism=SCRAM_SHA_256)],
    )
    assert rows == {
        "ghost": ErrorCode.RESOURCE_NOT_FOUND,
        "ann": ErrorCode.NONE,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
    described = broker.ask(DescribeUserScramCredentials())
    assert [(row.user, [info.mechanism for info in row.credentials]) for row in described.users] == [("ann", [1])]


def test_deleted_credential_is_gone_and_the_other_stays() -> None:
    broker = ManualBroker()
    alter(broker, upsertion("ann"))
    alter(broker, upsertion("ann", SCRAM_SHA_512))
    assert alter(broker, delete=[ScramDeletion(user="ann", mechanism=SCRAM_SHA_256)]) == {"ann": ErrorCode.NONE}
    (row,) = broker.ask(DescribeUserScramCredentials(users=["ann"])).users
    assert [info.mechanism for info in row.credentials] == [SCRAM_SHA_512]
    alter(broker, delete=[ScramDeletion(user="ann", mechanism=SCRAM_SHA_512)])
    assert broker.ask(DescribeUserScramCredentials()).users == []
    assert "ann" not in broker.node.state.image.entities(EntityKind.USERS)


def test_described_users_that_are_unknown_or_named_twice_are_errors() -> None:
    broker = ManualBroker()
    alter(broker, upsertion("ann"))
    result = broker.ask(DescribeUserScramCredentials(users=["ann", "ghost", "two", "two"]))
    assert {row.user: row.error for row in result.users} == {
        "ann": ErrorCode.NONE,
        "ghost": ErrorCode.RESOURCE_NOT_FOUND,
        "two": ErrorCode.DUPLICATE_RESOURCE,
    }


def test_restarted_broker_knows_its_users() -> None:
    broker = ManualBroker()
    alter(broker, upsertion("ann"))
    broker.restart()
    node = broker.node.state.image.entities(EntityKind.USERS)["ann"]
    credential = decode_credential(node, "SCRAM-SHA-256")
    assert credential is not None
    assert (credential.salt, credential.iterations) == (SALT, 4096)
    assert credential.stored_key.value.hex() not in repr(credential)


def test_bootstrap_users_are_stored_in_a_cluster_without_users_only() -> None:
    text = 'SCRAM-SHA-256=[name=admin,password=pass word]; SCRAM-SHA-512=[name=admin,password="x",iterations=8192]'
    broker = ManualBroker(sasl_scram_bootstrap_users=text)
    (row,) = broker.ask(DescribeUserScramCredentials()).users
    assert [(info.mechanism, info.iterations) for info in row.credentials] == [(1, 4096), (2, 8192)]
    before = dict(broker.node.state.image.entities(EntityKind.USERS))
    broker.settings["sasl_scram_bootstrap_users"] = "SCRAM-SHA-256=[name=other,password=y]"
    broker.restart()
    assert dict(broker.node.state.image.entities(EntityKind.USERS)) == before
    assert not any("pass word" in line for line in broker.lines)


@pytest.mark.parametrize(
    "text",
    [
        "s3cret",
        "SCRAM-SHA-1=[name=a,password=s3cret]",
        "SCRAM-SHA-256=[password=s3cret]",
        "SCRAM-SHA-256=[name=a,password=]",
        "SCRAM-SHA-256=[name=a,password=s3cret,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=s3cret,salt=x]",
    ],
)
def test_wrong_bootstrap_users_are_refused_without_their_passwords(text: str) -> None:
    with pytest.raises(ConfigError, match="key") as caught:
        parse_bootstrap_users(Secret(text), "key")
    assert "s3cret" not in str(caught.value)
    assert set(HASHES) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
