"""kafka-acls, kafka-configs and kafka-delegation-tokens of Apache Kafka: ACLs, users, quotas, tokens."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.logins import WAYS, Login
from support.compat.model import Unavailable
from support.waiting import wait_for

from barnabas import Admin, Broker, ErrorCode, Producer
from barnabas.app.clients.admin.quotas import ClientQuotaAlteration
from barnabas.ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import AuthenticationError

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-tools-security")]

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
PASSWORD = "admin-secret"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'PlainLoginModule required user_admin="{PASSWORD}";',
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "secret of the tokens",
    }
    with Broker(storage="memory", listeners="SASL_PLAINTEXT://127.0.0.1:0", config=settings) as running:
        yield running


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[ConsoleTools]:
    try:
        opened = ConsoleTools(broker.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(opened):
        way = WAYS["sasl_plaintext-plain"]
        opened.log_in(Login(way=way, bootstrap=broker.bootstrap, name="admin", secret=PASSWORD))
        yield opened


def settings_of(user: str, password: str, mechanism: str, **more: str) -> dict[str, Any]:
    options = "".join(f' {name}="{value}"' for name, value in more.items())
    login = f'LoginModule required username="{user}" password="{password}"{options};'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login}


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.bootstrap, config=settings_of("admin", PASSWORD, "PLAIN")) as opened:
        yield opened


def test_kafka_acls_adds_lists_and_removes(tools: ConsoleTools, admin: Admin) -> None:
    reader = ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
    stranger = ("--deny-principal", "User:eve", "--deny-host", "10.0.0.9", "--operation", "Write")
    prefixed = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    tools.run(ACLS, "--add", *reader)
    tools.run(ACLS, "--add", *stranger, *prefixed)
    alice = [
        AclBinding(resource_type=kind, resource_name=name, principal="User:alice", operation=operation)
        for kind, name, operation in (
            (ResourceType.TOPIC, "orders", Operation.READ),
            (ResourceType.TOPIC, "orders", Operation.DESCRIBE),
            (ResourceType.GROUP, "billing", Operation.READ),
        )
    ]
    eve = AclBinding(
        resource_type=ResourceType.TOPIC,
        resource_name="team-",
        pattern_type=PatternType.PREFIXED,
        principal="User:eve",
        host="10.0.0.9",
        operation=Operation.WRITE,
        permission=PermissionType.DENY,
    )
    assert set(admin.describe_acls()) == {*alice, eve}
    said = tools.run(ACLS, "--list", "--topic", "team-a", "--resource-pattern-type", "match")
    assert "principal=User:eve, host=10.0.0.9, operation=WRITE, permissionType=DENY" in said
    assert "alice" not in said
    tools.run(ACLS, "--remove", "--force", *stranger, *prefixed)
    tools.run(ACLS, "--remove", "--force", *reader)
    assert admin.describe_acls() == []


def test_kafka_configs_sets_and_deletes_the_passwords_of_users(
    tools: ConsoleTools, admin: Admin, broker: Broker
) -> None:
    bob = ("--entity-type", "users", "--entity-name", "bob")
    for added in ("SCRAM-SHA-256=[iterations=4096,password=one]", "SCRAM-SHA-512=[password=two]"):
        tools.run(CONFIGS, "--alter", *bob, "--add-config", added)
    for mechanism, password in (("SCRAM-SHA-256", "one"), ("SCRAM-SHA-512", "two")):
        with Admin(broker.bootstrap, config=settings_of("bob", password, mechanism)) as opened:
            assert opened.list_topics() == []
    said = tools.run(CONFIGS, "--describe", *bob)
    assert "SCRAM-SHA-256=iterations=4096" in said
    assert "SCRAM-SHA-512=iterations=4096" in said
    tools.run(CONFIGS, "--alter", *bob, "--delete-config", "SCRAM-SHA-256")
    assert [each.mechanism for each in admin.describe_user_scram_credentials(["bob"])["bob"]] == ["SCRAM-SHA-512"]
    with (
        Admin(broker.bootstrap, config=settings_of("bob", "one", "SCRAM-SHA-256")) as opened,
        pytest.raises(AuthenticationError),
    ):
        opened.list_topics()


def test_kafka_configs_sets_describes_and_deletes_quotas(tools: ConsoleTools, admin: Admin) -> None:
    entity = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "c 1")
    default = ("--entity-type", "users", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    tools.run(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    tools.run(CONFIGS, "--alter", *default, "--add-config", "consumer_byte_rate=2048")
    tools.run(CONFIGS, "--alter", *address, "--add-config", "connection_creation_rate=10")
    (found,) = admin.describe_client_quotas({"user": "alice", "client-id": "c 1"})
    assert dict(found.limits) == {"producer_byte_rate": 1024.0, "request_percentage": 50.0}
    said = tools.run(CONFIGS, "--describe", *entity)
    assert "producer_byte_rate=1024.0" in said
    assert "consumer_byte_rate=2048.0" in tools.run(CONFIGS, "--describe", *default)
    assert "connection_creation_rate=10.0" in tools.run(CONFIGS, "--describe", *address)
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    tools.run(CONFIGS, "--alter", *default, "--delete-config", "consumer_byte_rate")
    tools.run(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate")
    assert admin.describe_client_quotas() == []
    admin.alter_client_quotas([ClientQuotaAlteration(entity={"user": "alice"}, limits={"producer_byte_rate": 7.0})])
    assert "producer_byte_rate=7.0" in tools.run(CONFIGS, "--describe", "--entity-type", "users")


def test_kafka_delegation_tokens_creates_renews_and_expires(tools: ConsoleTools, admin: Admin, broker: Broker) -> None:
    said = tools.run(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22})\s+(\S{86}==)\s+User:admin", said, re.MULTILINE)
    assert found is not None, said
    token_id, hmac = found.groups()
    assert token_id in tools.run(TOKENS, "--describe", "--owner-principal", "User:admin")
    by_token = settings_of(token_id, hmac, "SCRAM-SHA-256", tokenauth="true")
    with Producer(broker.bootstrap, config=by_token) as producer:
        producer.send("by-token", b"x").result(PATIENCE_S)
    with Admin(broker.bootstrap, config=by_token) as opened, pytest.raises(ApiError) as refused:
        opened.create_delegation_token()
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert "Completed renew operation" in tools.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in tools.run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    wait_for(lambda: admin.describe_delegation_token() == [])
    with pytest.raises(RuntimeError, match=r"DelegationTokenNotFound|not found"):
        tools.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
