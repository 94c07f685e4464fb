"""SASL over the Kafka protocol: the states of a server's connection, and our client against it."""

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kafka_frames import ServerEnd, header, request_frame, result_of
from support.kafka_pair import HandScheduler, PairTransport, ScriptedBroker, joined
from support.kafka_samples import SAMPLES
from support.long_tests import examples

from barnabas.adapters.system import ManualClock
from barnabas.adapters.wire_kafka import KafkaLink, KafkaServer, connect_kafka
from barnabas.adapters.wire_kafka.authentication import ServerAuthentication
from barnabas.adapters.wire_kafka.sasl import SASL_AUTHENTICATE, SASL_BY_KEY, SASL_HANDSHAKE
from barnabas.core.security.sasl.client import ClientAuthenticator
from barnabas.core.security.sasl.exchange import ServerExchange
from barnabas.core.security.sasl.plain import PlainClient, PlainServerExchange, PlainUsers
from barnabas.core.security.sasl.scram import (
    ScramClient,
    ScramCredentials,
    ScramServerExchange,
    credential_of,
    salted_password,
)
from barnabas.core.security.sasl.server_authenticator import AuthenticationContext, SaslListener, SaslMechanism
from barnabas.ports.broker_api.envelope import ANONYMOUS, Caller, Principal
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.sasl import SaslAuthenticate, SaslHandshake
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.scheduler import Outcome
from barnabas.ports.transport import AuthenticationError, Limits, TransportError
from barnabas.ports.values import Secret

METADATA, VERSIONS = 3, 18
DELAY_MS = 100.0
ALICE, WRONG = b"\0alice\0wonder", b"\0alice\0wrong"
SCRAM = "SCRAM-SHA-256"
SALTED = salted_password(SCRAM, "wonder", b"salt", 4096)
USERS = PlainUsers({"alice": Secret("wonder"), "bob": Secret("builder")})


def _plain() -> ServerExchange:
    return PlainServerExchange(USERS)


def _scram() -> ServerExchange:
    stored = credential_of(SCRAM, SALTED, b"salt", 4096)
    found = ScramCredentials(
        SCRAM,
        of_user=lambda user: stored if user == "alice" else None,
        of_token=lambda _: None,
        pretended=Secret(b"k"),
    )
    return ScramServerExchange(found, "server-nonce")


