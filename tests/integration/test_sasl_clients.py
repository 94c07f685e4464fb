"""SASL with real clients on real sockets: librdkafka, kafka-python, aiokafka and ours, allowed and refused."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from struct import pack
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Producer
from support.confluent import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from support.kafka_python import KafkaProducer
from support.waiting import PATIENCE_S

import barnabas
from barnabas.adapters.oauthbearer.http import unsecured_token
from barnabas.app.embedded_broker import Broker

pytestmark = [
    pytest.mark.xdist_group("confluent"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning"),
]

PASSWORD = "wonder=land, 1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTH_MS = 1500
SETTINGS: dict[str, object] = {
    "sasl.enabled.mechanisms": [*MECHANISMS, "OAUTHBEARER"],
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
    "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": REAUTH_MS,
    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "unsecured",
    "connection.failed.authentication.delay.ms": 20,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = ";".join(f"{mechanism}=[name=alice,password='x']" for mechanism in MECHANISMS[1:])
    with Broker(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        storage="memory",
        config={**SETTINGS, "sasl.scram.bootstrap.users": users},
    ) as running:
        admin = AdminClient(confluent(running, "PLAIN"))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            upsertion = UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])["alice"].result(PATIENCE_S)
        yield running


def confluent(broker: Broker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def python_clients(broker: Broker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes_after_login(broker: Broker, mechanism: str) -> None:
    topic = f"rd-{mechanism}"
    producer = Producer(confluent(broker, mechanism))
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    settings = {**confluent(broker, mechanism), "group.id": topic, "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < 100:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    assert found == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_after_login(broker: Broker, mechanism: str) -> None:
    with closing(KafkaProducer(**python_clients(broker, mechanism))) as producer:
        assert producer.send(f"kp-{mechanism}", b"x").get(PATIENCE_S).offset == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces_after_login(broker: Broker, mechanism: str) -> None:
    async def produce(password: str) -> int:
        producer = AIOKafkaProducer(**python_clients(broker, mechanism, password))
        try:
            await producer.start()
            return int((await producer.send_and_wait(f"aio-{mechanism}", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce(PASSWORD)) == 0
    with pytest.raises(AioKafkaError):
        asyncio.run(produce("wrong"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_clients_produce_and_consume_after_login(broker: Broker, mechanism: str) -> None:
    topic, settings = f"ours-{mechanism}", confluent(broker, mechanism)
    bootstrap = settings.pop("bootstrap.servers")
    with barnabas.Producer(bootstrap, config=settings) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
        producer.flush()
    with barnabas.Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest", config=settings) as consumer:
        consumer.subscribe([topic])
        found = [message.value for _, message in zip(range(10), consumer, strict=False)]
    assert found == [b"%d" % number for number in range(10)]


def test_wrong_password_is_an_authentication_error_of_librdkafka(broker: Broker) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**confluent(broker, "SCRAM-SHA-512", "wrong"), "error_cb": errors.append, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.1)
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_session_of_librdkafka_continues_by_reauthentication(broker: Broker) -> None:
    producer = Producer(confluent(broker, "SCRAM-SHA-256"))
    lost: list[KafkaError] = []
    deadline = time.monotonic() + 2.5 * REAUTH_MS / 1000
    while time.monotonic() < deadline:
        producer.produce("reauth", b"x", on_delivery=lambda error, _: lost.append(error) if error else None)
        producer.poll(0.05)
    assert producer.flush(PATIENCE_S) == 0
    assert lost == []


@pytest.mark.slow
def test_our_session_continues_by_reauthentication(broker: Broker) -> None:
    settings = confluent(broker, "SCRAM-SHA-256")
    bootstrap = settings.pop("bootstrap.servers")
    with barnabas.Producer(bootstrap, config=settings) as producer:
        deadline = time.monotonic() + 2.5 * REAUTH_MS / 1000
        while time.monotonic() < deadline:
            producer.send("our-reauth", b"x").result(PATIENCE_S)
            time.sleep(0.05)


def test_bearer_tokens_of_librdkafka_and_ours_are_accepted(broker: Broker) -> None:
    def token(_: str) -> tuple[str, float]:
        found = unsecured_token("alice")
        return found.value.value, (found.expires_at_ms or 0) / 1000

    settings: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings, "oauth_cb": token})
    producer.poll(0)
    producer.produce("oauth", b"x")
    assert producer.flush(PATIENCE_S) == 0
    login = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
    with barnabas.Producer(broker.bootstrap, config={**settings, "sasl.jaas.config": login}) as ours:
        ours.send("oauth", b"y").result(PATIENCE_S)


def test_deleted_user_cannot_log_in_again(broker: Broker) -> None:
    admin = AdminClient(confluent(broker, "PLAIN"))
    credential = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"b")
    admin.alter_user_scram_credentials([credential])["bob"].result(PATIENCE_S)
    settings = {**confluent(broker, "SCRAM-SHA-512", "b"), "sasl.username": "bob", "log_level": 0}
    assert AdminClient(settings).list_topics(timeout=PATIENCE_S).brokers
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE_S)
    bootstrap = settings.pop("bootstrap.servers")
    settings.pop("log_level")
    with (
        pytest.raises(barnabas.BarnabasError, match="SASL_AUTHENTICATION_FAILED"),
        barnabas.Admin(bootstrap, config=settings) as ours,
    ):
        ours.list_topics()


def test_secrets_of_logins_are_in_no_log_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    settings = confluent(broker, "PLAIN", "planted-secret-1")
    bootstrap = settings.pop("bootstrap.servers")
    with pytest.raises(barnabas.BarnabasError) as caught, barnabas.Admin(bootstrap, config=settings) as admin:
        admin.list_topics()
    texts = [caplog.text, str(caught.value), repr(caught.value), repr(broker.config), repr(settings["sasl.mechanism"])]
    assert not any("planted-secret-1" in text or PASSWORD in text for text in texts)
    assert "SASL_AUTHENTICATION_FAILED" in str(caught.value)  # lines of the broker may be limited after other tests


@pytest.mark.slow
def test_storm_of_wrong_logins_leaves_a_neighbour_undisturbed(broker: Broker) -> None:
    """A neighbour produces with acknowledgements while 20 threads try passwords as fast as they can."""
    stopped, attempts = threading.Event(), [0]

    def attack() -> None:
        host, port = broker.bootstrap.split(":")
        handshake = pack(">hhih", 17, 1, 1, -1) + pack(">h", 5) + b"PLAIN"
        guess = b"\0alice\0guess"
        login = pack(">hhih", 36, 0, 2, -1) + pack(">i", len(guess)) + guess
        while not stopped.is_set():
            try:
                with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
                    for frame in (handshake, login):
                        sock.sendall(pack(">i", len(frame)) + frame)
                    while sock.recv(4096):
                        pass
                attempts[0] += 1
            except OSError:
                continue

    threads = [threading.Thread(target=attack) for _ in range(20)]
    settings = confluent(broker, "PLAIN")
    bootstrap = settings.pop("bootstrap.servers")
    with barnabas.Producer(bootstrap, config=settings) as producer:
        producer.send("neighbour", b"first").result(PATIENCE_S)
        for thread in threads:
            thread.start()
        try:
            offsets = [producer.send("neighbour", b"x").result(PATIENCE_S).offset for _ in range(100)]
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
    assert offsets == list(range(1, 101))
    assert attempts[0] > 0
