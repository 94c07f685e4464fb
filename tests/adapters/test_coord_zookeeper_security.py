"""Sessions with a real ZooKeeper by TLS and SASL, and the ACLs of their nodes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from support.coordination_server import ignore
from support.ports import free_port
from support.zookeeper_server import ZookeeperServer

from barnabas import Broker
from barnabas.app.compose.coordination import client_coordination, zookeeper_security
from barnabas.ports.coordination import Coordination, CoordinationError, CreateNode, SetNode
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret
from barnabas.testing.contracts.coordination_harness import Recorder, Watch, exists, wait_until

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("zookeeper")]
PASSWORD = "s3cret-of-broker"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = f'{MODULE} required username="broker" password="{PASSWORD}";'


class SecuredServer:
    """A ZooKeeper with a port in the open and one with TLS, and two users by DIGEST-MD5."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority, other = trustme.CA(), trustme.CA()
        self.authority, self.foreign = folder / "ca.pem", folder / "foreign.pem"
        authority.cert_pem.write_to_path(self.authority)
        other.cert_pem.write_to_path(self.foreign)
        server_certificate = authority.issue_cert("localhost", "127.0.0.1")
        key = load_pem_private_key(server_certificate.private_key_pem.bytes(), None)  # Java reads PKCS#8 only
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem += b"".join(each.bytes() for each in server_certificate.cert_chain_pems)
        (folder / "server.pem").write_bytes(pem)
        self.client = folder / "client.pem"
        authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(self.client)
        (folder / "jaas.conf").write_text(
            f'Server {{ {MODULE} required user_broker="{PASSWORD}" user_other="else"; }};\n'
        )
        self.secure_port = free_port()
        self.server = ZookeeperServer(
            folder / "server",
            properties=[
                f"-Djava.security.auth.login.config={folder / 'jaas.conf'}",
                "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            ],
            settings=[
                f"secureClientPort={self.secure_port}",
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                f"ssl.keyStore.location={folder / 'server.pem'}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={self.authority}",
                "ssl.trustStore.type=PEM",
                "ssl.clientAuth=want",
            ],
        )

    def url(self, chroot: str, *, tls: bool = False) -> str:
        return f"zookeeper://localhost:{self.secure_port if tls else self.server.port}{chroot}"

    def tls(self, **more: object) -> dict[str, object]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.authority),
            "zookeeper.ssl.truststore.type": "PEM",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def open(self, url: str, settings: Mapping[str, object], timeout_ms: int = 20_000) -> Coordination:
        return client_coordination(url, settings=settings, connect_timeout_ms=timeout_ms, report=ignore)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    found = SecuredServer(tmp_path_factory.mktemp("zookeeper"))
    found.server.start()
    try:
        found.server.wait_ready()
        yield found
    finally:
        found.server.stop()


@pytest.fixture
def anonymous(secured: SecuredServer) -> Iterator[KazooClient]:
    client = KazooClient(f"127.0.0.1:{secured.server.port}")
    client.start()
    yield client
    client.stop()
    client.close()


def test_session_by_tls_and_digest_works_as_one_in_the_open(secured: SecuredServer) -> None:
    settings = {**secured.tls(), "zookeeper.sasl.jaas.config": LOGIN}
    with closing(secured.open(secured.url("/tls", tls=True), settings)) as session:
        session.create("/big", bytes(1_000_000))
        paths = [f"/many/{number}" for number in range(300)]
        for first in range(0, 300, 30):
            session.commit([CreateNode(path, b"x" * 300) for path in paths[first : first + 30]])
        found = session.get_many([*paths, "/big"])  # many answers in one record of TLS, and one in many
        assert [len(node.data) for node in found if node] == [300] * 300 + [1_000_000]
        changed: Recorder[Any] = Recorder()
        session.watch_below("/many", changed)
        watch = Watch(session, "/many/7")
        session.commit([SetNode("/many/7", b"y"), SetNode("/many/8", b"z")])
        watch.wait(b"y", [])
        wait_until(lambda: {path for each in changed.calls for path in each} >= {"/many/7", "/many/8"})
        assert session.heartbeat() == 6000
        session.create("/alive", ephemeral=True)
    with closing(secured.open(secured.url("/tls"), {})) as session:
        assert not exists(session, "/alive")