class Clock(ManualClock):
    """The clock of a `HandScheduler`."""

    def __init__(self, scheduler: HandScheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def monotonic_ms(self) -> float:
        return self._scheduler.now_ms


class Workers(HandScheduler):
    """A scheduler with work off its thread, which ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Callable[[], None]] = []

    def offload(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        self.work.append(lambda: done(Outcome.of(work)))


class SaslEnd(ServerEnd):
    """A server's connection that demands an authentication; `listener` changes its settings."""

    def __init__(
        self, *, make_plain: Callable[[], ServerExchange] = _plain, max_reauth_ms: int = 0, **more: Any
    ) -> None:
        self.scheduler = Workers()
        listener = SaslListener(
            mechanisms={
                "PLAIN": SaslMechanism(make_exchange=make_plain, max_reauth_ms=max_reauth_ms),
                SCRAM: SaslMechanism(make_exchange=_scram, max_reauth_ms=max_reauth_ms),
            },
            failed_delay_ms=DELAY_MS,
            **more,
        )
        super().__init__(
            lambda _: SAMPLES[METADATA].result,
            authentication=ServerAuthentication(
                listener=listener, scheduler=self.scheduler, clock=Clock(self.scheduler)
            ),
        )

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        self.send(sasl_frame(17, version, 5, SaslHandshake(mechanism=mechanism)))
        return sasl_result(17, version, self.answers[-1])

    def authenticate(self, token: bytes, version: int = 1) -> None:
        self.send(sasl_frame(36, version, 6, SaslAuthenticate(auth_bytes=token)))

    def ask(self) -> None:
        """Send a request of the broker."""
        self.send(request_frame(METADATA, 12, 9, SAMPLES[METADATA].request))

    def last(self, version: int = 1) -> Any:
        return sasl_result(36, version, self.answers[-1])

    def pass_time(self, delay_ms: float) -> None:
        self.scheduler.advance(delay_ms)
        while self.connection.step():
            pass

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed


def is_open(end: SaslEnd) -> bool:
    return not end.connection.is_closed


def sasl_frame(key: int, version: int, correlation_id: int, request: Any) -> bytes:
    api = SASL_BY_KEY[key]
    writer = api.writer(version)
    writer.out += header(key, version, correlation_id)
    if version >= api.flexible_from:
        writer.end()
    api.request.write(writer, version, request)
    return joined(writer.pieces())


def sasl_result(key: int, version: int, frame: bytes) -> Any:
    api = SASL_BY_KEY[key]
    reader = api.reader(version, memoryview(frame), 4, 1000)
    if version >= api.flexible_from:
        reader.skip_tags()
    result = api.result.read(reader, version)
    assert reader.position == len(frame)
    return result


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_login_gives_requests_their_principal(version: int) -> None:
    end = SaslEnd()
    end.send(header(VERSIONS, 0, 1))
    assert end.handshake().error is ErrorCode.NONE
    end.authenticate(ALICE, version)
    result = end.last(version)
    assert (result.error, result.auth_bytes, result.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
    end.ask()
    assert [caller.principal for caller in end.broker.callers] == [Principal("User", "alice")]
    assert end.connection.frame_bytes_max is None


def test_unauthenticated_frames_are_limited() -> None:
    assert SaslEnd(max_receive_bytes=77).connection.frame_bytes_max == 77


def test_raw_tokens_follow_handshake_version_0() -> None:
    end = SaslEnd()
    assert end.handshake(version=0).mechanisms == ["PLAIN", SCRAM]
    end.send(ALICE)
    assert end.answers[-1] == b""
    end.ask()
    assert end.broker.callers[0].principal == Principal("User", "alice")


def test_wrong_raw_token_closes_without_a_word() -> None:
    end = SaslEnd()
    end.handshake(version=0)
    end.send(WRONG)
    assert is_open(end)
    end.pass_time(DELAY_MS)
    assert end.is_closed
    assert len(end.answers) == 1


def test_wrong_password_is_answered_after_the_delay() -> None:
    end = SaslEnd()
    end.handshake()
    end.authenticate(WRONG)
    end.ask()  # not read
    assert len(end.answers) == 1
    end.pass_time(DELAY_MS - 1)
    assert len(end.answers) == 1
    end.pass_time(1)
    assert end.last().error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert end.last().error_message == "Authentication failed: Invalid username or password"
    assert end.is_closed
    assert end.broker.requests == []
    assert "wrong" not in " ".join(end.reports)


def test_mechanism_that_is_not_enabled_is_refused() -> None:
    end = SaslEnd()
    end.send(sasl_frame(17, 1, 5, SaslHandshake(mechanism="GSSAPI")))
    end.pass_time(DELAY_MS)
    result = sasl_result(17, 1, end.answers[-1])
    assert (result.error, result.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", SCRAM])
    assert end.is_closed


@pytest.mark.parametrize("key", [0, 1, METADATA, 36])
def test_request_before_the_handshake_closes_without_an_answer(key: int) -> None:
    end = SaslEnd()
    if key == 36:
        end.authenticate(ALICE)
    else:
        version = 11
        end.send(request_frame(key, version, 1, SAMPLES[key].at(version).request))
    assert end.is_closed
    assert end.answers == []
    assert end.broker.requests == []


def test_second_api_versions_closes_the_connection() -> None:
    end = SaslEnd()
    end.send(header(VERSIONS, 99, 1))  # an unknown version may be corrected
    end.send(header(VERSIONS, 0, 2))
    assert len(end.answers) == 2
    end.send(header(VERSIONS, 0, 3))
    assert end.is_closed
    assert len(end.answers) == 2


def test_request_during_the_exchange_is_answered_in_its_own_form() -> None:
    end = SaslEnd()
    end.handshake()
    end.ask()
    end.pass_time(DELAY_MS)
    result = result_of(METADATA, 12, end.answers[-1])
    assert {topic.error for topic in result.topics} == {ErrorCode.ILLEGAL_SASL_STATE}
    assert end.is_closed
    assert end.broker.requests == []


@pytest.mark.parametrize("version", [0, 2, 3])
def test_api_versions_during_the_exchange_is_refused(version: int) -> None:
    end = SaslEnd()
    end.handshake()
    end.send(header(VERSIONS, version, 3) + (b"\0\2x\2x\0" if version == 3 else b""))
    end.pass_time(DELAY_MS)
    assert end.answers[-1][4:6] == pack(">h", ErrorCode.ILLEGAL_SASL_STATE)
    assert end.is_closed


def test_second_handshake_is_refused() -> None:
    end = SaslEnd()
    end.handshake()
    end.send(sasl_frame(17, 1, 5, SaslHandshake(mechanism="PLAIN")))
    end.pass_time(DELAY_MS)
    assert sasl_result(17, 1, end.answers[-1]).error is ErrorCode.ILLEGAL_SASL_STATE
    assert end.is_closed


def test_authentication_of_authenticated_client_is_refused_without_a_close() -> None:
    end = SaslEnd()
    end.handshake()
    end.authenticate(ALICE)
    end.authenticate(ALICE)
    assert end.last().error is ErrorCode.ILLEGAL_SASL_STATE
    assert end.handshake().error is ErrorCode.ILLEGAL_SASL_STATE
    end.ask()
    assert len(end.broker.requests) == 1


def test_sasl_on_a_listener_without_it_is_illegal() -> None:
    end = ServerEnd(lambda _: SAMPLES[METADATA].result)
    end.send(sasl_frame(17, 1, 5, SaslHandshake(mechanism="PLAIN")))
    assert sasl_result(17, 1, end.answers[-1]).error is ErrorCode.ILLEGAL_SASL_STATE
    assert not end.connection.is_closed


def test_session_ends_and_continues_after_reauthentication() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    assert end.last().session_lifetime_ms == 10_000
    end.pass_time(10_001)
    assert is_open(end)  # idle
    assert end.handshake().error is ErrorCode.NONE
    end.authenticate(ALICE)
    assert end.last().session_lifetime_ms == 10_000
    end.ask()
    assert len(end.broker.requests) == 1
    end.pass_time(10_001)
    answers = len(end.answers)
    end.ask()
    assert end.is_closed
    assert len(end.answers) == answers
    assert end.reports == []


def test_request_during_reauthentication_is_refused() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    end.handshake()
    end.ask()
    end.pass_time(DELAY_MS)
    result = result_of(METADATA, 12, end.answers[-1])
    assert {topic.error for topic in result.topics} == {ErrorCode.ILLEGAL_SASL_STATE}
    assert end.is_closed


def test_reauthentication_twice_in_a_second_is_refused() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    assert end.handshake().error is ErrorCode.NONE
    end.authenticate(ALICE)
    assert end.handshake().error is ErrorCode.ILLEGAL_SASL_STATE
    end.pass_time(1000)
    assert end.handshake().error is ErrorCode.NONE


def test_principal_cannot_change_during_reauthentication() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    end.handshake()
    end.authenticate(b"\0bob\0builder")
    end.pass_time(DELAY_MS)
    assert end.last().error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in end.last().error_message
    assert end.is_closed


def test_mechanism_cannot_change_during_reauthentication() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    assert end.handshake(SCRAM).error is ErrorCode.NONE
    end.authenticate(b"n,,n=alice,r=x")
    end.pass_time(DELAY_MS)
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in end.last().error_message
    assert end.is_closed


def test_pending_requests_are_answered_before_a_reauthentication() -> None:
    end = SaslEnd(max_reauth_ms=10_000)
    end.handshake()
    end.authenticate(ALICE)
    end.broker.script = None
    end.ask()
    end.send(sasl_frame(17, 1, 5, SaslHandshake(mechanism="PLAIN")))
    assert len(end.answers) == 2
    end.broker.replies[0](SAMPLES[METADATA].result)
    end.pass_time(0)
    assert len(end.answers) == 4
    assert sasl_result(17, 1, end.answers[-1]).error is ErrorCode.NONE


class Directory:
    """A hook that knows one password and may fail."""

    def authenticate(self, user: str, password: str) -> bool:
        if user == "broken":
            raise RuntimeError(f"no connection for {password}")
        return (user, password) == ("carol", "x")


@pytest.mark.parametrize(
    ("token", "is_valid"), [(b"\0carol\0x", True), (b"\0carol\0y", False), (b"\0broken\0x", False)]
)
def test_authenticator_hook_is_asked_off_the_thread(token: bytes, is_valid: bool) -> None:
    end = SaslEnd(make_plain=lambda: PlainServerExchange(PlainUsers({}), Directory()))
    end.handshake()
    end.authenticate(token)
    end.ask()  # waits with the connection
    assert len(end.answers) == 1
    end.scheduler.work.pop()()
    end.pass_time(DELAY_MS)
    assert (end.broker.requests != []) is is_valid
    assert end.is_closed is not is_valid
    if not is_valid:
        assert end.last().error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "no connection" not in end.last().error_message


def test_connection_closed_during_offloaded_work_is_forgotten() -> None:
    end = SaslEnd(make_plain=lambda: PlainServerExchange(PlainUsers({}), Directory()))
    end.handshake()
    end.authenticate(b"\0carol\0x")
    end.connection.is_closed = True
    end.connection.step()
    end.scheduler.work.pop()()
    assert len(end.answers) == 1


def test_principal_builder_makes_the_principal() -> None:
    def build(context: AuthenticationContext) -> Principal:
        assert (context.mechanism, context.host, context.listener) == ("PLAIN", "198.51.100.7", "PLAIN")
        if context.principal.name == "bob":
            raise RuntimeError("wonder")
        return Principal("Team", context.principal.name[0])

    end = SaslEnd(build_principal=build)
    end.handshake()
    end.authenticate(ALICE)
    end.ask()
    assert end.broker.callers[0].principal == Principal("Team", "a")
    end = SaslEnd(build_principal=build)
    end.handshake()
    end.authenticate(b"\0bob\0builder")
    end.pass_time(DELAY_MS)
    assert end.last().error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wonder" not in end.last().error_message


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(st.binary(min_size=1, max_size=60), st.sampled_from(
    [
        header(VERSIONS, 0, 1),
        sasl_frame(17, 0, 2, SaslHandshake(mechanism="PLAIN")),
        sasl_frame(17, 1, 2, SaslHandshake(mechanism=SCRAM)),
        sasl_frame(36, 1, 3, SaslAuthenticate(auth_bytes=WRONG)),
        sasl_frame(36, 2, 3, SaslAuthenticate(auth_bytes=b"n,,n=alice,r=x")),
        request_frame(METADATA, 12, 4, SAMPLES[METADATA].request),
    ]
)), max_size=6))  # fmt: skip
def test_any_frames_without_a_password_never_reach_the_broker(frames: list[bytes]) -> None:
    end = SaslEnd()
    for frame in frames:
        end.send(frame)
        end.pass_time(DELAY_MS)
    assert end.broker.requests == []


class Pair:
    """Our client connected to our server."""

    def __init__(self, make_client: Callable[[str], ClientAuthenticator] | None, *, max_reauth_ms: int = 0) -> None:
        self.transport = PairTransport()
        self.scheduler = HandScheduler()
        self.broker = ScriptedBroker(lambda _: SAMPLES[METADATA].result)
        self.opened: list[KafkaLink | TransportError] = []
        listener = SaslListener(
            mechanisms={
                "PLAIN": SaslMechanism(make_exchange=_plain, max_reauth_ms=max_reauth_ms),
                SCRAM: SaslMechanism(make_exchange=_scram, max_reauth_ms=max_reauth_ms),
            }
        )
        clock = Clock(self.scheduler)
        server = KafkaServer(
            self.broker,
            listener="L",
            report=lambda _: None,
            authentication=ServerAuthentication(listener=listener, scheduler=self.scheduler, clock=clock),
        )
        self.transport.listen(("b", 1), server.accept, Limits())
        connect_kafka(
            self.transport,
            self.scheduler,
            ("b", 1),
            client_id="c",
            request_timeout_ms=30_000,
            connect_timeout_ms=10_000,
            opened=self.opened.append,
            sasl=make_client,
        )
        self.run()

    def run(self, delay_ms: float = 0) -> None:
        self.transport.run()
        self.scheduler.advance(delay_ms)
        self.transport.run()

    def ask(self) -> list[Any]:
        link = self.opened[0]
        results: list[Any] = []
        assert isinstance(link, KafkaLink)
        link.submit(Metadata(topics=None), Caller(), results.append)
        self.run()
        return results


@pytest.mark.parametrize(
    "make",
    [
        lambda _: PlainClient("alice", Secret("wonder")),
        lambda _: ScramClient(SCRAM, "alice", Secret("wonder"), "nonce"),
    ],
)
def test_our_client_logs_in_and_again_before_the_session_ends(make: Callable[[str], ClientAuthenticator]) -> None:
    pair = Pair(make, max_reauth_ms=10_000)
    assert len(pair.ask()) == 1
    for _ in range(5):
        pair.run(9_000)
        pair.run(900)
        assert len(pair.ask()) == 1
    assert {caller.principal for caller in pair.broker.callers} == {Principal("User", "alice")}
    assert isinstance(pair.opened[0], KafkaLink)
    assert pair.opened[0].is_open


def test_requests_wait_during_our_reauthentication() -> None:
    pair = Pair(lambda _: PlainClient("alice", Secret("wonder")), max_reauth_ms=10_000)
    link = pair.opened[0]
    results: list[Any] = []
    assert isinstance(link, KafkaLink)
    pair.scheduler.advance(9_000)  # the handshake is sent
    link.submit(Metadata(topics=None), Caller(), results.append)
    assert results == []
    pair.run()
    assert len(results) == 1
    assert link.is_open


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: PlainClient("alice", Secret("wrong")), "Invalid username or password"),
        (lambda _: ScramClient(SCRAM, "alice", Secret("wrong"), "nonce"), "invalid credentials"),
        (lambda _: ScramClient("SCRAM-SHA-512", "alice", Secret("wrong"), "nonce"), "it enables PLAIN, SCRAM-SHA-256"),
    ],
)
def test_our_client_learns_why_it_is_refused(make: Callable[[str], ClientAuthenticator], reason: str) -> None:
    pair = Pair(make)
    pair.run(DELAY_MS)
    (error,) = pair.opened
    assert isinstance(error, AuthenticationError)
    assert reason in str(error)
    assert "wrong" not in str(error)


def test_client_without_sasl_is_not_served() -> None:
    pair = Pair(None)
    assert isinstance(pair.ask()[0], TransportError)
    assert pair.broker.requests == []


def test_plaintext_callers_stay_anonymous() -> None:
    end = ServerEnd(lambda _: SAMPLES[METADATA].result)
    end.send(request_frame(METADATA, 12, 1, SAMPLES[METADATA].request))
    assert end.broker.callers == [evolve(end.broker.callers[0], principal=ANONYMOUS)]


def test_messages_of_the_exchange_hide_their_bytes() -> None:
    assert "wonder" not in repr(SaslAuthenticate(auth_bytes=ALICE))
    assert (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key) == (17, 36)
