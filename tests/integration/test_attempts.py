"""A table of attempts: each is refused with Kafka's code, while a neighbour's produce continues."""

import datetime
import hmac
import json
import socket
import ssl
import struct
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import trustme
from joserfc import jwt
from joserfc.jwk import RSAKey
from support.authorization_cases import CASES, Case, codes
from support.certificates import authority, certificate, chain, pem
from support.raw import frame
from support.sasl_connection import SaslConnection
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.adapters.system import SystemEntropy
from barnabas.adapters.wire_kafka.table import BY_REQUEST
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.security.sasl.client import new_nonce
from barnabas.core.security.sasl.plain import PlainClient
from barnabas.core.security.sasl.scram import ScramClient
from barnabas.ports.broker_api.acls import AclBinding, CreateAcls, ResourceType
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.quotas import AlterClientQuotas, DescribeClientQuotas, QuotaAlteration, QuotaOp
from barnabas.ports.broker_api.tokens import CreateDelegationToken, RenewDelegationToken
from barnabas.ports.broker_api.topics import CreateTopics, DeleteTopics, NewTopic
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.ports.values import Secret

pytestmark = pytest.mark.xdist_group("attempts")

SECRETS = {"admin": "secret-of-admin", "alice": "secret-of-alice"}
RECEIVE_MAX = 20_000
SESSION_MS = 400
LONG_SESSION_MS = 3_600_000
FLOOD = 300
BROKER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,STRICT://127.0.0.1:0,BRIEF://127.0.0.1:0",
    "listener.security.protocol.map": (
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,STRICT:SASL_PLAINTEXT,BRIEF:SASL_PLAINTEXT"
    ),
    "listener.name.strict.sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.strict.connections.max.reauth.ms": str(LONG_SESSION_MS),
    "listener.name.brief.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.brief.connections.max.reauth.ms": str(SESSION_MS),
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.server.max.receive.size": str(RECEIVE_MAX),
    "connection.failed.authentication.delay.ms": "20",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "secret-of-tokens",
    "sasl.scram.bootstrap.users": "SCRAM-SHA-256=[name=alice,password=secret-of-alice]",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": pem(certificate("127.0.0.1").private_key_pem),
    "ssl.keystore.certificate.chain": chain(certificate("127.0.0.1")),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": pem(authority().cert_pem),
    "ssl.client.auth": "required",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'PlainLoginModule required username="admin" password="secret-of-admin" '
        + " ".join(f'user_{user}="{password}"' for user, password in SECRETS.items())
        + ";"
    ),
}
WITHOUT_STRICT = {**BROKER, "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": SECRETS["admin"],
}


class Neighbour:
    """An authenticated producer and a consumer that never stop."""

    def __init__(self, bootstrap: str) -> None:
        self.produced = self.fetched = 0
        self.error: BaseException | None = None
        self._stop = Event()
        self._bootstrap = bootstrap
        self._threads = [Thread(target=self._run, args=(work,)) for work in (self._produce, self._fetch)]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.error = error

    def _produce(self) -> None:
        with Producer(self._bootstrap, config=ADMIN, linger_ms=0) as producer:
            while not self._stop.is_set():
                producer.send("t", b"%d" % self.produced).result(PATIENCE_S)
                self.produced += 1

    def _fetch(self) -> None:
        with Consumer(self._bootstrap, config=ADMIN, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            while not self._stop.is_set():
                if consumer.poll(0.1) is not None:
                    self.fetched += 1

    def check_progress(self) -> None:
        """Return once two more messages are acknowledged, and two more are fetched."""
        produced, fetched = self.produced + 2, self.fetched + 2
        until = time.monotonic() + PATIENCE_S
        while (self.produced < produced or self.fetched < fetched) and self.error is None and time.monotonic() < until:
            time.sleep(0.005)
        assert self.error is None
        assert self.produced >= produced
        assert self.fetched >= fetched

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@cache
def signing_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("oauth") / "keys.json"
    keys.write_text(json.dumps({"keys": [signing_key("right").as_dict(private=False)]}))
    oauth = {
        "listener.name.strict.sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "org.apache.kafka.sasl.oauthbearer.allowed.files": str(keys),
    }
    with Broker(storage="memory", config={**BROKER, **oauth}) as running:
        with Admin(running.bootstrap, config=ADMIN) as admin:
            admin.create_topic("t")
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Broker]:
    """A broker that gives little time to authenticate."""
    with Broker(storage="memory", config={**WITHOUT_STRICT, "connection.authentication.timeout.ms": "200"}) as running:
        yield running


