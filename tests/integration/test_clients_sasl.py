"""Our clients at our broker over SASL: under each library's names, and with a wrong password."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.long_tests import first_is_quick

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.core.client.network import links
from barnabas.ports.transport import AuthenticationError
from barnabas.testing import TestBroker

JAAS = 'PlainLoginModule required username="admin" password="secret-of-admin"'
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "10",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{JAAS} user_admin="secret-of-admin" user_alice="secret-of-alice";'
    ),
}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
ALICE = {**SASL, "sasl.username": "alice", "sasl.password": "secret-of-alice"}
WRONG = {**SASL, "sasl.jaas.config": 'PlainLoginModule required username="alice" password="guess";'}
PATIENCE_S = 300


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(storage="memory", config=BROKER) as broker:
        yield broker.bootstrap


def test_clients_with_the_right_password_produce_and_consume(bootstrap: str) -> None:
    with Producer(bootstrap, config=ALICE) as producer:
        producer.send("right", b"one").result(PATIENCE_S)
    keywords: dict[str, Any] = {key.replace(".", "_"): value for key, value in ALICE.items()}
    with Consumer(bootstrap, group_id="readers", auto_offset_reset="earliest", **keywords) as consumer:
        consumer.subscribe("right")
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value == b"one"
    with Admin(bootstrap, config=ALICE) as admin:
        assert "right" in admin.list_topics()


def test_wrong_password_fails_each_client_without_waiting_for_its_timeout(bootstrap: str) -> None:
    begun = time.monotonic()
    refused = pytest.raises(AuthenticationError, match="Invalid username or password")
    with Admin(bootstrap, config=WRONG, default_api_timeout_ms=PATIENCE_S * 1000) as admin, refused:
        admin.list_topics()
    with Producer(bootstrap, config=WRONG, max_block_ms=PATIENCE_S * 1000) as producer, refused:
        producer.send("wrong", b"one").result(PATIENCE_S)
    with Consumer(bootstrap, config=WRONG, default_api_timeout_ms=PATIENCE_S * 1000) as consumer, refused:
        consumer.assign([("wrong", 0)])
    with Consumer(bootstrap, config=WRONG, group_id="readers") as consumer, refused:
        consumer.subscribe("wrong")
        consumer.poll(PATIENCE_S)
    with Producer(bootstrap, config=WRONG, transactional_id="t") as producer, refused:
        producer.init_transactions(PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up sooner that no broker answers, each after 0.3 s in place of 3 s."""
    monkeypatch.setattr(links, "UNANSWERED_MS", 300)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("security", first_is_quick(["ssl", "sasl_plaintext"]))
def test_plaintext_client_at_a_secured_listener_fails_soon_with_the_reason(security: str) -> None:
    users = {"alice": "secret"} if security == "sasl_plaintext" else None
    refused = pytest.raises(AuthenticationError, match="its listener may want another")
    with TestBroker(security=security, users=users) as broker:
        with Admin(broker.bootstrap, default_api_timeout_ms=PATIENCE_S * 1000) as admin, refused:
            admin.list_topics()
        with Producer(broker.bootstrap, max_block_ms=PATIENCE_S * 1000) as producer, refused:
            producer.send("t", b"one").result(PATIENCE_S)


@pytest.mark.usefixtures("_impatient")
def test_tls_client_at_a_plaintext_listener_fails_soon() -> None:
    with TestBroker() as broker:
        config = {"security.protocol": "SSL", "default.api.timeout.ms": PATIENCE_S * 1000}
        with Admin(broker.bootstrap, config=config) as admin, pytest.raises(AuthenticationError):
            admin.list_topics()
