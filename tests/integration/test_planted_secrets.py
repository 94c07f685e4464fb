"""A broker with a secret in every place, and traffic with errors: no secret is seen in what it says and stores."""

import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from attrs import frozen
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from support.certificates import authority, certificate, chain, pem
from support.ports import free_port
from support.process import COMMAND, BrokerProcess
from support.sasl_connection import SaslConnection

from barnabas import Admin, Consumer, Producer
from barnabas.adapters.system import SystemEntropy
from barnabas.app.config.reading import read_config
from barnabas.core.security.sasl.client import new_nonce
from barnabas.core.security.sasl.scram import ScramClient
from barnabas.ports.broker_api.configs import ConfigDescription, ConfigResource, DescribeConfigs, ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.values import Secret

PATIENCE_S = 300
PLANTED = {
    name: f"planted-{name}-9f3b" for name in ("admin", "alice", "scram", "token", "key", "guess", "client-key", "typo")
}
JAAS = f'PlainLoginModule required username="admin" password="{PLANTED["admin"]}"'


@frozen
class Harness:
    broker: BrokerProcess
    folder: Path
    config: Path
    metrics: str
    bootstrap: str
    tls: str


def encrypted_key() -> str:
    """Return the private key of the broker as PEM, with a password."""
    key = load_pem_private_key(certificate("127.0.0.1").private_key_pem.bytes(), None)
    password = BestAvailableEncryption(PLANTED["key"].encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, password).decode()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("planted")
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "connection.failed.authentication.delay.ms": "5",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{JAAS} user_admin="{PLANTED["admin"]}" user_alice="{PLANTED["alice"]}";'
        ),
        "sasl.scram.bootstrap.users": f"SCRAM-SHA-256=[name=carol,password={PLANTED['scram']}]",
        "delegation.token.secret.key": PLANTED["token"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": encrypted_key().replace("\n", "\\n"),
        "ssl.key.password": PLANTED["key"],
        "ssl.keystore.certificate.chain": chain(certificate("127.0.0.1")).replace("\n", "\\n"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": pem(authority().cert_pem).replace("\n", "\\n"),
        "metrics.listen": metrics,
        "log.dirs": str(folder / "data"),
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    config.chmod(0o600)
    broker = BrokerProcess(folder / "data", listen=(), config=config, environment={"PYTHONUNBUFFERED": "1"})
    addresses = [each.partition("://")[2] for each in broker.listeners]
    yield Harness(broker, folder, config, metrics, addresses[0], addresses[1])
    broker.stop()


def login(user: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def leaks(text: str) -> list[str]:
    return [name for name, secret in PLANTED.items() if secret in text]


def test_no_secret_is_seen_after_traffic_with_errors(harness: Harness) -> None:
    said: list[str] = []
    alice = login("alice", PLANTED["alice"])
    with Producer(harness.bootstrap, config=alice) as producer:
        producer.send("t", b"one").result(PATIENCE_S)
        said.append(repr(producer))
    with Consumer(harness.bootstrap, config=login("carol", PLANTED["scram"], "SCRAM-SHA-256")) as consumer:
        consumer.assign([("t", 0)])
        said.append(repr(consumer) + repr(consumer.poll(0.1)))
    for wrong in (
        login("alice", PLANTED["guess"]),
        login("nobody", PLANTED["guess"]),
        login("carol", PLANTED["guess"], "SCRAM-SHA-256"),
    ):
        with pytest.raises(BarnabasError) as caught, Admin(harness.bootstrap, config=wrong) as admin:
            admin.list_topics()
        said.append(f"{caught.value!r} {caught.value}")
    with pytest.raises(BarnabasError) as bad_jaas:
        Producer(
            harness.bootstrap,
            config={**alice, "sasl.jaas.config": f'PlainLoginModule required password="{PLANTED["typo"]}'},
        )
    said.append(str(bad_jaas.value))
    with SaslConnection(harness.bootstrap) as connection, suppress(OSError):
        connection.handshake("PLAIN")
        connection.authenticate(b"\0alice\0" + PLANTED["guess"].encode() + b"\0too many\0parts")
    with SaslConnection(harness.bootstrap) as connection, suppress(OSError):
        connection.handshake("SCRAM-SHA-256")
        nonce = new_nonce(SystemEntropy())
        token = ScramClient("SCRAM-SHA-256", "no-token", Secret(PLANTED["guess"]), nonce, is_token=True, salted={})
        connection.authenticate(token.first())
    with SaslConnection(harness.tls) as connection, suppress(OSError):
        connection.send(PLANTED["guess"].encode())
    said.append(harness.broker.log())
    assert "failed authentication" in said[-1]
    with urlopen(f"http://{harness.metrics}/metrics", timeout=PATIENCE_S) as page:
        said.append(page.read().decode())
    said.append(Path(f"/proc/{harness.broker.process.pid}/cmdline").read_text())
    assert leaks("\n".join(said)) == []


def test_describe_configs_returns_no_value_of_a_sensitive_key(harness: Harness) -> None:
    with SaslConnection(harness.bootstrap) as connection:
        nonce = new_nonce(SystemEntropy())
        carol = ScramClient("SCRAM-SHA-256", "carol", Secret(PLANTED["scram"]), nonce, is_token=False, salted={})
        connection.log_in(carol)
        broker = ConfigResource(kind=ResourceKind.BROKER, name="1")
        result = connection.ask(DescribeConfigs(resources=[ConfigDescription(resource=broker)], include_synonyms=True))
    assert result.resources[0].error is ErrorCode.NONE, result.resources[0].error_message
    entries = {entry.name: entry for entry in result.resources[0].entries}
    for key in ("ssl.key.password", "ssl.keystore.key", "delegation.token.secret.key", "sasl.scram.bootstrap.users"):
        assert (entries[key].sensitive, entries[key].value) == (True, None), key
        assert all(synonym.value is None for synonym in entries[key].synonyms), key
    assert leaks(repr(result)) == []


def test_repr_of_the_configuration_and_its_errors_hide_secrets(harness: Harness, tmp_path: Path) -> None:
    config = read_config(harness.config)
    assert leaks(f"{config!r} {config}") == []
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(harness.config.read_text() + f"sasl.scram.bootstrap.users={PLANTED['typo']}\n")
    wrong.chmod(0o600)
    ended = subprocess.run(
        [COMMAND, "serve", "--config", wrong, "--data", tmp_path / "data"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode != 0
    assert leaks(ended.stdout + ended.stderr) == []


def test_data_folder_is_private_and_has_no_password(harness: Harness) -> None:
    data = harness.folder / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    found = [name for path in data.rglob("*") if path.is_file() for name in leaks(path.read_bytes().decode("latin-1"))]
    assert found == []
    tree = sorted(path for path in data.iterdir() if path.name.startswith("coordination.db"))
    assert tree
    assert [path.name for path in tree if path.stat().st_mode & 0o077] == []
