"""Our clients at our broker over SASL: under each library's names, and with a wrong password."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.ports.transport import AuthenticationError

JAAS = 'PlainLoginModule required username="admin" password="secret-of-admin"'
BROKER = {
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


def test_client_without_sasl_gets_no_answer_and_says_so(bootstrap: str) -> None:
    with Admin(bootstrap, default_api_timeout_ms=2000) as admin, pytest.raises(Exception, match="last: "):
        admin.list_topics()
