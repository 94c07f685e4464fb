"""GSSAPI with a real KDC: our clients, kafka-python, and brokers among themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka_python import KafkaProducer
from support.kerberos import REALM, Kdc

from barnabas import Admin, Broker, Producer
from barnabas.ports.errors import BarnabasError, ConfigError
from barnabas.testing import TestCluster

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("kerberos")]
SERVICE = f"kafka/localhost@{REALM}"
PATIENCE_S = 120


class Realm:
    """A running KDC, and the keytabs of the service and of two users."""

    def __init__(self, kdc: Kdc) -> None:
        self.kdc = kdc
        self.service, self.alice, self.bob = kdc.add("kafka/localhost"), kdc.add("alice"), kdc.add("bob")

    def broker(self, folder: Path, **more: object) -> Broker:
        config = {
            "listeners": "SASL_PLAINTEXT://localhost:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": self.login(SERVICE, self.service),
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:alice",
            **more,
        }
        return Broker(folder, config=config)

    def login(self, principal: str, keytab: Path) -> str:
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        return f'{module} keyTab="{keytab}" principal="{principal}";'

    def client(self, jaas: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
        }


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with pytest.MonkeyPatch.context() as patched:
        for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE", "KRB5CCNAME"):
            patched.setenv(name, "")
        kdc = Kdc(tmp_path_factory.mktemp("kdc"))
        kdc.start()
        try:
            kdc.wait_ready()
            yield Realm(kdc)
        finally:
            kdc.stop()


def _port(broker: Broker) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def test_user_with_a_keytab_is_the_principal_of_its_ticket_and_another_is_refused(realm: Realm, tmp_path: Path) -> None:
    with realm.broker(tmp_path) as broker:
        bootstrap = f"localhost:{_port(broker)}"
        with Producer(bootstrap, config=realm.client(realm.login(f"alice@{REALM}", realm.alice))) as producer:
            assert producer.send("t", b"x").result(PATIENCE_S).offset == 0
        with (
            Producer(bootstrap, config=realm.client(realm.login(f"bob@{REALM}", realm.bob))) as stranger,
            pytest.raises(BarnabasError, match="AUTHORIZATION_FAILED"),
        ):
            stranger.send("t", b"x").result(PATIENCE_S)


def test_kafka_python_and_ours_use_the_ticket_cache(realm: Realm, tmp_path: Path) -> None:
    realm.kdc.log_in("alice", realm.alice)
    with realm.broker(tmp_path) as broker:
        bootstrap = f"localhost:{_port(broker)}"
        theirs = KafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
            sasl_kerberos_domain_name="localhost",
        )
        assert theirs.send("t", b"x").get(PATIENCE_S).offset == 0
        theirs.close()
        with Producer(bootstrap, config=realm.client("Krb5LoginModule required useTicketCache=true;")) as producer:
            assert producer.send("t", b"y").result(PATIENCE_S).offset == 1


def test_rules_make_the_user_of_the_principal(realm: Realm, tmp_path: Path) -> None:
    rules = f"RULE:[1:$1@$0](bob@{REALM})s/.*/alice/"
    with realm.broker(tmp_path, **{"sasl.kerberos.principal.to.local.rules": rules}) as broker:
        bootstrap = f"localhost:{_port(broker)}"
        with Producer(bootstrap, config=realm.client(realm.login(f"bob@{REALM}", realm.bob))) as producer:
            assert producer.send("t", b"x").result(PATIENCE_S).offset == 0
        with (
            pytest.raises(BarnabasError, match=r"no rule of sasl.kerberos.principal.to.local.rules"),
            Admin(bootstrap, config=realm.client(realm.login(f"alice@{REALM}", realm.alice))) as admin,
        ):
            admin.describe_cluster()


def test_ticket_for_another_service_is_an_error_with_the_reason(realm: Realm, tmp_path: Path) -> None:
    with realm.broker(tmp_path) as broker:
        settings = {**realm.client(realm.login(f"alice@{REALM}", realm.alice)), "sasl.kerberos.service.name": "other"}
        with (
            pytest.raises(BarnabasError, match=r"Kerberos: .*Server .*not found in Kerberos database"),
            Admin(f"localhost:{_port(broker)}", config={**settings, "default.api.timeout.ms": 5000}) as admin,
        ):
            admin.describe_cluster()


def test_brokers_replicate_with_tickets(realm: Realm) -> None:
    scope = "listener.name.sasl_plaintext.gssapi"
    settings: dict[str, object] = {
        "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1](kafka)s/kafka/broker/,DEFAULT",
        f"{scope}.sasl.jaas.config": realm.login(f"kafka/127.0.0.1@{REALM}", realm.kdc.add("kafka/127.0.0.1")),
    }
    with (
        TestCluster(2, settings, security="sasl_plaintext", users={"admin": "secret"}) as cluster,
        cluster.producer(user="admin", acks="all") as producer,
    ):
        assert producer.send("t", b"x").result(PATIENCE_S).offset == 0


@pytest.mark.parametrize(
    ("jaas", "problem"),
    [
        ('Krb5LoginModule required keyTab="k";', "has no option principal with the realm"),
        (
            f'Krb5LoginModule required principal="other/localhost@{REALM}";',
            "is not of sasl.kerberos.service.name=kafka",
        ),
        (f'Krb5LoginModule required keyTab="/missing" principal="{SERVICE}";', "the keytab /missing cannot be read"),
    ],
)
def test_login_module_that_cannot_be_used_stops_the_start(
    realm: Realm, tmp_path: Path, jaas: str, problem: str
) -> None:
    key = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    with pytest.raises(ConfigError, match=problem), realm.broker(tmp_path, **{key: jaas}):
        pass
