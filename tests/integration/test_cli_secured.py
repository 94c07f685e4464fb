"""Commands at a broker with SASL: the file of --command-config, of the environment and of a profile."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import barnabas_here

from barnabas import Broker

PASSWORD = "secret-of-alice"
BROKER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'PlainLoginModule required username="alice" password="{PASSWORD}" user_alice="{PASSWORD}";'
    ),
}
FILE = f"""# as for Kafka's own tools
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="alice" \\
    password="{PASSWORD}";
group.id=of-no-interest
"""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(storage="memory", config=BROKER) as broker:
        yield broker.bootstrap


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE", "BARNABAS_COMMAND_CONFIG"):
        monkeypatch.setenv(name, "")  # it is set within the test, and put back after it
        monkeypatch.delenv(name)
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return str(path)


def test_commands_take_the_file_of_command_config(bootstrap: str, file: str, tmp_path: Path) -> None:
    secured = ("-b", bootstrap, "--command-config", file)
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    barnabas_here("topics", "create", "views", *secured)
    barnabas_here("produce", "views", "--file", str(lines), *secured)
    out = barnabas_here("consume", "views", "--from", "earliest", "--stop-at-end", *secured).stdout
    assert out == b"one\ntwo\n"
    assert json.loads(barnabas_here("brokers", "list", "--json", *secured).stdout)[0]["address"] == bootstrap


def test_file_comes_from_the_environment_or_the_profile(
    bootstrap: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    barnabas_here("profile", "set", "secured", bootstrap, "--command-config", file)
    assert b"client.properties" in barnabas_here("profile", "list").stdout
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    assert b"127.0.0.1" in barnabas_here("brokers", "list").stdout
    monkeypatch.setenv("BARNABAS_COMMAND_CONFIG", file)
    assert b"127.0.0.1" in barnabas_here("brokers", "list", "-b", bootstrap).stdout


def test_passwords_of_a_profile_go_to_its_own_cluster_only(bootstrap: str, file: str) -> None:
    barnabas_here("profile", "set", "secured", "elsewhere:9092", "--command-config", file)
    refused = barnabas_here("groups", "list", "-b", bootstrap, expect=1).stderr.decode()
    assert "its listener may want another security.protocol" in refused


def test_wrong_password_is_one_line_without_it(bootstrap: str, file: str) -> None:
    Path(file).write_text(FILE.replace(PASSWORD, "a-guess"))
    err = barnabas_here("topics", "list", "-b", bootstrap, "--command-config", file, expect=1).stderr.decode()
    assert "Invalid username or password" in err
    assert "a-guess" not in err


def test_passwords_on_the_command_line_are_refused(bootstrap: str) -> None:
    words = ("consume", "views", "-b", bootstrap, "--set", f"sasl.password={PASSWORD}")
    err = barnabas_here(*words, expect=2).stderr.decode()
    assert "--set sasl.password: others on this machine can read command lines" in err
    assert PASSWORD not in err


def test_unknown_key_in_the_file_is_named(bootstrap: str, file: str) -> None:
    Path(file).write_text("sasl.mechanizm=PLAIN\n")
    err = barnabas_here("topics", "list", "-b", bootstrap, "--command-config", file, expect=2).stderr.decode()
    assert "did you mean 'sasl.mechanism'" in err
