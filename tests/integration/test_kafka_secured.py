"""Our clients at a secured Apache Kafka: SASL_SSL with PLAIN and SCRAM, users, ACLs and quotas by `Admin`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka_server import KafkaServer

from barnabas import Admin, ApiError, Consumer, ErrorCode, Producer
from barnabas.app.clients.admin.quotas import ClientQuotaAlteration
from barnabas.app.clients.admin.users import UserScramCredentialUpsertion
from barnabas.ports.broker_api.acls import AclBinding, AclBindingFilter, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.transport import AuthenticationError
from barnabas.ports.values import Secret
from barnabas.testing.security import make_certificates

pytestmark = [pytest.mark.slow, pytest.mark.process]

PATIENCE_S = 240
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


def config_of(folder: Path, user: str, password: str, mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="{user}" password="{password}";',
        "client.id": user,
    }


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
        found = admin.describe_user_scram_credentials(["alice"])["alice"]
        assert sorted(each.mechanism for each in found) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        admin.create_acls([topic, group])
        assert set(admin.describe_acls()) == {topic, group}
        limits = {"producer_byte_rate": 1e9, "request_percentage": 50.0}
        admin.alter_client_quotas([ClientQuotaAlteration(entity={"user": "alice"}, limits=limits)])
        (entry,) = admin.describe_client_quotas({"user": "alice"})
        assert dict(entry.limits) == limits
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
