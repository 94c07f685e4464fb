"""DIGEST-MD5 against the example of RFC 2831, and against challenges that are wrong."""

import re

import pytest

from barnabas.core.security.sasl.digest_md5 import DigestMd5Client
from barnabas.core.security.sasl.exchange import SaslAuthenticationError
from barnabas.ports.values import Secret

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'  # RFC 2831, 4
)


def client() -> DigestMd5Client:
    return DigestMd5Client("chris", Secret("secret"), "OA6MHXh6VqTrRk", service="imap", host="elwood.innosoft.com")


def test_response_and_proof_of_the_example_in_rfc_2831() -> None:
    exchange = client()
    assert exchange.first() == b""
    response = exchange.next(CHALLENGE)
    assert response is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in response
    assert b'digest-uri="imap/elwood.innosoft.com"' in response
    assert b"secret" not in response
    assert exchange.next(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


def test_service_without_the_password_is_refused() -> None:
    exchange = client()
    exchange.next(CHALLENGE)
    with pytest.raises(SaslAuthenticationError, match="does not know the password"):
        exchange.next(b"rspauth=00000000000000000000000000000000")


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b'realm="r"', "has no nonce"),
        (b'nonce="n",qop="auth-conf"', "asks for qop 'auth-conf'"),
        (b'nonce="n', "is malformed"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_challenge_that_is_wrong_is_refused(challenge: bytes, problem: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=re.escape(problem)):
        client().next(challenge)


def test_names_with_quotes_are_escaped_and_read_back() -> None:
    exchange = DigestMd5Client('a"b\\c', Secret("p"), "n", service="zookeeper", host="zk-sasl-md5")
    response = exchange.next(b'realm="x\\"y",nonce="1"')
    assert response is not None
    assert b'username="a\\"b\\\\c"' in response
    assert b'realm="x\\"y"' in response
