"""Clients and brokers over TLS: real clients of other libraries, ours, the classic protocol, and three brokers."""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import authority, certificate, chain, pem, write_pem
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ConfigError
from barnabas.ports.transport import AuthenticationError
from barnabas.testing import TestCluster

PATIENCE_S = 300


class Files:
    """The certificates of a test, as files."""

    def __init__(self, folder: Path) -> None:
        broker = certificate("localhost", "127.0.0.1", common_name="broker")
        alice = certificate("alice", common_name="alice")
        self.keystore = write_pem(folder, "broker.pem", pem(broker.private_key_pem) + chain(broker))
        self.authority = write_pem(folder, "ca.pem", pem(authority().cert_pem))
        self.foreign = write_pem(folder, "foreign.pem", pem(authority("foreign").cert_pem))
        self.alice_key = write_pem(folder, "alice.key", pem(alice.private_key_pem))
        self.alice = write_pem(folder, "alice.crt", chain(alice))
        self.alice_store = write_pem(folder, "alice.pem", pem(alice.private_key_pem) + chain(alice))

    def broker(self, **more: str) -> dict[str, str]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": self.keystore,
            "ssl.truststore.location": self.authority,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def client(self, **more: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": self.authority,
            **{key.replace("_", "."): value for key, value in more.items()},
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mutual(files: Files) -> Iterator[str]:
    """A broker that requires client certificates."""
    with Broker(storage="memory", config=files.broker(ssl_client_auth="required")) as broker:
        yield broker.bootstrap


def read_all(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None:
            found.append(message.value if isinstance(message.value, bytes) else message.value())
    return found


def test_our_clients_produce_and_consume_with_certificates(files: Files, mutual: str) -> None:
    settings = files.client(ssl_keystore_location=files.alice_store)
    large = bytes(range(256)) * 4000
    with Producer(mutual, config=settings) as producer:
        for value in (b"one", large, b"three"):
            producer.send("ours", value).result(PATIENCE_S)
    with Consumer(mutual, group_id="readers", auto_offset_reset="earliest", config=settings) as consumer:
        consumer.subscribe("ours")
        assert read_all(consumer, 3) == [b"one", large, b"three"]
    with Admin(mutual, config=settings) as admin:
        assert "ours" in admin.list_topics()


def test_our_client_without_a_certificate_is_refused_at_once(files: Files, mutual: str) -> None:
    begun = time.monotonic()
    refused = pytest.raises(AuthenticationError, match="requires a client certificate")
    with Admin(mutual, config=files.client(), default_api_timeout_ms=PATIENCE_S * 1000) as admin, refused:
        admin.list_topics()
    assert time.monotonic() - begun < PATIENCE_S


def test_our_client_refuses_a_broker_of_another_authority_at_once(files: Files, mutual: str) -> None:
    settings = files.client(ssl_truststore_location=files.foreign)
    refused = pytest.raises(AuthenticationError, match="the server's certificate is refused")
    with Admin(mutual, config=settings, default_api_timeout_ms=PATIENCE_S * 1000) as admin, refused:
        admin.list_topics()


def test_librdkafka_produces_and_consumes_with_certificates(files: Files, mutual: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    settings = {
        "bootstrap.servers": mutual,
        "security.protocol": "SSL",
        "ssl.ca.location": files.authority,
        "ssl.certificate.location": files.alice,
        "ssl.key.location": files.alice_key,
    }
    producer = confluent.Producer(settings)
    for number in range(500):
        producer.produce("librdkafka", b"%d" % number * 500)
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent.Consumer({**settings, "group.id": "librdkafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    try:
        assert len(read_all(consumer, 500)) == 500
    finally:
        consumer.close()


def test_kafka_python_produces_and_consumes_with_certificates(files: Files, mutual: str) -> None:
    kafka = pytest.importorskip("kafka")
    settings = {
        "bootstrap_servers": mutual,
        "security_protocol": "SSL",
        "ssl_cafile": files.authority,
        "ssl_certfile": files.alice,
        "ssl_keyfile": files.alice_key,
    }
    producer = kafka.KafkaProducer(**settings)
    for number in range(50):
        producer.send("python", b"%d" % number)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer("python", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    try:
        assert [next(consumer).value for _ in range(50)] == [b"%d" % number for number in range(50)]
    finally:
        consumer.close()


OFFSETS_REQUEST = (
    b"\x00\x04" + b"\x00\x01t" + (0).to_bytes(4, "big") + (-1).to_bytes(8, "big", signed=True) + (1).to_bytes(4, "big")
)
"""An offsets request of the classic protocol: id 4, topic, partition, latest, one offset (facts A3)."""


def ask_classic(files: Files, listener: str, store: str = "") -> bytes:
    """Return the first bytes of the answer to an offsets request over TLS; none: the broker closed the connection."""
    host, port = listener.removeprefix("classic://").rsplit(":", 1)
    context = ssl.create_default_context(cafile=files.authority)
    if store:
        context.load_cert_chain(store)
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as sock,
    ):
        sock.sendall(len(OFFSETS_REQUEST).to_bytes(4, "big") + OFFSETS_REQUEST)
        return sock.recv(4)


def test_classic_protocol_over_tls_carries_messages(files: Files) -> None:
    config = files.broker(listeners="classic_ssl://127.0.0.1:0,SSL://127.0.0.1:0")
    with Broker(storage="memory", config=config) as broker:
        assert len(ask_classic(files, broker.listeners[0])) == 4


def test_classic_listener_allows_the_certificate_subjects_that_it_lists(files: Files) -> None:
    config = files.broker(
        listeners="classic_ssl://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_client_auth="requested",
        ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/L",
    )
    config["classic.allowed.subjects"] = "User:alice"
    with Broker(storage="memory", config=config) as broker:
        assert len(ask_classic(files, broker.listeners[0], files.alice_store)) == 4
        assert ask_classic(files, broker.listeners[0]) == b""


def test_three_brokers_replicate_over_tls_with_client_certificates(files: Files) -> None:
    config = files.broker(ssl_client_auth="required")
    config["min.insync.replicas"] = "3"
    with TestCluster(brokers=3, config=config) as cluster:
        settings = files.client(ssl_keystore_location=files.alice_store)
        with Admin(cluster.bootstrap, config=settings) as admin:
            admin.create_topic("copied", partitions=1, replication_factor=3)
            with Producer(cluster.bootstrap, acks="all", config=settings) as producer:
                for number in range(200):
                    producer.send("copied", b"%d" % number)
                producer.confirm(PATIENCE_S)
        wait_for(lambda: cluster.in_sync("copied") == [1, 2, 3])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "cannot read /nowhere.pem"),
        ({"ssl.cipher.suites": "NO_SUCH_SUITE"}, "ssl.cipher.suites"),
    ],
)
def test_bad_settings_of_a_listener_are_a_configuration_error(files: Files, change: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault), Broker(storage="memory", config={**files.broker(), **change}):
        pass


def test_name_from_the_certificate_decides_what_a_user_may_do(files: Files, tmp_path: Path) -> None:
    config = files.broker(
        ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/L", super_users="User:alice"
    )
    config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    bob = certificate("bob", common_name="bob")
    bob_store = write_pem(tmp_path, "bob.pem", pem(bob.private_key_pem) + chain(bob))
    with Broker(storage="memory", config=config) as broker:
        with Admin(broker.bootstrap, config=files.client(ssl_keystore_location=files.alice_store)) as alice:
            alice.create_topic("hers")
            assert "hers" in alice.list_topics()
        with Admin(broker.bootstrap, config=files.client(ssl_keystore_location=bob_store)) as stranger:
            assert "hers" not in stranger.list_topics()
            with pytest.raises(ApiError) as error:
                stranger.create_topic("his")
    assert error.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_subject_that_no_rule_matches_closes_the_connection(files: Files) -> None:
    config = files.broker(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=broker,.*$/broker/")
    with Broker(storage="memory", config=config) as broker:
        settings = files.client(ssl_keystore_location=files.alice_store)
        refused = pytest.raises(BarnabasError)
        with Admin(broker.bootstrap, config=settings, default_api_timeout_ms=2000) as alice, refused:
            alice.list_topics()
