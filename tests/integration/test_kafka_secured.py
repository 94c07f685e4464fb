"""Our clients at a secured Apache Kafka: TLS, each mechanism of SASL; users, ACLs, quotas and tokens by `Admin`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.compat.barnabas_client import Barnabas
from support.compat.checks_security import check_login
from support.compat.logins import WAYS, java_settings
from support.compat.secured_world import SecuredWorld, serve_kafka
from support.kafka_server import KafkaServer
from support.waiting import wait_for

from barnabas import Admin, ApiError, AsyncConsumer, AsyncProducer, Consumer, ErrorCode, Producer
from barnabas.app.clients.admin.quotas import ClientQuotaAlteration
from barnabas.app.clients.admin.users import UserScramCredentialUpsertion
from barnabas.ports.broker_api.acls import AclBinding, AclBindingFilter, ResourceType
from barnabas.ports.broker_api.envelope import Principal
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.transport import AuthenticationError
from barnabas.ports.values import Secret
from barnabas.testing.security import make_certificates

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-secured")]

PATIENCE_S = 240
IN_NO_REALM = [feature for feature, way in WAYS.items() if way.mechanism != "GSSAPI"]
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kafka")
    make_certificates(made)
    return made


@pytest.fixture(scope="module")
def kafka(folder: Path) -> Iterator[KafkaServer]:
    certificates = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    server = KafkaServer(folder, users={"admin": "secret"}, tls=certificates)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def kafka_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWorld]:
    made = SecuredWorld(tmp_path_factory.mktemp("secured"), {"barnabas": Barnabas}, serve_kafka)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def own_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWorld]:
    made = SecuredWorld(tmp_path_factory.mktemp("secured"), {})
    try:
        yield made
    finally:
        made.close()


def config_of(folder: Path, user: str, password: str, mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="{user}" password="{password}";',
        "client.id": user,
    }


def _mechanisms_of(admin: Admin, user: str) -> list[str]:
    return sorted(each.mechanism for each in admin.describe_user_scram_credentials().get(user, ()))


def test_users_acls_and_quotas_are_set_and_have_their_effect(kafka: KafkaServer, folder: Path) -> None:
    admin_config = config_of(folder, "admin", "secret", "PLAIN")
    topic = AclBinding(
        resource_type=ResourceType.TOPIC, resource_name="orders", principal="User:alice", operation=Operation.ALL
    )
    group = AclBinding(
        resource_type=ResourceType.GROUP, resource_name="billing", principal="User:alice", operation=Operation.READ
    )
    with Admin(kafka.bootstrap, config=admin_config) as admin:
        admin.create_topic("orders")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            change = UserScramCredentialUpsertion(user="alice", password=Secret("hidden"), mechanism=mechanism)
            admin.alter_user_scram_credentials([change])
        # Kafka answers a change before its broker has published it (KRaft), here and below.
        wait_for(lambda: _mechanisms_of(admin, "alice") == ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        admin.create_acls([topic, group])
        wait_for(lambda: set(admin.describe_acls()) == {topic, group})
        limits = {"producer_byte_rate": 1e9, "request_percentage": 50.0}
        admin.alter_client_quotas([ClientQuotaAlteration(entity={"user": "alice"}, limits=limits)])
        wait_for(lambda: [dict(each.limits) for each in admin.describe_client_quotas({"user": "alice"})] == [limits])
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            alice = config_of(folder, "alice", "hidden", mechanism)
            with Producer(kafka.bootstrap, config=alice) as producer:
                producer.send("orders", mechanism.encode()).result(PATIENCE_S)
        with Consumer(kafka.bootstrap, config=alice, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.value == b"SCRAM-SHA-256"
        assert admin.delete_acls([AclBindingFilter(principal="User:alice", resource_type=ResourceType.TOPIC)]) == [
            topic
        ]
        wait_for(lambda: topic not in admin.describe_acls())
        with Admin(kafka.bootstrap, config=alice) as denied, pytest.raises(ApiError) as refused:
            denied.describe_topics(["orders"])
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_wrong_password_and_unknown_authority_are_refused(kafka: KafkaServer, folder: Path) -> None:
    wrong = config_of(folder, "admin", "guess", "PLAIN")
    with Admin(kafka.bootstrap, config=wrong) as admin, pytest.raises(AuthenticationError, match="Invalid username"):
        admin.describe_cluster()
    stranger = {**config_of(folder, "admin", "secret", "PLAIN"), "ssl.truststore.location": ""}
    with Admin(kafka.bootstrap, config=stranger) as admin, pytest.raises(AuthenticationError, match="certificate"):
        admin.describe_cluster()


@pytest.mark.parametrize("feature", IN_NO_REALM)
def test_our_clients_log_in_at_kafka_and_are_refused_without_their_secret(
    kafka_world: SecuredWorld, feature: str
) -> None:
    check_login(kafka_world, "barnabas", feature)


@pytest.mark.parametrize("feature", IN_NO_REALM)
def test_async_clients_log_in_at_kafka(kafka_world: SecuredWorld, feature: str) -> None:
    login = kafka_world.login(WAYS[feature])
    config = java_settings(login, store_type="PKCS12")
    topic, group = kafka_world.topic(login.way.user), kafka_world.group(login.way.user)

    async def exchange() -> bytes | None:
        async with AsyncProducer(login.bootstrap, config=config) as producer:
            await producer.send_and_wait(topic, b"x")
        reset = "earliest"
        async with AsyncConsumer(login.bootstrap, config=config, group_id=group, auto_offset_reset=reset) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer.messages():
                return message.value
        return None

    assert asyncio.run(asyncio.wait_for(exchange(), PATIENCE_S)) == b"x"


@pytest.mark.parametrize("feature", IN_NO_REALM)
def test_command_logs_in_at_kafka_by_a_file_of_settings(
    kafka_world: SecuredWorld, feature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = kafka_world.login(WAYS[feature])
    file = tmp_path / "client.properties"
    settings = java_settings(login, store_type="PEM")
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    file.chmod(0o600)
    topic = kafka_world.topic(login.way.user)
    run = Command(capsys, "-b", login.bootstrap, "--command-config", str(file))
    assert topic in run("topics", "list").out.split()


@pytest.mark.parametrize("world", ["kafka_world", "own_world"])
def test_delegation_tokens_are_created_renewed_described_and_expired(
    world: str, request: pytest.FixtureRequest
) -> None:
    secured: SecuredWorld = request.getfixturevalue(world)
    owner, renewer = Principal("User", "admin"), Principal("User", "scram-sha-256")
    admin = secured.admin
    token = admin.create_delegation_token(renewers=[renewer], max_lifetime_ms=3_600_000)
    assert (token.owner, token.max_timestamp_ms - token.issue_timestamp_ms) == (owner, 3_600_000)
    wait_for(lambda: token.token_id in {each.token_id for each in admin.describe_delegation_token([owner])})
    (found,) = [each for each in admin.describe_delegation_token() if each.token_id == token.token_id]
    assert (found.hmac, list(found.renewers)) == (token.hmac, [renewer])
    by_renewer = secured.login(WAYS["sasl_ssl-scram-sha-256"])
    with Admin(by_renewer.bootstrap, config=java_settings(by_renewer, store_type="PEM")) as other:
        assert other.renew_delegation_token(token.hmac, 60_000) <= token.max_timestamp_ms
        others = [each.token_id for each in other.describe_delegation_token([owner])]
        assert others == [token.token_id]  # a renewer sees the token, and no other of its owner
    admin.expire_delegation_token(token.hmac)
    wait_for(lambda: token.token_id not in {each.token_id for each in admin.describe_delegation_token()})
    with pytest.raises(ApiError) as refused:
        admin.renew_delegation_token(token.hmac)
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    by_token = secured.login(WAYS["delegation-token"])
    with (
        Admin(by_token.bootstrap, config=java_settings(by_token, store_type="PEM")) as opened,
        pytest.raises(ApiError) as denied,
    ):
        opened.create_delegation_token()
    assert denied.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
