"""The registry and the metrics by HTTPS and with passwords, beside a broker whose only listener is SASL_SSL."""

import base64
import os
import pickle
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from attrs import frozen
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from support.certificates import authority, certificate, chain, pem, write_pem
from support.ports import free_port
from support.process import COMMAND, BrokerProcess
from support.waiting import wait_for

from barnabas import Consumer, Producer
from barnabas.app.clients.shared.connect import secured
from barnabas.app.compose.serve import own_address
from barnabas.app.config.broker_config import BrokerConfig
from barnabas.ports.errors import ConfigError
from barnabas.schemas import AvroEncoder
from barnabas.schemas.access import RegistryAccess, access_of
from barnabas.schemas.client import RegistryClient, RegistryRefused, RegistryUnreachable

pytestmark = pytest.mark.process

PATIENCE_S = 300
PASSWORD = "planted-registry-password-7e11"
BROKER_PASSWORD = "planted-broker-password-7e12"
AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@frozen
class Harness:
    folder: Path
    broker: BrokerProcess
    registry: str
    metrics: str
    ca: str

    def access(self, user: str = "ann", password: str = PASSWORD, **more: str) -> RegistryAccess | str:
        return access_of(
            {
                "schema.registry.url": self.registry,
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": f"{user}:{password}",
                "schema.registry.ssl.truststore.location": self.ca,
                "schema.registry.ssl.truststore.type": "PEM",
                **more,
            }
        )

    def broker_client(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": self.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "broker",
            "sasl.password": BROKER_PASSWORD,
        }


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("secured")
    leaf = certificate("localhost", "127.0.0.1", common_name="broker")
    ca = write_pem(folder, "ca.pem", pem(authority().cert_pem))
    users = folder / "registry.users"
    users.write_text(f"# who may use the registry\nann: {PASSWORD},developer\nbob: {PASSWORD},guest\n")
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.location": write_pem(folder, "broker.pem", pem(leaf.private_key_pem) + chain(leaf)),
        "ssl.truststore.location": ca,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            f'ScramLoginModule required username="broker" password="{BROKER_PASSWORD}";'
        ),
        "sasl.scram.bootstrap.users": f"SCRAM-SHA-512=[name=broker,password={BROKER_PASSWORD}]",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:broker",
        "schema.registry.listen": "https://127.0.0.1:0",
        "schema.registry.authentication.method": "BASIC",
        "schema.registry.authentication.roles": "admin,developer",
        "schema.registry.authentication.users.file": str(users),
        "metrics.listen": f"https://{metrics}",
        "metrics.authentication.users.file": str(users),
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    config.chmod(0o600)
    broker = BrokerProcess(folder / "data", listen=(), config=config)
    assert [each.partition("://")[0] for each in broker.listeners] == ["kafka", "https"]
    yield Harness(folder, broker, broker.listeners[1], f"https://{metrics}", ca)
    assert broker.stop() == 0


def test_own_client_registers_by_https_with_a_password_and_keeps_it_to_itself(harness: Harness) -> None:
    access = harness.access()
    client = RegistryClient(access)
    number = client.register("own-value", "AVRO", AVRO)
    again = pickle.loads(pickle.dumps(client))
    assert again.by_id(number).text
    assert PASSWORD not in f"{access!r} {access} {client!r} {client.urls}"


def test_confluents_client_registers_by_https_with_a_password(harness: Harness) -> None:
    settings = {"url": harness.registry, "ssl.ca.location": harness.ca, "max.retries": 0}
    with SchemaRegistryClient({**settings, "basic.auth.user.info": f"ann:{PASSWORD}"}) as theirs:
        assert theirs.register_schema("theirs-value", Schema(AVRO, "AVRO")) > 0
    for wrong in ({}, {"basic.auth.user.info": "ann:wrong"}, {"basic.auth.user.info": f"bob:{PASSWORD}"}):
        with (
            SchemaRegistryClient({**settings, **wrong}) as refused_client,
            pytest.raises(SchemaRegistryError) as refused,
        ):
            refused_client.get_subjects()
        assert refused.value.http_status_code == 401


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", PASSWORD), ("bob", PASSWORD)])
def test_wrong_password_unknown_user_and_missing_role_are_refused_alike(
    harness: Harness, user: str, password: str
) -> None:
    with pytest.raises(RegistryRefused, match=r"401.*basic\.auth\.user\.info") as refused:
        RegistryClient(harness.access(user, password), tries=1).latest("own-value")
    assert refused.value.error_code == 401
    assert PASSWORD not in str(refused.value)


def test_client_that_does_not_trust_the_authority_or_speaks_http_learns_why(harness: Harness) -> None:
    with pytest.raises(RegistryUnreachable, match="certificate verify failed"):
        RegistryClient(harness.registry, tries=1).latest("own-value")
    with pytest.raises(RegistryUnreachable):
        RegistryClient(harness.registry.replace("https", "http"), tries=1).latest("own-value")


def test_encoder_writes_to_a_secured_broker_by_a_secured_registry(harness: Harness) -> None:
    encoder = AvroEncoder(harness.access(), AVRO)
    with Producer(harness.broker.bootstrap, config=harness.broker_client(), encoder=encoder) as producer:
        producer.send("encoded", {"a": 7}).result(PATIENCE_S)
    with Consumer(
        harness.broker.bootstrap, config=harness.broker_client(), decoder=AvroEncoder(harness.access())
    ) as consumer:
        consumer.assign([("encoded", 0)])
        consumer.seek(("encoded", 0), "earliest")
        found = consumer.poll(PATIENCE_S)
    decoded: object = found.value if found is not None else None
    assert decoded == {"a": 7}