@pytest.mark.slow
def test_session_survives_a_cut_connection_with_tls_and_login(secured: SecuredServer) -> None:
    settings = {**secured.tls(), "zookeeper.sasl.jaas.config": LOGIN, "zookeeper.set.acl": "true"}
    with closing(secured.open(secured.url("/cut", tls=True), settings)) as session:
        session.create("/alive", ephemeral=True)
        session._client.drop_connection()  # type: ignore[attr-defined]
        wait_until(lambda: _is_readable(session, "/alive"))
        session.set("/alive", b"still mine")


def _is_readable(session: Coordination, path: str) -> bool:
    try:
        return exists(session, path)
    except CoordinationError:
        return False


def test_nodes_of_a_user_are_closed_to_others_and_secrets_even_to_readers(
    secured: SecuredServer, anonymous: KazooClient
) -> None:
    settings = {"zookeeper.sasl.jaas.config": LOGIN, "zookeeper.set.acl": "true"}
    with closing(secured.open(secured.url("/closed"), settings)) as session:
        session.create("/barnabas/topics/orders", b"1")
        session.commit([CreateNode("/barnabas/security/users/alice", b"stored key")])
        session.create("/barnabas/config/brokers/1", b"{}")
        session.create("/barnabas/brokers/ids/1", b"1", ephemeral=True)
        assert anonymous.get("/closed/barnabas/topics/orders")[0] == b"1"
        assert anonymous.get("/closed/barnabas/brokers/ids/1")[0] == b"1"
        for secret in ("security", "security/users", "security/users/alice", "config/brokers", "config/brokers/1"):
            with pytest.raises(NoAuthError):
                anonymous.get(f"/closed/barnabas/{secret}")
            with pytest.raises(NoAuthError):
                anonymous.get_children(f"/closed/barnabas/{secret}")
        writes: list[Callable[[], object]] = [
            lambda: anonymous.set("/closed/barnabas/topics/orders", b"mine"),
            lambda: anonymous.delete("/closed/barnabas/topics/orders"),
            lambda: anonymous.create("/closed/barnabas/topics/other"),
            lambda: anonymous.create("/closed/other"),
            lambda: anonymous.delete("/closed/barnabas/brokers/ids/1"),
            lambda: anonymous.set_acls("/closed/barnabas/topics/orders", OPEN_ACL_UNSAFE),
        ]
        for write in writes:
            with pytest.raises(NoAuthError):
                write()
        anonymous.create("/closed/consumers/group/ids", makepath=True)  # as in Kafka, whose consumers are of others
        with (
            closing(secured.open(secured.url("/closed"), {"zookeeper.sasl.jaas.config": _login("other", "else")})) as o,
            pytest.raises(CoordinationError, match="the ACL of the node does not allow it"),
        ):
            o.set("/barnabas/topics/orders", b"2")
    with closing(secured.open(secured.url("/closed"), settings)) as again:
        again.set("/barnabas/topics/orders", b"2")
        assert again.get("/barnabas/security/users/alice").data == b"stored key"


def _login(user: str, password: str) -> str:
    return f'DigestLoginModule required username="{user}" password="{password}";'


def test_certificate_is_an_identity_for_acls(secured: SecuredServer, anonymous: KazooClient) -> None:
    settings = secured.tls(zookeeper_ssl_keystore_location=str(secured.client), zookeeper_set_acl="true")
    with closing(secured.open(secured.url("/x509", tls=True), settings)) as session:
        session.create("/barnabas/topics/orders", b"1")
        session.set("/barnabas/topics/orders", b"2")
        (acl, _world), _ = anonymous.get_acls("/x509/barnabas/topics/orders")
        assert acl.id.scheme == "x509"
        with pytest.raises(NoAuthError):
            anonymous.set("/x509/barnabas/topics/orders", b"3")


