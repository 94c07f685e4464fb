"""A secured broker with the clients that a test asks for: TLS, users of each mechanism, ACLs."""

import base64
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from joserfc import jwt
from joserfc.jwk import ECKey
from support.kafka_server import KafkaServer
from support.kerberos import REALM, Kdc
from support.waiting import wait_for

from barnabas.app.certificates import DevelopmentAuthority
from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.admin.users import UserScramCredentialUpsertion
from barnabas.app.embedded_broker import Broker
from barnabas.ports.broker_api.acls import AclBinding, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.values import Secret

from .logins import SERVICE, STORE_PASSWORD, WAYS, Login, Way, krb5_login
from .model import Client, Unavailable

_TOKEN_LIFE_S = 3600
_PASSWORD = "wonder=land 1"
_PROTOCOLS = {
    "open": "PLAINTEXT",
    "tls": "SSL",
    "mutual": "SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "sasl_ssl": "SASL_SSL",
}
_GSSAPI = {"gssapi_sasl_plaintext": "SASL_PLAINTEXT", "gssapi_sasl_ssl": "SASL_SSL"}
"""At localhost, the host in the broker's principal, and with no other mechanism."""
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SCRAM = _MECHANISMS[1:3]
_MODULES = "org.apache.kafka.common.security"
_OAUTH = "org.apache.kafka.sasl.oauthbearer.allowed"
_TOKEN_OWNER = WAYS["delegation-token"].user


Serve = Callable[[Path, Mapping[str, str]], AbstractContextManager[Mapping[str, str]]]


class Issuer:
    """Signs OAuth tokens, and gives them by HTTP to the client that names their user, whatever its secret."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ECKey.generate_key("P-256", {"kid": "k1"})
        self.keys = folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.ends_s = time.time() + _TOKEN_LIFE_S
        self._strangers = ECKey.generate_key("P-256", {"kid": "k1"})
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                token = issuer.token(login.partition(":")[0]).read_text(encoding="ascii")
                answer = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": _TOKEN_LIFE_S})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                """The test does not need it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="compatibility-issuer")
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def token(self, user: str) -> Path:
        """Return the file with the token of a user; that of "stranger" is signed by a key unknown to the broker."""
        file = self._folder / f"{user}.jwt"
        if not file.exists():
            key = self._strangers if user == "stranger" else self._key
            times = {"iat": int(time.time()), "exp": int(self.ends_s)}
            claims = {"sub": user, "scope": "kafka", "iss": "test", **times}
            file.write_text(jwt.encode({"alg": "ES256", "kid": "k1"}, claims, key))
        return file

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Realm:
    """A KDC with the principals of the broker, of the user of GSSAPI, and of a stranger."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        """Raises `Unavailable` where the KDC or gssapi is not installed."""
        self._folder = folder / "kdc"
        self._folder.mkdir()
        before = {name: os.environ.get(name) for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE", "KRB5CCNAME")}
        cleanup.callback(_restore_environment, before)
        try:
            self._kdc = Kdc(self._folder)
        except pytest.skip.Exception as error:
            raise Unavailable(str(error)) from error
        self._kdc.start()
        cleanup.callback(self._kdc.stop)
        self._kdc.wait_ready()
        broker = f"{SERVICE}/localhost"
        self._keytabs = {user: self._kdc.add(user) for user in (broker, WAYS["sasl_ssl-gssapi"].user, "stranger")}
        self.broker_login = krb5_login(f"{broker}@{REALM}", self._keytabs[broker])

    def log_in(self, login: Login, user: str) -> Login:
        """Return the login with the user's keytab; clients that use the ticket cache find the ticket there."""
        self._kdc.log_in(user, self._keytabs[user])
        return attrs.evolve(login, name=f"{user}@{REALM}", keytab=self._keytabs[user])