def get(url: str, ca: str, user: str = "") -> tuple[int, str]:
    request = Request(url)
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    try:
        with urlopen(request, timeout=PATIENCE_S, context=ssl.create_default_context(cafile=ca)) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers.get("WWW-Authenticate", "")


def test_metrics_are_for_users_by_https_and_health_is_for_everyone(harness: Harness) -> None:
    assert get(f"{harness.metrics}/healthz", harness.ca) == (200, "ok\n")
    assert get(f"{harness.metrics}/metrics", harness.ca) == (401, 'Basic realm="metrics", charset="UTF-8"')
    assert get(f"{harness.metrics}/metrics", harness.ca, "ann:wrong")[0] == 401
    status, text = get(f"{harness.metrics}/metrics", harness.ca, f"ann:{PASSWORD}")
    assert status == 200 and "kafka_brokers" in text
    with pytest.raises(OSError):
        urlopen(f"{harness.metrics.replace('https', 'http')}/healthz", timeout=PATIENCE_S)


def test_changed_users_of_the_registry_are_used_without_a_restart(harness: Harness) -> None:
    users = harness.folder / "registry.users"
    before = users.read_text()
    try:
        users.write_text(f"{before}carl: other,admin\n")
        client = RegistryClient(harness.access("carl", "other"), tries=1)
        assert client.register("carl-value", "AVRO", AVRO) > 0
        users.write_text("carl without a password\n")  # refused: the users before remain
        assert client.latest("carl-value", fresh=True)
        wait_for(lambda: "the changed users are not used" in harness.broker.log(), PATIENCE_S)
    finally:
        users.write_text(before)
    with pytest.raises(RegistryRefused, match="401"):
        client.latest("carl-value", fresh=True)


def test_no_password_is_in_the_log_of_the_broker(harness: Harness) -> None:
    assert PASSWORD not in harness.broker.log() and BROKER_PASSWORD not in harness.broker.log()


@pytest.mark.slow
def test_registry_command_takes_the_settings_of_confluents_registry(harness: Harness) -> None:
    settings = {
        "listeners": "https://127.0.0.1:0",
        "kafkastore.bootstrap.servers": f"SASL_SSL://{harness.broker.bootstrap}",
        "kafkastore.topic": "_others",
        **{f"kafkastore.{key}": value for key, value in harness.broker_client().items()},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(harness.folder / "broker.pem"),
        "ssl.client.authentication": "NONE",
        "authentication.method": "BASIC",
        "authentication.roles": "developer",
        "authentication.realm": "Registry",
        "authentication.users.file": str(harness.folder / "registry.users"),
    }
    config = harness.folder / "registry.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log = (harness.folder / "registry.log").open("wb")
    command = [str(COMMAND), "registry", "--config", str(config)]
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().decode()
            assert ready.startswith("barnabas registry ready https://127.0.0.1:"), Path(log.name).read_text()
            client = RegistryClient(harness.access(**{"schema.registry.url": ready.split()[-1]}))
            assert client.register("command-value", "AVRO", AVRO) == 1
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def test_services_use_the_listener_and_the_security_of_brokers_among_themselves() -> None:
    config = BrokerConfig.from_mapping(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://0.0.0.0:9093",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://kafka-1.example.com:9093",
            "security.inter.broker.protocol": "SASL_SSL",
            "ssl.keystore.location": "broker.pem",
            "listener.name.sasl_ssl.ssl.truststore.location": "ca.pem",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": 'M required username="b" password="hidden-1";',
        }
    )
    address, settings = own_address(config, ["kafka://127.0.0.1:4001", "kafka://0.0.0.0:9093"])
    assert address == "kafka-1.example.com:9093"
    assert settings["security.protocol"] == "SASL_SSL" and settings["ssl.truststore.location"] == "ca.pem"
    assert "hidden-1" not in repr(secured(address, settings))
    plain = BrokerConfig.from_mapping({"listeners": "PLAINTEXT://:0"})
    assert own_address(plain, ["kafka://:4001"]) == ("127.0.0.1:4001", {})


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"basic.auth.credentials.source": "USER_INFO"}, "needs basic.auth.user.info"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "needs sasl.username and sasl.password"),
        ({"basic.auth.credentials.source": "OTHER"}, "expected URL, USER_INFO or SASL_INHERIT"),
        ({"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "secret"}, "is not USER:PASSWORD"),
        ({"schema.registry.ssl.trust": "x"}, "there is no setting"),
    ],
)
def test_wrong_settings_of_a_registrys_client_are_named_without_their_secrets(
    settings: dict[str, str], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        access_of(settings, "http://127.0.0.1:1")
    assert "secret" not in str(refused.value)


def test_sasl_user_of_a_client_is_its_user_of_the_registry_where_that_is_asked_for() -> None:
    settings = {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.username": "ann", "sasl.password": "p:w"}
    access = access_of(settings, "http://127.0.0.1:1")
    assert isinstance(access, RegistryAccess) and access.user_info is not None
    assert access.user_info.value == "ann:p:w"
