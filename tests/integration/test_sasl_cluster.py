"""Three brokers that authenticate to each other by SASL: replication, hand-over of leaders, users at all brokers."""

from typing import Any

import pytest
from confluent_kafka import Producer
from support.confluent import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.waiting import PATIENCE_S, wait_for

from barnabas.testing import TestCluster

pytestmark = [pytest.mark.xdist_group("confluent")]

USERS = {"admin": "admin-secret"}


def cluster_settings(security: str, mechanism: str) -> dict[str, object]:
    """Return the settings of brokers that log in as admin, and renew their logins."""
    scope = f"listener.name.{security}.{mechanism.lower()}"
    login = 'LoginModule required username="admin" password="admin-secret" user_admin="admin-secret";'
    return {
        "super.users": "User:admin",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"{scope}.sasl.jaas.config": login,
        f"{scope}.connections.max.reauth.ms": 2000,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("security", "mechanism"),
    [("sasl_plaintext", "PLAIN"), ("sasl_plaintext", "SCRAM-SHA-512"), ("sasl_ssl", "SCRAM-SHA-256")],
)
def test_three_brokers_replicate_over_sasl_and_hand_over(security: str, mechanism: str) -> None:
    with TestCluster(3, cluster_settings(security, mechanism), security=security, users=USERS) as cluster:
        settings: dict[str, Any] = {**cluster.client_settings("admin", mechanism)}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})])["t"].result(PATIENCE_S)
        producer = Producer({**settings, "acks": "all"})
        lost: list[object] = []

        def produce(count: int) -> None:
            for number in range(count):
                producer.produce(
                    "t", b"%d" % number, on_delivery=lambda error, _: lost.append(error) if error else None
                )
            assert producer.flush(PATIENCE_S) == 0

        produce(100)
        leader = cluster.leader("t", 0)
        assert leader is not None
        cluster.kill(leader)
        produce(100)
        assert lost == []
        wait_for(lambda: cluster.leader("t", 0) is not None)


@pytest.mark.slow
def test_new_user_is_known_to_all_brokers() -> None:
    given = cluster_settings("sasl_plaintext", "SCRAM-SHA-512")
    with TestCluster(3, given, security="sasl_plaintext", users=USERS) as cluster:
        settings: dict[str, Any] = {**cluster.client_settings("admin", "SCRAM-SHA-512")}
        credential = UserScramCredentialUpsertion(
            "eve", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"eve"
        )
        admin = AdminClient(settings)
        admin.alter_user_scram_credentials([credential])["eve"].result(PATIENCE_S)
        for address in cluster.bootstrap.split(","):
            login = {**settings, "bootstrap.servers": address, "sasl.username": "eve", "sasl.password": "eve"}
            eve = AdminClient({**login, "log_level": 0})
            wait_for(lambda eve=eve: len(eve.list_topics(timeout=PATIENCE_S).brokers) == 3)  # type: ignore[misc]