@pytest.mark.parametrize(("user", "password"), [("broker", "wrong"), ("nobody", "x")])
def test_login_that_is_refused_is_an_error_at_once_without_the_password(
    secured: SecuredServer, user: str, password: str
) -> None:
    with pytest.raises(CoordinationError, match=f"the login of {user} is refused; see zookeeper.sasl") as caught:
        secured.open(secured.url("/x"), {"zookeeper.sasl.jaas.config": _login(user, password)}, 60_000)
    assert password not in str(caught.value).split()


def test_server_certificate_of_a_foreign_authority_is_refused(secured: SecuredServer) -> None:
    settings = secured.tls(zookeeper_ssl_truststore_location=str(secured.foreign))
    text = ""
    for timeout_ms in (1500, 30_000):  # a busy machine may need more than the first for one handshake
        with pytest.raises(CoordinationError, match="no ZooKeeper answers") as caught:
            secured.open(secured.url("/x", tls=True), settings, timeout_ms)
        text = str(caught.value)
        if "last: " in text:
            break
    assert "certificate verify failed" in text


def test_server_certificate_for_another_host_is_refused_unless_the_check_is_off(tmp_path: Path) -> None:
    settings = {"zookeeper.ssl.client.enable": True, "zookeeper.ssl.protocol": "TLSv1.3"}
    from barnabas.app.config.coordination_keys import read_coordination_settings

    for algorithm, checks in (("HTTPS", True), ("", False)):
        found = read_coordination_settings({**settings, "zookeeper.ssl.endpoint.identification.algorithm": algorithm})
        encrypt = zookeeper_security(found).encrypt
        assert encrypt is not None
        assert encrypt.__self__._context.check_hostname is checks  # type: ignore[attr-defined]


def test_acl_without_an_identity_is_refused_before_a_connection() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl=true needs an identity"):
        client_coordination("zookeeper://localhost:1", settings={"zookeeper.set.acl": "true"})


@pytest.mark.parametrize(
    ("jaas", "problem"),
    [
        ("com.example.Other required;", "the login module com.example.Other is not known"),
        ('DigestLoginModule required username="u";', "has no option password"),
    ],
)
def test_login_module_that_cannot_be_used_is_refused(jaas: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        client_coordination("zookeeper://localhost:1", settings={"zookeeper.sasl.jaas.config": jaas})


def test_login_comes_from_the_environment_where_no_setting_has_it(
    secured: SecuredServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_ZOOKEEPER_SASL_JAAS_CONFIG", _login("broker", "wrong"))
    with pytest.raises(CoordinationError, match="the login of broker is refused"):
        secured.open(secured.url("/x"), {})


def test_broker_and_classic_consumer_share_a_secured_zookeeper(
    secured: SecuredServer, anonymous: KazooClient, tmp_path: Path
) -> None:
    from barnabas import ConsumerConnector, Producer

    url = secured.url("/cluster", tls=True)
    security = {**secured.tls(), "zookeeper.sasl.jaas.config": Secret(LOGIN)}
    with ExitStack() as closing_all:
        broker = Broker(
            config={
                "log.dirs": str(tmp_path),
                "listeners": "kafka://127.0.0.1:0,classic://127.0.0.1:0",
                "coordination": url,
                "zookeeper.set.acl": True,
                **security,
            }
        )
        closing_all.enter_context(broker)
        producer = closing_all.enter_context(
            Producer(zk_connect=url.removeprefix("zookeeper://"), config={**security}, producer_type="sync")
        )
        producer.send("orders", b"one")
        consumer = closing_all.enter_context(
            ConsumerConnector(config={"groupid": "g", "zk.connect": url.removeprefix("zookeeper://"), **security})
        )
        (stream,) = consumer.create_message_streams({"orders": 1})["orders"]
        assert next(iter(stream)).value == b"one"
        children = anonymous.get_children("/cluster/brokers/ids")
        assert len(children) == 1
        with pytest.raises(NoAuthError):
            anonymous.delete(f"/cluster/brokers/ids/{children[0]}")
        with pytest.raises(NoAuthError):
            anonymous.create("/cluster/barnabas/security", b"mine")
