"""SCRAM between our client and server, against the vector of RFC 7677, and against altered messages."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.security.sasl.exchange import SaslAuthenticationError
from barnabas.core.security.sasl.scram import (
    HASHES,
    ScramClient,
    ScramCredential,
    ScramCredentials,
    ScramServerExchange,
    TokenCredential,
    credential_of,
    salted_password,
)
from barnabas.ports.broker_api.envelope import Principal
from barnabas.ports.values import Secret

SHA_256 = "SCRAM-SHA-256"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
PASSWORD = "pencil"


def stored(mechanism: str = SHA_256, password: str = PASSWORD) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


CREDENTIALS = {mechanism: stored(mechanism) for mechanism in HASHES}
OWNER = Principal("User", "owner")


def server(
    mechanism: str = SHA_256, nonce: str = SERVER_NONCE, users: tuple[str, ...] = ("user",)
) -> ScramServerExchange:
    credential = CREDENTIALS[mechanism]
    token = TokenCredential(credential=credential, owner=OWNER, expires_at_ms=99)
    found = ScramCredentials(
        mechanism,
        of_user=lambda user: credential if user in users else None,
        of_token=lambda token_id: token if token_id == "token" else None,
        pretended=Secret(b"k" * 32),
    )
    return ScramServerExchange(found, nonce)


def client(
    user: str = "user", password: str = PASSWORD, mechanism: str = SHA_256, *, is_token: bool = False
) -> ScramClient:
    return ScramClient(mechanism, user, Secret(password), CLIENT_NONCE, is_token=is_token)


def test_exchange_of_rfc_7677_has_its_bytes() -> None:
    one, other = client(), server()
    first = one.first()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = other.evaluate(first)
    assert server_first == b"r=" + (CLIENT_NONCE + SERVER_NONCE).encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = one.next(server_first)
    assert final is not None
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    server_final = other.evaluate(final)
    assert server_final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert one.next(server_final) is None
    assert other.client is not None
    assert other.client.principal == Principal("User", "user")
    assert not other.client.is_token_authenticated


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["user", "a,b", "a=b", "=2C", "Jürgen", "with space"])
def test_login_with_any_name_succeeds(mechanism: str, user: str) -> None:
    one, other = client(user, mechanism=mechanism), server(mechanism, users=(user,))
    final = one.next(other.evaluate(one.first()))
    assert final is not None
    assert one.next(other.evaluate(final)) is None
    assert other.client is not None
    assert other.client.principal.name == user


def test_login_by_delegation_token_is_its_owner() -> None:
    one, other = client("token", is_token=True), server()
    final = one.next(other.evaluate(one.first()))
    assert final is not None
    other.evaluate(final)
    assert other.client is not None
    assert other.client.principal == OWNER
    assert other.client.is_token_authenticated
    assert other.client.expires_at_ms == 99


def test_unknown_user_and_wrong_password_fail_alike_at_the_second_message() -> None:
    texts = []
    for name, password in (("nobody", PASSWORD), ("user", "wrong")):
        one, other = client(name, password), server()
        final = one.next(other.evaluate(one.first()))
        assert final is not None
        with pytest.raises(SaslAuthenticationError) as caught:
            other.evaluate(final)
        texts.append(str(caught.value))
        assert other.client is None
        with pytest.raises(SaslAuthenticationError):
            other.evaluate(final)  # a failed exchange stays failed
    assert texts[0] == texts[1]
    assert "wrong" not in texts[1]


def test_salt_of_unknown_user_stays_the_same() -> None:
    answers = {server(nonce="x").evaluate(client("nobody").first()) for _ in range(2)}
    assert len(answers) == 1
    assert answers != {server(nonce="x").evaluate(client("somebody").first())}


def test_replayed_exchange_is_refused() -> None:
    one, other = client(), server()
    first = one.first()
    final = one.next(other.evaluate(first))
    assert final is not None
    other.evaluate(final)
    again = server(nonce="another")
    again.evaluate(first)
    with pytest.raises(SaslAuthenticationError):
        again.evaluate(final)


def test_final_message_that_repeats_the_client_nonce_is_refused() -> None:
    """Librdkafka before 2.6.1 writes this form; Kafka 4 refuses it, too (CVE-2024-56128)."""
    other = server()
    server_first = other.evaluate(client().first()).decode()
    nonce = server_first.partition(",")[0].removeprefix("r=")
    without_proof = f"c=biws,r={CLIENT_NONCE}{nonce}"
    message = f"n=user,r={CLIENT_NONCE},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted_password(SHA_256, PASSWORD, SALT, 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(SaslAuthenticationError):
        other.evaluate(f"{without_proof},p={proof}".encode())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=with space",
        b"n,,n=user,r=" + b"x" * 9000,
    ],
)
def test_invalid_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        server().evaluate(first)


@given(st.data())
def test_altered_final_message_is_refused(data: st.DataObject) -> None:
    one, other = client(), server()
    final = one.next(other.evaluate(one.first()))
    assert final is not None
    place = data.draw(st.integers(0, len(final) - 1))
    altered = bytearray(final)
    altered[place] ^= data.draw(st.integers(1, 255))
    try:
        other.evaluate(bytes(altered))
    except SaslAuthenticationError:
        pass
    else:
        pytest.fail(f"accepted {bytes(altered)!r}")


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_are_only_refused(messages: list[bytes]) -> None:
    other = server()
    for message in messages:
        try:
            other.evaluate(message)
        except SaslAuthenticationError:
            continue
        assert other.client is None


@given(st.binary(max_size=100))
def test_client_refuses_any_other_bytes(challenge: bytes) -> None:
    one = client()
    one.first()
    with pytest.raises(SaslAuthenticationError):
        one.next(challenge)


@pytest.mark.parametrize("count", ["1", "4095", "9999999999", "x", "1000001"])
def test_client_refuses_iterations_that_are_weak_or_endless(count: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="iterations"):
        client().next(f"r={CLIENT_NONCE}x,s=AAAA,i={count}".encode())


def test_broker_without_the_password_is_refused() -> None:
    one, other = client(), server()
    final = one.next(other.evaluate(one.first()))
    assert final is not None
    with pytest.raises(SaslAuthenticationError, match="did not prove"):
        one.next(b"v=" + b"A" * 44)
