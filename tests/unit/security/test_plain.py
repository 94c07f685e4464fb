"""PLAIN: its one message, users of a JAAS line, and the hook that checks passwords."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.security.sasl.exchange import Offloaded, SaslAuthenticationError
from barnabas.core.security.sasl.plain import PlainClient, PlainServerExchange, PlainUsers
from barnabas.ports.broker_api.envelope import Principal
from barnabas.ports.values import Secret

USERS = PlainUsers({"alice": Secret("wonder"), "b\u00f6b": Secret("p\u00e4ss")})


@pytest.mark.parametrize(("user", "password"), [("alice", "wonder"), ("b\u00f6b", "p\u00e4ss")])
def test_right_password_is_accepted(user: str, password: str) -> None:
    server = PlainServerExchange(USERS)
    client = PlainClient(user, Secret(password))
    answer = server.evaluate(client.first())
    assert isinstance(answer, bytes)
    assert client.next(answer) is None
    assert server.client is not None
    assert server.client.principal == Principal("User", user)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0wonder", "Invalid username or password"),
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "expected 3 tokens, got 4"),
        (b"bob\0alice\0wonder", "authorization id that is different from username"),
        (b"\0\0wonder", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0\xff\0x", "not UTF-8"),
    ],
)
def test_wrong_message_is_refused_without_the_password(response: bytes, reason: str) -> None:
    server = PlainServerExchange(USERS)
    with pytest.raises(SaslAuthenticationError, match=reason) as caught:
        server.evaluate(response)
    assert "wonder" not in str(caught.value)
    assert server.client is None


def test_authorization_id_equal_to_the_user_is_accepted() -> None:
    server = PlainServerExchange(USERS)
    server.evaluate(b"alice\0alice\0wonder")
    assert server.client is not None


@given(st.binary(max_size=100))
def test_any_bytes_are_only_refused(response: bytes) -> None:
    server = PlainServerExchange(USERS)
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(response)


@pytest.mark.parametrize("answer", [True, False, None, "yes"])
def test_hook_decides_off_the_owner_thread(answer: object) -> None:
    class Directory:
        def authenticate(self, user: str, password: str) -> bool:
            assert (user, password) == ("carol", "x")
            return answer  # type: ignore[return-value]  # a hook may be wrong

    server = PlainServerExchange(PlainUsers({}), Directory())
    found = server.evaluate(b"\0carol\0x")
    assert isinstance(found, Offloaded)
    if answer is True:
        assert found.then(found.work()) == b""
        assert server.client is not None
    else:
        with pytest.raises(SaslAuthenticationError):
            found.then(found.work())
