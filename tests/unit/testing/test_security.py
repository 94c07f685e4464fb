"""Secured test brokers and clusters: who may log in, over TLS or not, and what is denied on demand."""

from typing import Any

import pytest

from barnabas import ApiError, ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.ports.transport import AuthenticationError
from barnabas.testing import TestBroker, TestCluster

PATIENCE_S = 120
USERS = {"alice": 'se"cr\\et', "bob": "hidden"}


@pytest.mark.parametrize("security", [None, "sasl_ssl"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_of_a_test_broker_log_in_by_each_mechanism(security: str | None, mechanism: str) -> None:
    if mechanism == "PLAIN":
        users = USERS
    else:
        users = {"alice": "secret", "bob": "hidden"}
    with TestBroker(security=security, users=users) as broker:
        topic = broker.create_topic()
        with broker.producer(user="bob", sasl_mechanism=mechanism) as producer:
            producer.send(topic, b"one").result(PATIENCE_S)
        broker.assert_produced(topic, [b"one"])
        broker.restart()
        with broker.admin(sasl_mechanism=mechanism) as admin:
            assert admin.list_topics() == [topic]
        with broker.admin(sasl_password="wrong") as admin, pytest.raises(AuthenticationError):
            admin.list_topics()


def test_test_broker_with_tls_alone_has_a_certificate_of_its_own() -> None:
    with TestBroker(security="ssl") as broker:
        settings = broker.client_settings()
        assert settings["security.protocol"] == "SSL"
        with broker.admin() as admin:
            assert admin.describe_cluster().brokers
        foreign: Any = {"ssl_ca_location": None}
        stranger = broker.admin(ssl_truststore_location="", **foreign)
        with stranger as admin, pytest.raises(AuthenticationError, match="certificate"):
            admin.describe_cluster()


def test_denied_operation_fails_until_all_is_allowed_again() -> None:
    with TestBroker(users=USERS) as broker:
        topic, other = broker.create_topic(), broker.create_topic()
        broker.deny("User:alice", "Write", f"topic:{topic}")
        with broker.producer(user="alice") as producer:
            with pytest.raises(ApiError) as refused:
                producer.send(topic, b"no").result(PATIENCE_S)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            producer.send(other, b"yes").result(PATIENCE_S)
            broker.allow_all()
            producer.send(topic, b"yes").result(PATIENCE_S)
        broker.assert_produced(topic, [b"yes"])


def test_wrong_usage_of_security_is_named() -> None:
    with pytest.raises(ConfigError, match="needs users"):
        TestBroker(security="sasl_ssl")
    with pytest.raises(ConfigError, match="expected ssl"):
        TestBroker(security="tls")
    with pytest.raises(ConfigError, match="with SASL only"):
        TestBroker(security="ssl", users=USERS)
    with TestBroker() as broker, pytest.raises(ConfigError, match="deny"):
        broker.deny("User:*", "Read", "topic:t")
    with TestBroker(users=USERS) as broker:
        with pytest.raises(ConfigError, match="expected one of ALL, READ"):
            broker.deny("User:*", "Peek", "topic:t")
        with pytest.raises(ConfigError, match="no user 'eve'"):
            broker.client_settings("eve")


def test_secured_cluster_replicates_and_serves_its_users() -> None:
    with TestCluster(brokers=2, security="sasl_ssl", users={"alice": "secret"}) as cluster:
        topic = cluster.create_topic()
        with cluster.producer() as producer:
            producer.send(topic, b"one").result(PATIENCE_S)
        cluster.wait_in_sync(topic)
        cluster.kill(cluster.leader(topic) or 0)
        cluster.wait_for_leader(topic)
        cluster.assert_produced(topic, [b"one"])
