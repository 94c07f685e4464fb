"""A running cluster of three brokers goes from PLAINTEXT to SASL_SSL by rolling restarts, as docs/security.md says."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.secured_brokers import PARTITIONS, PATIENCE_S, Load, SecuredBrokers, acl, wait_in_sync
from support.waiting import wait_for

from barnabas import Admin
from barnabas.ports.errors import BarnabasError

pytestmark = [pytest.mark.slow, pytest.mark.process]

SECRETS = {"broker": "b-secret", "admin": "a-secret", "app": "p-secret"}
BOTH = ("PLAINTEXT", "SASL_SSL")
ADDED = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        f'ScramLoginModule required username="broker" password="{SECRETS["broker"]}";'
    ),
    "sasl.scram.bootstrap.users": ";".join(
        f"SCRAM-SHA-512=[name={user},password={password}]" for user, password in SECRETS.items()
    ),
}
FIRST = {**ADDED, "security.inter.broker.protocol": "PLAINTEXT"}
SECOND = {**ADDED, "security.inter.broker.protocol": "SASL_SSL"}
AUTHORIZED = {
    **SECOND,
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:broker;User:admin",
}
OPEN = {**AUTHORIZED, "allow.everyone.if.no.acl.found": "true"}


def login(brokers: SecuredBrokers, user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": brokers.ca,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": SECRETS[user],
    }


def test_running_cluster_goes_from_plaintext_to_sasl_ssl_without_a_lost_or_doubled_message(tmp_path: Path) -> None:
    brokers = SecuredBrokers(tmp_path)
    plain, secure = brokers.bootstrap(secure=False), brokers.bootstrap(secure=True)
    load = Load("orders", "billing")

    def roll(names: tuple[str, ...], settings: Mapping[str, str], *, by: str, client: Mapping[str, str]) -> None:
        for number in (1, 2, 3):
            brokers.restart(number, names, settings)
            wait_in_sync(by, client, "orders", "__consumer_offsets")
            load.wait_for_more()

    try:
        for number in (1, 2, 3):
            brokers.start(number, ("PLAINTEXT",), {})
        with Admin(plain) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        load.start(plain, {}, {})
        load.wait_for_more()

        roll(BOTH, FIRST, by=plain, client={})  # 1: a second listener
        roll(BOTH, SECOND, by=plain, client={})  # 2: brokers use it among themselves
        load.pause()  # 3: the clients move
        app, administrator = login(brokers, "app"), login(brokers, "admin")
        load.start(secure, app, app)
        load.wait_for_more()
        roll(BOTH, OPEN, by=secure, client=administrator)  # 4: the authorizer, which still lets everyone in
        with Admin(secure, config=administrator) as admin:
            admin.create_acls(
                [
                    acl("app", "READ", "topic:orders"),
                    acl("app", "WRITE", "topic:orders"),
                    acl("app", "READ", "group:billing"),
                ]
            )
        load.wait_for_more()
        roll(("SASL_SSL",), AUTHORIZED, by=secure, client=administrator)  # 5: the plain listener goes
        load.finish(secure, app)

        with pytest.raises(BarnabasError), Admin(plain, default_api_timeout_ms=3000) as admin:
            admin.list_topics()
        with Admin(secure, config=app) as admin:
            assert admin.list_topics() and "__consumer_offsets" not in admin.list_topics()
    finally:
        load.abandon()
        brokers.stop()