@pytest.fixture(scope="module")
def neighbour(broker: Broker) -> Iterator[Neighbour]:
    made = Neighbour(broker.bootstrap)
    made.check_progress()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def undisturbed(neighbour: Neighbour) -> Iterator[None]:
    yield
    neighbour.check_progress()


@pytest.fixture
def connection(broker: Broker) -> Iterator[SaslConnection]:
    with SaslConnection(broker.bootstrap) as made:
        yield made


def plain(user: str, password: str) -> PlainClient:
    return PlainClient(user, Secret(password))


def scram(user: str, password: str, *, is_token: bool = False) -> ScramClient:
    nonce = new_nonce(SystemEntropy())
    return ScramClient("SCRAM-SHA-256", user, Secret(password), nonce, is_token=is_token, salted={})


@pytest.fixture
def strict(broker: Broker) -> Iterator[SaslConnection]:
    """A connection to a listener without PLAIN, whose sessions have an end."""
    with SaslConnection(broker.listeners[2].partition("://")[2]) as made:
        yield made


def alice(connection: SaslConnection) -> SaslConnection:
    assert connection.log_in(plain("alice", SECRETS["alice"])).error is ErrorCode.NONE
    return connection


# --- who it is


@pytest.mark.parametrize(
    "client",
    [
        lambda: plain("alice", "guess"),
        lambda: plain("mallory", SECRETS["alice"]),
        lambda: scram("alice", "guess"),
        lambda: scram("mallory", SECRETS["alice"]),
        lambda: scram("no such token", "aGVsbG8=", is_token=True),
    ],
    ids=["wrong password", "unknown user", "wrong SCRAM password", "unknown SCRAM user", "unknown token"],
)
def test_wrong_credentials_fail_and_close(connection: SaslConnection, client: Callable[[], PlainClient]) -> None:
    result = connection.log_in(client())
    assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not any(secret in (result.error_message or "") for secret in [*SECRETS.values(), "guess"])
    assert connection.closed_by_broker()


def test_salt_of_an_unknown_user_is_the_same_after_a_restart(tmp_path: Path) -> None:
    challenges = []
    for _ in range(2):
        with Broker(tmp_path, config=WITHOUT_STRICT) as restarted, SaslConnection(restarted.bootstrap) as connection:
            connection.handshake("SCRAM-SHA-256")
            challenge = connection.authenticate(scram("mallory", "guess").first()).auth_bytes
            challenges.append(challenge.partition(b",s=")[2])
    assert challenges[0]
    assert challenges[0] == challenges[1]


def test_unknown_mechanism_is_refused_with_those_that_are_enabled(connection: SaslConnection) -> None:
    result = connection.handshake("SCRAM-SHA-512")
    assert (result.error, set(result.mechanisms)) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        {"PLAIN", "SCRAM-SHA-256"},
    )
    assert connection.closed_by_broker()


def test_replayed_scram_exchange_is_refused(broker: Broker) -> None:
    client = scram("alice", SECRETS["alice"])
    recorded: list[bytes] = []
    with SaslConnection(broker.bootstrap) as first:
        first.handshake("SCRAM-SHA-256")
        token: bytes | None = client.first()
        while token is not None:
            recorded.append(token)
            token = client.next(first.authenticate(token).auth_bytes)
    with SaslConnection(broker.bootstrap) as replay:
        replay.handshake("SCRAM-SHA-256")
        results = [replay.authenticate(token).error for token in recorded]
        assert results == [ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED]
        assert replay.closed_by_broker()


def test_plain_where_only_scram_is_enabled_is_refused(strict: SaslConnection) -> None:
    result = strict.handshake("PLAIN")
    assert (result.error, set(result.mechanisms)) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        {"SCRAM-SHA-256", "OAUTHBEARER"},
    )
    assert strict.closed_by_broker()


# --- sessions and tokens


def begin_session(connection: SaslConnection, lifetime_ms: int = LONG_SESSION_MS) -> None:
    """Log in as alice."""
    result = connection.log_in(scram("alice", SECRETS["alice"]))
    assert (result.error, result.session_lifetime_ms) == (ErrorCode.NONE, lifetime_ms)


