"""`barnabas users` and the calls of Admin behind it, at a broker with SCRAM."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command, barnabas_here

from barnabas import Admin, ApiError, Broker, ErrorCode
from barnabas.app.clients.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.ports.values import Secret

PASSWORD = "secret-of-bob"
BROKER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'PlainLoginModule required username="admin" password="secret" user_admin="secret";'
    ),
}
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": "secret",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(storage="memory", config=BROKER) as broker:
        yield broker.bootstrap


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "admin.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in ADMIN.items()))
    return str(path)


def test_user_is_added_by_standard_input_and_logs_in(bootstrap: str, file: str) -> None:
    always = ("-b", bootstrap, "--command-config", file)
    dry = barnabas_here("users", "add", "bob", "--dry-run", *always, stdin=f"{PASSWORD}\n".encode())
    assert dry.stdout == b"user bob to be added for SCRAM-SHA-256\n"
    assert json.loads(barnabas_here("users", "list", "--json", *always).stdout) == []
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512", "--iterations", "4097")
    added = barnabas_here("users", "add", "bob", *both, *always, stdin=f"{PASSWORD}\n".encode())
    assert PASSWORD.encode() not in added.stdout + added.stderr
    assert json.loads(barnabas_here("users", "list", "--json", *always).stdout) == [
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 4097},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4097},
    ]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        bob = {**ADMIN, "sasl.mechanism": mechanism, "sasl.username": "bob", "sasl.password": PASSWORD}
        with Admin(bootstrap, config=bob) as admin:
            assert admin.describe_cluster().brokers
    barnabas_here("users", "remove", "bob", "--mechanism", "SCRAM-SHA-256", *always)
    left = json.loads(barnabas_here("users", "list", "bob", "--json", *always).stdout)
    assert [each["mechanism"] for each in left] == ["SCRAM-SHA-512"]
    barnabas_here("users", "remove", "bob", *always)
    assert json.loads(barnabas_here("users", "list", "--json", *always).stdout) == []


def test_wrong_usage_of_users_is_named(
    bootstrap: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Command(capsys, "-b", bootstrap, "--command-config", file)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert "the password is empty" in run("users", "add", "x", "--password-file", str(empty), expect=2).err
    assert "expected one of SCRAM" in run("users", "add", "x", "--mechanism", "MD5", expect=2).err
    assert "x" in run("users", "remove", "x", expect=1).err


def test_admin_sets_and_deletes_credentials(bootstrap: str) -> None:
    with Admin(bootstrap, config=ADMIN) as admin:
        change = UserScramCredentialUpsertion(user="eve", password=Secret(PASSWORD), mechanism="SCRAM-SHA-512")
        assert PASSWORD not in repr(change)
        admin.alter_user_scram_credentials([change])
        assert [each.mechanism for each in admin.describe_user_scram_credentials(["eve"])["eve"]] == ["SCRAM-SHA-512"]
        admin.alter_user_scram_credentials([UserScramCredentialDeletion(user="eve", mechanism="SCRAM-SHA-512")])
        with pytest.raises(ApiError) as refused:
            admin.describe_user_scram_credentials(["eve"])
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
        few = UserScramCredentialUpsertion(user="eve", password=Secret(PASSWORD), iterations=1)
        with pytest.raises(ApiError, match="iterations"):
            admin.alter_user_scram_credentials([few])
