"""Certificates, passwords and ACLs change under load on three brokers: no message is lost or doubled."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest
from support.secured_brokers import PARTITIONS, PATIENCE_S, Load, SecuredBrokers, acl, wait_in_sync
from support.waiting import wait_for

from barnabas import Admin, Producer
from barnabas.app.clients.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.ports.broker_api.acls import AclBindingFilter, ResourceType
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.transport import AuthenticationError
from barnabas.ports.values import Secret

pytestmark = [pytest.mark.slow, pytest.mark.process]

REAUTH_MS = 3000
LOCATION = "listener.name.sasl_ssl.ssl.keystore.location"
SETTINGS = {
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
        'ScramLoginModule required username="broker" password="b-secret";'
    ),
    "sasl.scram.bootstrap.users": "SCRAM-SHA-256=[name=broker,password=b-secret]",
    "connections.max.reauth.ms": str(REAUTH_MS),
    "connection.failed.authentication.delay.ms": "5",
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:broker",
}


def login(brokers: SecuredBrokers, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": brokers.ca,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def set_password(admin: Admin, user: str, password: str) -> None:
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user=user, password=Secret(password))])


class Guest:
    """A producer of another principal that writes all the time, and what became of each message."""

    def __init__(self, bootstrap: str, settings: dict[str, str]) -> None:
        self.outcomes: list[BarnabasError | None] = []
        self._ended = Event()
        self._thread = Thread(target=self._run, args=(bootstrap, settings))
        self._thread.start()

    def _run(self, bootstrap: str, settings: dict[str, str]) -> None:
        with Producer(bootstrap, config=settings, retries=0) as producer:
            while not self._ended.is_set():
                try:
                    producer.send("guests", b"guest").result(PATIENCE_S)
                except BarnabasError as error:
                    self.outcomes.append(error)
                else:
                    self.outcomes.append(None)
                self._ended.wait(0.02)

    def wait_for_outcome(self, *, allowed: bool) -> None:
        wait_for(lambda: self.outcomes and (self.outcomes[-1] is None) is allowed, PATIENCE_S)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)


def test_certificates_passwords_and_acls_change_under_load_without_a_lost_or_doubled_message(tmp_path: Path) -> None:
    brokers = SecuredBrokers(tmp_path)
    bootstrap = brokers.bootstrap(secure=True)
    administrator = login(brokers, "broker", "b-secret")
    load = Load("orders", "billing")
    guest: Guest | None = None
    try:
        for number in (1, 2, 3):
            brokers.start(number, ("SASL_SSL",), SETTINGS)
        with Admin(bootstrap, config=administrator) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
            admin.create_topic("guests", partitions=1, replication_factor=3)
            for user in ("writer", "reader", "guest"):
                set_password(admin, user, f"{user}-1")
            rights = [
                acl("writer", "WRITE", "topic:orders"),
                acl("reader", "READ", "topic:orders"),
                acl("reader", "READ", "group:billing"),
                acl("guest", "WRITE", "topic:guests"),
            ]
            admin.create_acls(rights)
            load.start(bootstrap, login(brokers, "writer", "writer-1"), login(brokers, "reader", "reader-1"))
            load.wait_for_more()
            guest = Guest(bootstrap, login(brokers, "guest", "guest-1"))
            guest.wait_for_outcome(allowed=True)

            # Certificates: the file is replaced, and AlterConfigs has it read at once. Old connections continue.
            for number in (1, 2, 3):
                path = brokers.renew(number)
                admin.alter_configs(ResourceKind.BROKER, str(number), {LOCATION: path})
                wait_for(partial(brokers.has_logged, number, "reloaded its certificates"), PATIENCE_S)
                load.wait_for_more()

            # ACLs of another principal, and of the same ones.
            for _ in range(3):
                admin.delete_acls([AclBindingFilter(principal="User:guest")])
                guest.wait_for_outcome(allowed=False)
                admin.create_acls(
                    [acl("guest", "WRITE", "topic:guests"), acl("reader", "DESCRIBE", "cluster:kafka-cluster")]
                )
                guest.wait_for_outcome(allowed=True)
                admin.delete_acls([AclBindingFilter(principal="User:reader", resource_type=ResourceType.CLUSTER)])
                load.wait_for_more()
            denied = [outcome for outcome in guest.outcomes if outcome is not None]
            assert {error.code for error in denied if isinstance(error, ApiError)} == {
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }
            assert len(denied) == sum(isinstance(error, ApiError) for error in denied)
            began = [before is None and after is not None for before, after in pairwise(guest.outcomes)]
            assert sum(began) == 3  # denied only in between

            # A password: connected clients continue with the old one until their session ends, so they move later.
            set_password(admin, "writer", "writer-2")
            load.pause()
            load.start(bootstrap, login(brokers, "writer", "writer-2"), login(brokers, "reader", "reader-1"))
            load.wait_for_more()
            with (
                pytest.raises(AuthenticationError),
                Admin(bootstrap, config=login(brokers, "writer", "writer-1")) as old,
            ):
                old.list_topics()

            # A removed user loses its connections when its sessions end.
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user="guest")])
            wait_for(lambda: isinstance(guest.outcomes[-1], AuthenticationError), PATIENCE_S)
            guest.stop()
            load.wait_for_more()
            wait_in_sync(bootstrap, administrator, "orders", "guests", "__consumer_offsets")
        admin_reader = login(brokers, "reader", "reader-1")
        load.finish(bootstrap, admin_reader)
    finally:
        if guest is not None:
            guest.stop()
        load.abandon()
        brokers.stop()