def test_request_after_the_end_of_the_session_closes_without_an_answer(broker: Broker) -> None:
    with SaslConnection(broker.listeners[3].partition("://")[2]) as connection:
        begin_session(connection, SESSION_MS)
        time.sleep(SESSION_MS / 1000 + 0.05)
        with pytest.raises(ConnectionError):
            connection.ask(Metadata(topics=None))


def test_another_user_in_a_reauthentication_is_refused(strict: SaslConnection) -> None:
    begin_session(strict)
    result = strict.log_in(bearer(claims(sub="admin")))
    assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert strict.closed_by_broker()


def test_another_mechanism_in_a_reauthentication_is_refused(strict: SaslConnection) -> None:
    begin_session(strict)
    result = strict.log_in(bearer(claims(sub="alice")))
    assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "not supported for re-authentication" in (result.error_message or "")
    assert strict.closed_by_broker()


def test_altered_hmac_of_a_delegation_token_is_refused(broker: Broker, connection: SaslConnection) -> None:
    made = alice(connection).ask(CreateDelegationToken())
    assert made.error is ErrorCode.NONE
    altered = Secret(bytes([made.hmac.value[0] ^ 1]) + made.hmac.value[1:])
    renewed = connection.ask(RenewDelegationToken(hmac=altered))
    assert renewed.error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for shown, error in ((altered, ErrorCode.SASL_AUTHENTICATION_FAILED), (made.hmac, ErrorCode.NONE)):
        with SaslConnection(broker.bootstrap) as by_token:
            password = b64encode(shown.value).decode()
            assert by_token.log_in(scram(made.token_id, password, is_token=True)).error is error


def test_expired_delegation_token_is_refused(broker: Broker, connection: SaslConnection) -> None:
    made = alice(connection).ask(CreateDelegationToken(max_lifetime_ms=1))
    assert made.error is ErrorCode.NONE
    wait_for(lambda: time.time() * 1000 > made.max_timestamp_ms)
    renewed = connection.ask(RenewDelegationToken(hmac=made.hmac))
    assert renewed.error is ErrorCode.DELEGATION_TOKEN_EXPIRED
    with SaslConnection(broker.bootstrap) as by_token:
        password = b64encode(made.hmac.value).decode()
        result = by_token.log_in(scram(made.token_id, password, is_token=True))
        assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED


