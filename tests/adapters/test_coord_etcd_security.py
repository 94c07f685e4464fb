"""Sessions with a real etcd by TLS, with a user and password, and with a certificate as the user."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from aetcd import rpc
from support.coordination_server import ignore
from support.etcd_server import EtcdServer
from support.waiting import PATIENCE_S, with_enough_time

from barnabas import Broker
from barnabas.app.compose.coordination import client_coordination
from barnabas.ports.coordination import Coordination, CoordinationError, CreateNode, SessionState
from barnabas.ports.errors import ConfigError
from barnabas.testing.contracts.coordination_harness import Recorder, Watch, exists, wait_until

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]
PASSWORD = "s3cret-of-broker"
ROOT = "s3cret-of-root"
TOKEN_TTL_S = 1


class Certificates:
    """An authority, a server's certificate, and those of clients by their common names."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._authority = trustme.CA()
        self.authority = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.authority)
        self.foreign = folder / "foreign.pem"
        trustme.CA().cert_pem.write_to_path(self.foreign)
        self.write("server", "127.0.0.1", "localhost")
        self.write("broker", "broker.example", common_name="broker")

    def write(self, name: str, *hosts: str, common_name: str | None = None) -> None:
        issued = self._authority.issue_cert(*hosts, common_name=common_name)
        issued.private_key_pem.write_to_path(self.path(name, "key"))
        self.path(name, "pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))

    def path(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"

    def settings(self, **more: str) -> dict[str, object]:
        return {"etcd.cacert": str(self.authority), **{f"etcd.{name}": value for name, value in more.items()}}

    def of_client(self, name: str) -> dict[str, str]:
        return {"cert": str(self.path(name, "pem")), "key": str(self.path(name, "key"))}

    def credentials(self, client: str) -> grpc.ChannelCredentials:
        files = (self.authority, self.path(client, "key"), self.path(client, "pem"))
        return grpc.ssl_channel_credentials(*(each.read_bytes() for each in files))

    def flags(self, *, mutual: bool) -> list[str]:
        server = ["--cert-file", str(self.path("server", "pem")), "--key-file", str(self.path("server", "key"))]
        return [*server, *(["--client-cert-auth", "--trusted-ca-file", str(self.authority)] if mutual else [])]


def _enable_users(server: EtcdServer) -> None:
    """A user of brokers, who may read and write below /cluster only, and a stranger without a right."""
    with server.channel() as channel:
        auth = rpc.AuthStub(channel)
        auth.UserAdd(rpc.AuthUserAddRequest(name="root", password=ROOT), timeout=30)
        auth.RoleAdd(rpc.AuthRoleAddRequest(name="root"), timeout=30)
        auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"), timeout=30)
        auth.RoleAdd(rpc.AuthRoleAddRequest(name="brokers"), timeout=30)
        permission = rpc.Permission(permType=rpc.Permission.READWRITE, key=b"/cluster/", range_end=b"/cluster0")
        auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="brokers", perm=permission), timeout=30)
        for name, password in (("broker", PASSWORD), ("stranger", "other")):
            auth.UserAdd(rpc.AuthUserAddRequest(name=name, password=password), timeout=30)
        auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="broker", role="brokers"), timeout=30)
        auth.AuthEnable(rpc.AuthEnableRequest(), timeout=30)


def _jwt_flags(folder: Path) -> list[str]:
    for command in (
        ["openssl", "genrsa", "-out", str(folder / "jwt.key"), "2048"],
        ["openssl", "rsa", "-in", str(folder / "jwt.key"), "-pubout", "-out", str(folder / "jwt.pub")],
    ):
        subprocess.run(command, check=True, capture_output=True)
    files = f"pub-key={folder / 'jwt.pub'},priv-key={folder / 'jwt.key'}"
    return ["--auth-token", f"jwt,{files},sign-method=RS256,ttl={TOKEN_TTL_S}s"]


