"""`barnabas acls` at a broker with an authorizer, and what a user may do then."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command

from barnabas import Admin, ApiError, Broker, Consumer, ErrorCode, Producer

USERS = {"admin": "secret-of-admin", "alice": "secret-of-alice"}
BROKER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'PlainLoginModule required username="admin" password="secret-of-admin" '
        + " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
        + ";"
    ),
}
PATIENCE_S = 300


def config_of(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(storage="memory", config=BROKER) as broker:
        with Admin(broker.bootstrap, config=config_of("admin")) as admin:
            admin.create_topic("orders.eu")
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config_of("admin").items()))
    return Command(capsys, "-b", bootstrap, "--command-config", str(file))


def test_acls_let_a_user_produce_and_consume_until_they_are_removed(bootstrap: str, run: Command) -> None:
    names = ("--topic", "orders.", "--group", "billing", "--prefixed")
    dry = run("acls", "add", "--allow", "User:alice", "--producer", "--consumer", *names, "--dry-run")
    assert "6 ACLs to add" not in dry.err
    assert json.loads(run("acls", "list", "--json").out) == []
    added = run("acls", "add", "--allow", "User:alice", "--producer", "--consumer", *names, "--json")
    assert {(each["resource_name"], each["operation"]) for each in json.loads(added.out)} == {
        ("orders.", "read"),
        ("orders.", "write"),
        ("orders.", "create"),
        ("orders.", "describe"),
        ("billing", "read"),
    }
    with Producer(bootstrap, config=config_of("alice")) as producer:
        producer.send("orders.eu", b"one").result(PATIENCE_S)
    with Consumer(bootstrap, config=config_of("alice"), group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders.eu")
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value == b"one"
    run("acls", "add", "--deny", "User:alice", "--operation", "Write", "--topic", "orders.eu")
    with Producer(bootstrap, config=config_of("alice")) as producer, pytest.raises(ApiError) as refused:
        producer.send("orders.eu", b"two").result(PATIENCE_S)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    matching = json.loads(run("acls", "list", "--topic", "orders.eu", "--match", "--json").out)
    assert {each["permission"] for each in matching} == {"allow", "deny"}
    gone = run("acls", "remove", "--principal", "User:alice", "--dry-run")
    assert "6 ACLs to remove" in gone.err
    assert "6 ACLs removed" in run("acls", "remove", "--principal", "User:alice").err
    with Admin(bootstrap, config=config_of("alice")) as admin:
        assert admin.list_topics() == []


def test_wrong_usage_of_acls_is_named(run: Command) -> None:
    assert "--allow or --deny is missing" in run("acls", "add", "--topic", "t", "--operation", "Read", expect=2).err
    assert "--operation is missing" in run("acls", "add", "--topic", "t", "--allow", "User:a", expect=2).err
    assert "the resource is missing" in run("acls", "add", "--allow", "User:a", "--operation", "Read", expect=2).err
    wrong = ("acls", "add", "--topic", "t", "--allow", "User:a", "--operation", "Peek")
    assert "expected one of All, Read" in run(*wrong, expect=2).err
    assert "expected User:NAME" in run(*wrong[:5], "a", "--operation", "Read", expect=2).err
    assert "--all removes all ACLs" in run("acls", "remove", expect=2).err
