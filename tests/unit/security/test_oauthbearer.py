"""OAUTHBEARER: the conversation of both sides, and the tokens of a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.security.sasl.exchange import Offloaded, SaslAuthenticationError
from barnabas.core.security.sasl.oauthbearer import (
    AccessToken,
    InvalidToken,
    OauthbearerClient,
    OauthbearerServerExchange,
    TokenSource,
    ValidatedToken,
    check_extensions,
)
from barnabas.ports.broker_api.envelope import Principal
from barnabas.ports.errors import BarnabasError, ConfigError
from barnabas.ports.values import Secret


class Validator:
    """Knows one token."""

    def validate(self, token: str) -> ValidatedToken:
        if token != "good":
            raise InvalidToken("it is another one")
        return ValidatedToken(principal_name="alice", expires_at_ms=77)


def evaluate(server: OauthbearerServerExchange, message: bytes) -> bytes:
    answer = server.evaluate(message)
    return answer.then(answer.work()) if isinstance(answer, Offloaded) else answer


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01traceId=1 2\x01\x01",
    ],
)
def test_valid_token_is_its_principal_until_it_expires(message: bytes) -> None:
    server = OauthbearerServerExchange(Validator())
    assert evaluate(server, message) == b""
    assert server.client is not None
    assert (server.client.principal, server.client.expires_at_ms) == (Principal("User", "alice"), 77)


def test_refused_token_is_acknowledged_and_then_an_error() -> None:
    server = OauthbearerServerExchange(Validator())
    assert evaluate(server, b"n,,\x01auth=Bearer bad\x01\x01") == b'{"status":"invalid_token"}'
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        server.evaluate(b"\x01")
    assert server.client is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,auth=Bearer good",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01x=Bearer good\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"p=x,,\x01auth=Bearer good\x01\x01",
    ],
)
def test_wrong_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        evaluate(OauthbearerServerExchange(Validator()), message)


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_any_bytes_are_only_refused(messages: list[bytes]) -> None:
    server = OauthbearerServerExchange(Validator())
    for message in messages:
        with pytest.raises(SaslAuthenticationError):
            evaluate(server, message)


class Tokens:
    """A source of numbered tokens that live 100 s."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.fetched = 0
        self.error: Exception | None = None
        self.lifetime_ms: int | None = 100_000
        self.source = TokenSource(self.fetch, self.clock)

    def fetch(self) -> AccessToken:
        if self.error is not None:
            raise self.error
        self.fetched += 1
        expires = None if self.lifetime_ms is None else self.clock.now_ms() + self.lifetime_ms
        return AccessToken(value=Secret(f"t{self.fetched}"), expires_at_ms=expires)

    def login(self) -> bytes | BarnabasError:
        client = OauthbearerClient(self.source, {"traceId": "7"})
        outcome: list[BarnabasError | None] = []
        client.prepare(self.scheduler, outcome.append)
        self.scheduler.advance(1000)
        (error,) = outcome
        return error or client.first()


def test_token_is_used_until_most_of_its_lifetime_has_passed() -> None:
    tokens = Tokens()
    first = b"n,,\x01auth=Bearer t1\x01traceId=7\x01\x01"
    assert tokens.login() == first
    tokens.scheduler.advance(70_000)
    assert tokens.login() == first
    tokens.scheduler.advance(10_000)
    assert tokens.login() == first.replace(b"t1", b"t2")


def test_token_without_expiry_is_obtained_for_each_login() -> None:
    tokens = Tokens()
    tokens.lifetime_ms = None
    tokens.login()
    tokens.login()
    assert tokens.fetched == 2


def test_failing_refresh_keeps_a_valid_token_and_later_fails() -> None:
    tokens = Tokens()
    tokens.login()
    tokens.error = BarnabasError("the server is away")
    tokens.scheduler.advance(85_000)
    assert isinstance(tokens.login(), bytes)
    tokens.scheduler.advance(20_000)
    assert "the server is away" in str(tokens.login())
    tokens.error = RuntimeError("secret=tiger")
    assert "tiger" not in str(tokens.login())


def test_logins_at_the_same_time_fetch_once() -> None:
    tokens = Tokens()
    got: list[AccessToken | BarnabasError] = []
    for _ in range(3):
        tokens.source.get(tokens.scheduler, got.append)
    tokens.scheduler.advance(1000)
    assert len(got) == 3
    assert tokens.fetched == 1


def test_client_acknowledges_a_refusal() -> None:
    client = OauthbearerClient(Tokens().source, {})
    assert client.next(b'{"status":"invalid_token"}') == b"\x01"
    assert client.next(b"") is None


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}])
def test_extensions_that_the_protocol_cannot_carry_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        check_extensions(extensions, "key")