@pytest.fixture(scope="module", params=["simple", "jwt"])
def users(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd with users, whose tokens live for a second."""
    folder = tmp_path_factory.mktemp("etcd")
    flags = ["--auth-token-ttl", str(TOKEN_TTL_S)] if request.param == "simple" else _jwt_flags(folder)
    server = EtcdServer(folder / "server", flags=flags)
    server.start()
    try:
        server.wait_ready()
        _enable_users(server)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "all")


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd with TLS that asks for certificates, whose common names are its users."""
    folder = tmp_path_factory.mktemp("etcd") / "server"
    server = EtcdServer(folder, credentials=certificates.credentials("broker"), flags=certificates.flags(mutual=True))
    server.start()
    try:
        server.wait_ready()
        _enable_users(server)
        yield server
    finally:
        server.stop()


def open_session(server: EtcdServer, settings: Mapping[str, object], timeout_ms: int = 20_000) -> Coordination:
    url = f"etcd://127.0.0.1:{server.port}/cluster"
    return client_coordination(
        url, settings=settings, session_timeout_ms=60_000, connect_timeout_ms=timeout_ms, report=ignore
    )


def _use(session: Coordination) -> None:
    changed: Recorder[Any] = Recorder()
    session.watch_below("/top", changed)
    watch = Watch(session, "/top/a")
    session.commit([CreateNode("/top/a", b"1"), CreateNode("/top/b", bytes(1_000_000))])
    watch.wait(b"1", [])
    wait_until(lambda: {path for each in changed.calls for path in each or ()} >= {"/top/a", "/top/b"})
    session.create("/top/alive", ephemeral=True)
    assert session.heartbeat() > 0
    assert session.children("/top") == ["a", "alive", "b"]
    for path in ("/top/a", "/top/b", "/top/alive"):
        session.delete(path)


def test_session_of_a_user_who_may_use_its_prefix_only(users: EtcdServer) -> None:
    with closing(open_session(users, {"etcd.user": "broker", "etcd.password": PASSWORD})) as session:
        _use(session)


def test_token_that_expires_is_renewed_and_the_session_lasts(users: EtcdServer) -> None:
    with closing(open_session(users, {"etcd.user": "broker", "etcd.password": PASSWORD})) as session:
        states: Recorder[SessionState] = Recorder()
        session.add_session_listener(states)
        session.create("/lasting", ephemeral=True)
        watch = Watch(session, "/lasting")
        first = _token(session)
        until = time.monotonic() + 120
        while _token(session) == first and time.monotonic() < until:
            assert session.heartbeat() > 0
            time.sleep(TOKEN_TTL_S * 1.8)  # longer than an unused token lives
        session.set("/lasting", b"1")
        watch.wait(b"1", [])
        assert _token(session) != first
        assert states.calls == []
        session.delete("/lasting")


def _token(session: Any) -> str:
    return str(session._keeper.link()._login._token)


def test_change_of_the_users_does_not_end_a_session(users: EtcdServer) -> None:
    with closing(open_session(users, {"etcd.user": "broker", "etcd.password": PASSWORD})) as session:
        session.create("/before")
        with users.channel() as channel:
            auth = rpc.AuthStub(channel)
            _call_as_root(auth, auth.UserAdd, rpc.AuthUserAddRequest(name="new", password="n"))
            _call_as_root(auth, auth.UserDelete, rpc.AuthUserDeleteRequest(name="new"))
        session.set("/before", b"after")  # etcd says that the revision of its users is old
        session.delete("/before")


def _call_as_root(auth: Any, method: Callable[..., Any], request: Any) -> None:
    """A token lives for a second: on a busy machine it may be over before the call."""
    until = time.monotonic() + PATIENCE_S
    while True:
        token = auth.Authenticate(rpc.AuthenticateRequest(name="root", password=ROOT), timeout=30).token
        try:
            method(request, timeout=30, metadata=(("token", token),))
            return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED or time.monotonic() > until:
                raise


def test_wrong_password_is_an_error_at_once_that_does_not_quote_it(users: EtcdServer) -> None:
    with pytest.raises(CoordinationError, match=r"refused the login of etcd\.user=broker") as caught:
        open_session(users, {"etcd.user": "broker", "etcd.password": "wr0ng-one"}, 120_000)
    assert "wr0ng-one" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("settings", [{}, {"etcd.user": "stranger", "etcd.password": "other"}])
def test_session_without_a_right_is_refused(users: EtcdServer, settings: dict[str, object]) -> None:
    def open_without_right(limit_ms: int) -> None:
        refusal = r"no etcd answers .* last: .*(permission denied|user name is empty)"
        with pytest.raises(CoordinationError, match=refusal):
            open_session(users, settings, limit_ms)

    with_enough_time(open_without_right, 1500)


def test_user_at_an_etcd_without_users_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    server = EtcdServer(
        tmp_path / "server", credentials=certificates.credentials("broker"), flags=certificates.flags(mutual=False)
    )
    server.start()
    try:
        server.wait_ready()
        with pytest.raises(CoordinationError, match="authentication is not enabled"):
            open_session(server, {**certificates.settings(), "etcd.user": "broker", "etcd.password": PASSWORD}, 60_000)
        with closing(open_session(server, certificates.settings())) as session:
            _use(session)
        foreign = {"etcd.cacert": str(certificates.foreign)}
        for settings in (foreign, {}, {"etcd.insecure.transport": "false"}):
            with pytest.raises(CoordinationError, match="no etcd answers"):
                open_session(server, settings, 1500)
    finally:
        server.stop()


def test_certificate_is_the_user_where_etcd_asks_for_it(certificates: Certificates, mutual: EtcdServer) -> None:
    with closing(open_session(mutual, certificates.settings(**certificates.of_client("broker")))) as session:
        _use(session)
    with pytest.raises(CoordinationError, match="no etcd answers"):
        open_session(mutual, certificates.settings(), 1500)


@pytest.mark.slow
def test_renewed_certificate_is_used_by_the_next_connection(certificates: Certificates, mutual: EtcdServer) -> None:
    certificates.write("renewed", "broker.example", common_name="stranger")
    settings = certificates.settings(**certificates.of_client("renewed"))

    def open_without_right(limit_ms: int) -> None:
        with pytest.raises(CoordinationError, match="permission denied"):
            open_session(mutual, settings, limit_ms)

    with_enough_time(open_without_right, 1500)
    certificates.write("renewed", "broker.example", common_name="broker")
    with closing(open_session(mutual, settings)) as session:
        _use(session)


def test_broker_with_a_user_and_tls_serves_and_shows_no_password(
    certificates: Certificates, mutual: EtcdServer, tmp_path: Path
) -> None:
    settings = {**certificates.settings(**certificates.of_client("broker"))}
    url = f"etcd://127.0.0.1:{mutual.port}/cluster"
    with Broker(tmp_path, config={"coordination": url, "listeners": "kafka://127.0.0.1:0", **settings}) as broker:
        assert exists(broker.node.coordination, "/barnabas/cluster/id")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"etcd.user": "u"}, "etcd.user=u needs etcd.password"),
        ({"etcd.password": "p"}, "etcd.password is set, and etcd.user is not"),
        ({"etcd.cert": "c"}, "etcd.key is not set, though etcd.cert is"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        client_coordination("etcd://localhost:1", settings=settings)


def test_user_and_password_in_the_url_are_refused_and_not_quoted() -> None:
    with pytest.raises(ConfigError, match=r"'etcd://\[hidden\]@localhost:1' has a user or password") as caught:
        client_coordination("etcd://broker:s3cret@localhost:1")
    assert "s3cret" not in str(caught.value)


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(CoordinationError, match=f"{missing} cannot be read, for the TLS of etcd: No such file"):
        client_coordination("etcd://localhost:1", settings={"etcd.cacert": str(missing)}, connect_timeout_ms=500)