def _restore_environment(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class SecuredWorld:
    """Clients are made when they are first asked for, and kept; each topic and group belongs to one user."""

    def __init__(self, folder: Path, makers: Mapping[str, Callable[[str], Client]], serve: Serve | None = None) -> None:
        """`serve` starts another broker than ours with these settings."""
        self._makers = makers
        self._clients: dict[str, Client] = {}
        self._unavailable: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._open = ExitStack()
        own, foreign = DevelopmentAuthority(folder / "own"), DevelopmentAuthority(folder / "foreign")
        self._authority, self._certificate = own.path, own.issue("certified", [], 1).path
        self._foreign_authority, self._foreign_certificate = foreign.path, foreign.issue("certified", [], 1).path
        try:
            self._issuer = Issuer(folder)
            self._open.callback(self._issuer.close)
            certificate = own.issue("broker", ["localhost", "127.0.0.1"], 1).path
            settings = _broker_settings(certificate, own.path, self._issuer)
            self._realm: _Realm | Unavailable = Unavailable("this broker is not in a Kerberos realm")
            if serve is None:
                try:
                    self._realm = _Realm(folder, self._open)
                    settings |= _kerberos_settings(self._realm)
                except Unavailable as error:
                    self._realm = error
            self._bootstraps = self._open.enter_context((serve or serve_barnabas)(folder, settings))
            self._add_admin()
            with Admin(self._bootstraps["sasl_ssl"], config=self._own_settings(_TOKEN_OWNER, _SCRAM[0])) as owner:
                self._delegation_token = owner.create_delegation_token()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """All clients, then the broker."""
        self._open.close()

    def client(self, key: str, login: Login) -> Client:
        """Return the client with this login. Raises `Unavailable` at each call."""
        if key in self._unavailable:
            raise Unavailable(self._unavailable[key])
        if key not in self._clients:
            try:
                client = self._makers[key](self._bootstraps["open"])
            except Unavailable as error:
                self._unavailable[key] = str(error)
                raise
            self._clients[key] = client
            self._open.callback(client.close)
        self._clients[key].log_in(login)
        return self._clients[key]

    def _add_admin(self) -> None:
        """The super user, and the users of SCRAM."""
        self.admin = Admin(self._bootstraps["sasl_ssl"], config=self._own_settings("admin", "PLAIN"))
        self._open.callback(self.admin.close)
        for user, mechanism in (*((each.lower(), each) for each in _SCRAM), (_TOKEN_OWNER, _SCRAM[0])):
            change = UserScramCredentialUpsertion(user=user, password=Secret(_PASSWORD), mechanism=mechanism)
            self.admin.alter_user_scram_credentials([change])
            wait_for(lambda user=user: user in self.admin.describe_user_scram_credentials())  # type: ignore[misc]  # of a lambda with defaults

    def name(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def topic(self, user: str) -> str:
        """Create a topic that this user alone may write and read."""
        name = self.name("topic")
        self.admin.create_topic(name)
        self._allow(user, ResourceType.TOPIC, name, Operation.WRITE, Operation.READ)
        return name

    def group(self, user: str) -> str:
        """Return the name of a group that this user alone may join."""
        name = self.name("group")
        self._allow(user, ResourceType.GROUP, name, Operation.READ)
        return name

    def _allow(self, user: str, kind: ResourceType, name: str, *operations: Operation) -> None:
        self.admin.create_acls(
            AclBinding(resource_type=kind, resource_name=name, principal=f"User:{user}", operation=operation)
            for operation in operations
        )

    def login(self, way: Way) -> Login:
        """Return the login of the user of this method. Raises `Unavailable` for GSSAPI without a KDC."""
        if way.mechanism == "GSSAPI" and isinstance(self._realm, Unavailable):
            raise Unavailable(str(self._realm))
        login = Login(way=way, bootstrap=self._bootstraps[way.listener])
        if way.protocol.endswith("SSL"):
            login = attrs.evolve(login, authority=self._authority, authority_store=_trust_store(self._authority))
        if way.is_mutual:
            login = attrs.evolve(login, certificate=self._certificate, keystore=_key_store(self._certificate))
        if way.is_token:
            token = self._delegation_token
            return attrs.evolve(login, name=token.token_id, secret=base64.b64encode(token.hmac.value).decode())
        if way.mechanism == "OAUTHBEARER":
            return self._with_token(login, way.user)
        if way.mechanism == "GSSAPI":
            return self._with_ticket(login, way.user)
        return attrs.evolve(login, name=way.user, secret=_PASSWORD) if way.mechanism else login

    def wrong_login(self, way: Way) -> Login:
        """Return the same login with a wrong password, a token or keytab of a stranger, or a foreign certificate."""
        login = self.login(way)
        if way.mechanism == "OAUTHBEARER":
            return self._with_token(login, "stranger")
        if way.mechanism == "GSSAPI":
            return self._with_ticket(login, "stranger")
        if way.mechanism:
            return attrs.evolve(login, secret=base64.b64encode(b"wrong" * 12).decode())
        if way.is_mutual:
            store = _key_store(self._foreign_certificate)
            return attrs.evolve(login, certificate=self._foreign_certificate, keystore=store)
        store = _trust_store(self._foreign_authority)
        return attrs.evolve(login, authority=self._foreign_authority, authority_store=store)

    def _with_ticket(self, login: Login, user: str) -> Login:
        assert isinstance(self._realm, _Realm)
        return self._realm.log_in(login, user)

    def _with_token(self, login: Login, user: str) -> Login:
        file, ends_s = self._issuer.token(user), self._issuer.ends_s
        return attrs.evolve(
            login, name=user, secret="any", token_file=file, token_ends_s=ends_s, token_url=self._issuer.url
        )

    def _own_settings(self, user: str, mechanism: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self._authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": _PASSWORD,
        }


def _broker_settings(certificate: Path, authority: Path, issuer: Issuer) -> dict[str, str]:
    """Return the settings of a broker, ours or Apache Kafka's, without its listeners."""
    known = " ".join(f'user_{user}="{_PASSWORD}"' for user in ("plain", "admin"))
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/",
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.keys}",
        "sasl.oauthbearer.expected.issuer": "test",
        "org.apache.kafka.sasl.oauthbearer.allowed.files": str(issuer.keys),
        "delegation.token.secret.key": "secret of the tokens",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = (
            f"{_MODULES}.plain.PlainLoginModule required {known};"
        )
    return settings


def _kerberos_settings(realm: _Realm) -> dict[str, str]:
    """Return the settings of the broker for the listeners of GSSAPI. The stranger has no user's name."""
    settings = {
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.principal.to.local.rules": f"RULE:[1:$1@$0](gssapi@{REALM})s/@.*//",
    }
    for name in _GSSAPI:
        settings |= {
            f"listener.name.{name}.sasl.enabled.mechanisms": "GSSAPI",
            f"listener.name.{name}.gssapi.sasl.jaas.config": realm.broker_login,
        }
    return settings


@contextmanager
def serve_barnabas(_: Path, settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Our broker, in this process; the address of each listener."""
    kerberos = _GSSAPI if "sasl.kerberos.service.name" in settings else {}
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in (_PROTOCOLS | kerberos).items())
    listeners = [f"{name}://127.0.0.1:0" for name in _PROTOCOLS] + [f"{name}://localhost:0" for name in kerberos]
    config = {**settings, "listener.security.protocol.map": protocols}
    with Broker(storage="memory", listeners=listeners, config=config) as broker:
        addresses = [listener.partition("://")[2] for listener in broker.listeners]
        yield dict(zip(_PROTOCOLS | kerberos, addresses, strict=True))


@contextmanager
def serve_kafka(folder: Path, settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Apache Kafka's broker; the address of each listener. Skips the test where it cannot be had."""
    login = f'username="admin" password="{_PASSWORD}" user_admin="{_PASSWORD}" user_plain="{_PASSWORD}"'
    plain, scram = f"{_MODULES}.plain.PlainLoginModule", f"{_MODULES}.scram.ScramLoginModule"
    oauth = f"{_MODULES}.oauthbearer.OAuthBearer"
    more = {
        **settings,
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    }
    for name in ("sasl_plaintext", "sasl_ssl", "controller"):
        more[f"listener.name.{name}.plain.sasl.jaas.config"] = f"{plain} required {login};"
    for name in ("sasl_plaintext", "sasl_ssl"):
        more |= {
            **{f"listener.name.{name}.{each.lower()}.sasl.jaas.config": f"{scram} required;" for each in _SCRAM},
            f"listener.name.{name}.oauthbearer.sasl.jaas.config": f"{oauth}LoginModule required;",
            f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class": (
                f"{oauth}ValidatorCallbackHandler"
            ),
        }
    keys = settings["sasl.oauthbearer.jwks.endpoint.url"]
    java = [f"-D{_OAUTH}.urls={keys}", f"-D{_OAUTH}.files={keys.removeprefix('file://')}"]
    listeners = {**_PROTOCOLS, "controller": "SASL_PLAINTEXT"}
    server = KafkaServer(folder, listeners=listeners, more=more, java=java)
    server.start()
    try:
        server.wait_ready()
        yield server.bootstraps
    finally:
        server.stop()


def _trust_store(authority: Path) -> Path:
    """Return the PKCS#12 store with the authority."""
    store = authority.with_suffix(".p12")
    if not store.exists():
        certificates = [pkcs12.PKCS12Certificate(each, b"ca") for each in _certificates(authority)]
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        store.write_bytes(pkcs12.serialize_java_truststore(certificates, encryption))
    return store


def _key_store(file: Path) -> Path:
    """Return the PKCS#12 store with the private key and the chain of the file."""
    store = file.with_suffix(".p12")
    if not store.exists():
        key = load_pem_private_key(file.read_bytes(), None)
        own, *others = _certificates(file)
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        store.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, own, others, encryption))  # type: ignore[arg-type]  # of any kind
    return store


def _certificates(file: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(file.read_bytes())