class BearerClient:
    """A client that sends a token; fulfils `ClientAuthenticator`."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, challenge: bytes) -> bytes | None:
        return b"\x01" if challenge else None


def bearer(token: str) -> Any:
    return BearerClient(token)


def claims(**changes: object) -> str:
    """Return a signed token, with these claims changed before it was signed."""
    return signed("right", **changes)


def signed(key: str, **changes: object) -> str:
    now = int(time.time())
    content = {"sub": "alice", "iat": now, "exp": now + 100, **changes}
    return jwt.encode({"alg": "RS256", "kid": "right"}, content, signing_key(key))


def _part(content: object) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def changed_claim() -> str:
    header, body, signature = claims().split(".")
    content = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return f"{header}.{_part({**content, 'sub': 'admin'})}.{signature}"


def unsigned() -> str:
    now = int(time.time())
    return f"{_part({'alg': 'none'})}.{_part({'sub': 'admin', 'iat': now, 'exp': now + 100})}."


def signed_by_the_public_key() -> str:
    now = int(time.time())
    body = f"{_part({'alg': 'HS256', 'kid': 'right'})}.{_part({'sub': 'admin', 'iat': now, 'exp': now + 100})}"
    signature = hmac.digest(signing_key("right").as_pem(private=False), body.encode(), "sha256")
    return f"{body}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
@pytest.mark.parametrize(
    "token",
    [
        unsigned,
        lambda: signed("another"),
        changed_claim,
        signed_by_the_public_key,
        lambda: claims(exp=int(time.time()) - 3600),
        lambda: claims(sub=""),
    ],
    ids=["alg none", "another key", "changed claim", "public key as a secret", "expired", "no user"],
)
def test_bearer_token_that_is_not_as_signed_is_refused(
    broker: Broker, strict: SaslConnection, token: Callable[[], str]
) -> None:
    with SaslConnection(broker.listeners[2].partition("://")[2]) as other:
        assert other.log_in(bearer(claims())).error is ErrorCode.NONE
    result = strict.log_in(bearer(token()))
    assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert strict.closed_by_broker()


def test_exchange_of_another_mechanism_than_agreed_is_refused(connection: SaslConnection) -> None:
    connection.handshake("SCRAM-SHA-256")
    result = connection.authenticate(plain("alice", SECRETS["alice"]).first())
    assert result.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.closed_by_broker()


def test_anonymous_client_gets_no_delegation_token() -> None:
    secret = {"delegation.token.secret.key": "secret-of-tokens"}
    with Broker(storage="memory", config=secret) as unsecured, SaslConnection(unsecured.bootstrap) as connection:
        made = connection.ask(CreateDelegationToken())
        assert made.error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert made.hmac.value == b""


def test_request_without_authentication_gets_no_answer(connection: SaslConnection) -> None:
    with pytest.raises(ConnectionError):
        connection.ask(Metadata(topics=None))


def test_request_during_an_authentication_is_an_illegal_state(connection: SaslConnection) -> None:
    connection.handshake("PLAIN")
    result = connection.ask(Metadata(topics=["t"]), 9)
    assert [topic.error for topic in result.topics] == [ErrorCode.ILLEGAL_SASL_STATE]
    assert connection.closed_by_broker()


# --- what it sends


def test_frame_beyond_the_limit_before_authentication_closes(connection: SaslConnection) -> None:
    connection.send(struct.pack(">i", RECEIVE_MAX + 1) + bytes(100))
    assert connection.closed_by_broker()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 0])
def test_impossible_frame_lengths_close(connection: SaslConnection, size: int) -> None:
    connection.send(struct.pack(">i", size) + bytes(10))
    assert connection.closed_by_broker()


def test_silent_client_is_closed_after_the_time_to_authenticate(impatient: Broker) -> None:
    with SaslConnection(impatient.bootstrap) as connection:
        assert connection.closed_by_broker()


def test_client_that_sends_a_byte_now_and_then_is_closed_too(impatient: Broker) -> None:
    def closes(connection: SaslConnection) -> bool:
        try:
            connection.send(b"\x00")
            return connection.socket.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    with SaslConnection(impatient.bootstrap) as connection:
        connection.send(struct.pack(">i", 1000))
        connection.socket.settimeout(0.02)
        wait_for(lambda: closes(connection))


def test_many_half_open_connections_hinder_no_login(broker: Broker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
        with SaslConnection(broker.bootstrap) as connection:
            assert connection.log_in(plain("alice", SECRETS["alice"])).error is ErrorCode.NONE


def test_burst_of_failed_logins_hinders_no_login(broker: Broker) -> None:
    with ExitStack() as stack:
        guesses = [stack.enter_context(SaslConnection(broker.bootstrap)) for _ in range(50)]
        for guess in guesses:
            guess.handshake("PLAIN")
        with SaslConnection(broker.bootstrap) as connection:
            for guess in guesses:
                assert guess.authenticate(plain("alice", "guess").first()).error
            assert connection.log_in(plain("alice", SECRETS["alice"])).error is ErrorCode.NONE


# --- how it encrypts


def tls_context(leaf: trustme.LeafCert | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pem(authority().cert_pem))
    if leaf is not None:
        leaf.configure_cert(context)
    return context


def is_served(broker: Broker, context: ssl.SSLContext) -> bool:
    """Return True if the broker answers over TLS. TLS 1.3 reports a refused certificate at the first answer."""
    host, _, port = broker.listeners[1].partition("://")[2].rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain_socket,
            context.wrap_socket(plain_socket, server_hostname=host) as wrapped,
        ):
            wrapped.sendall(frame(18, 0, b""))
            return len(wrapped.recv(4)) > 0
    except (ssl.SSLError, ConnectionError):
        return False


def expired() -> trustme.LeafCert:
    return authority().issue_cert("127.0.0.1", not_after=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))


@pytest.mark.parametrize(
    "leaf",
    [lambda: None, lambda: certificate("127.0.0.1", of="foreign"), expired],
    ids=["no certificate", "foreign certificate", "expired certificate"],
)
def test_client_with_a_wrong_certificate_is_not_served(
    broker: Broker, leaf: Callable[[], trustme.LeafCert | None]
) -> None:
    assert is_served(broker, tls_context(certificate("127.0.0.1", common_name="alice")))
    assert not is_served(broker, tls_context(leaf()))


def test_self_signed_certificate_is_not_served(broker: Broker, tmp_path: Path) -> None:
    own = trustme.CA(organization_name="alice herself")
    file = tmp_path / "own.pem"
    own.private_key_pem.write_to_path(str(file))
    own.cert_pem.write_to_path(str(file), append=True)
    context = tls_context(None)
    context.load_cert_chain(file)
    assert not is_served(broker, context)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_downgrade_to_an_old_version_of_tls_is_refused(broker: Broker) -> None:
    context = tls_context(certificate("127.0.0.1", common_name="alice"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert not is_served(broker, context)


def test_server_of_a_foreign_authority_is_refused_by_the_client(broker: Broker) -> None:
    context = ssl.create_default_context(cadata=pem(authority("foreign").cert_pem))
    assert not is_served(broker, context)


def test_plaintext_at_a_tls_listener_is_closed(broker: Broker) -> None:
    with SaslConnection(broker.listeners[1].partition("://")[2]) as connection:
        connection.send(frame(18, 0, b""))
        assert connection.closed_by_broker()


def test_flood_of_connections_hinders_no_handshake_and_no_login(broker: Broker) -> None:
    with ExitStack() as stack:
        for listener in broker.listeners:
            host, _, port = listener.partition("://")[2].rpartition(":")
            for _ in range(FLOOD // 3):
                flood = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
                flood.sendall(b"\x16\x03\x01")
        assert is_served(broker, tls_context(certificate("127.0.0.1", common_name="alice")))
        with SaslConnection(broker.bootstrap) as connection:
            assert connection.log_in(plain("alice", SECRETS["alice"])).error is ErrorCode.NONE


# --- what it may do


def test_forbidden_operations_are_refused_by_item(connection: SaslConnection) -> None:
    ask = alice(connection).ask
    batch = encode_batch([Message(b"forged")], now_ms=1)
    produced = ask(Produce(partitions=[ProducePartition("t", 0, memoryview(batch))]), 9)
    assert produced.partitions[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fetched = ask(Fetch(partitions=[FetchPartition("t", 0, 0, 1000)], max_wait_ms=0), 11)
    assert fetched.partitions[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    created = ask(CreateTopics(topics=[NewTopic(name="mine", partitions=1)]))
    assert created.topics[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    deleted = ask(DeleteTopics(names=["t"]))
    assert deleted.topics[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ask(DescribeClientQuotas(filters=[])).error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    limit = QuotaAlteration(entity={"user": "alice"}, ops=[QuotaOp(key="producer_byte_rate", value=None)])
    altered = ask(AlterClientQuotas(entries=[limit]))
    assert altered.entries[0].error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    acl = AclBinding(
        resource_type=ResourceType.TOPIC, resource_name="t", principal="User:alice", operation=Operation.ALL
    )
    assert ask(CreateAcls(acls=[acl])).results[0].error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_forged_replica_id_is_refused(connection: SaslConnection) -> None:
    request = Fetch(partitions=[FetchPartition("t", 0, 0, 1000)], replica_id=1, max_wait_ms=0)
    fetched = alice(connection).ask(request, 11)
    assert [part.error for part in fetched.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert not any(bytes(part.records) for part in fetched.partitions)


FORGED = [
    case
    for case in CASES
    if getattr(case.request, "replica_id", -1) >= 0
    or getattr(case.request, "verify_only", False)
    or any(operation is Operation.CLUSTER_ACTION for operation, *_ in case.rights)
]


@pytest.mark.parametrize("case", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(FORGED)])
def test_request_that_only_brokers_may_send_is_refused(connection: SaslConnection, case: Case) -> None:
    assert codes(alice(connection).ask(case.request)) == set(case.rights.values())


ANSWERED = [case for case in CASES if type(case.request) in BY_REQUEST]


@pytest.mark.parametrize("case", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(ANSWERED)])
def test_forbidden_operation_of_each_api_is_refused_with_its_code(connection: SaslConnection, case: Case) -> None:
    refused = codes(alice(connection).ask(case.request))
    assert refused
    assert refused <= set(case.rights.values())


def test_forged_transaction_markers_are_refused(connection: SaslConnection) -> None:
    marker = TxnMarker(producer_id=1, producer_epoch=0, committed=True, partitions=[TopicPartition("t", 0)])
    result = alice(connection).ask(WriteTxnMarkers(markers=[marker]))
    assert result.markers[0].partitions[0].error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
