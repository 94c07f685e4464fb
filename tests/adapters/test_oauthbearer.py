"""OAuth tokens with real signatures and a real HTTP server: what is accepted, and how keys and tokens are obtained."""

import json
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from barnabas.adapters.oauthbearer.http import fetch_token, read_token, unsecured_token
from barnabas.adapters.oauthbearer.jwt_validator import JwtValidator, ValidatorSettings
from barnabas.core.security.sasl.oauthbearer import InvalidToken
from barnabas.ports.errors import BarnabasError
from barnabas.ports.values import Secret

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
OTHER = RSAKey.generate_key(2048, {"kid": "two", "use": "sig", "alg": "RS256"})

pytestmark = pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")


def token(key: RSAKey = KEY, kid: str = "one", **changes: object) -> str:
    now = int(time())
    claims = {"sub": "alice", "iat": now, "exp": now + 100, "iss": "me", "aud": ["kafka", "other"], **changes}
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": "RS256", "kid": kid}, given, key)


def key_set(*keys: RSAKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


class OauthServer(ThreadingHTTPServer):
    """Serves a key set and tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys = key_set(KEY)
        self.answer: tuple[int, bytes] = (200, b'{"access_token": "abc", "expires_in": 60}')
        self.requests: list[tuple[str, str, str]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class _Handler(BaseHTTPRequestHandler):
    server: OauthServer

    def do_GET(self) -> None:
        self._answer(200, self.server.keys)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.path, self.headers["Authorization"], body))
        self._answer(*self.server.answer)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url("elsewhere"))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[OauthServer]:
    serving = OauthServer()
    thread = Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


@pytest.fixture
def validator(tmp_path: Path) -> JwtValidator:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(KEY))
    return JwtValidator(ValidatorSettings(jwks_url=f"file://{file}", expected_issuer="me", expected_audience=["kafka"]))


def test_valid_token_is_accepted(validator: JwtValidator) -> None:
    expires = int(time()) + 50
    found = validator.validate(token(exp=expires))
    assert (found.principal_name, found.expires_at_ms) == ("alice", expires * 1000)
    assert validator.validate(token(exp=int(time()) - 20)).principal_name == "alice"  # within the skew


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1_000},
        {"exp": None},
        {"iat": None},
        {"iat": 99_999_999_999},
        {"nbf": 99_999_999_999},
        {"iss": "other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"key": OTHER},
        {"key": OTHER, "kid": "two"},
    ],
)
def test_wrong_token_is_refused(validator: JwtValidator, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        validator.validate(token(**changes))


def test_altered_token_is_refused(validator: JwtValidator) -> None:
    header, claims, signature = token().split(".")
    _, others, _ = token(sub="mallory").split(".")
    for altered in (f"{header}.{others}.{signature}", f"{header}.{claims}.", f"{header}.{claims}", "", "a.b.c"):
        with pytest.raises(InvalidToken):
            validator.validate(altered)


def test_token_without_signature_or_with_a_shared_secret_is_refused(validator: JwtValidator) -> None:
    now = int(time())
    claims = {"sub": "alice", "iat": now, "exp": now + 9, "iss": "me", "aud": "kafka"}
    secret = OctKey.import_key(b64encode(key_set(KEY)))
    for forged in (
        unsecured_token("alice").value.value,
        jwt.encode({"alg": "HS256", "kid": "one"}, claims, secret, algorithms=["HS256"]),
    ):
        with pytest.raises(InvalidToken):
            validator.validate(forged)


def test_unsecured_tokens_are_accepted_only_where_that_is_asked_for() -> None:
    validator = JwtValidator(ValidatorSettings(jwks_url=None, accept_unsecured=True))
    assert validator.validate(unsecured_token("alice").value.value).principal_name == "alice"
    with pytest.raises(InvalidToken):
        validator.validate(token())


def test_new_key_of_the_server_is_found(server: OauthServer) -> None:
    settings = ValidatorSettings(jwks_url=server.url("keys"), retry_backoff_max_ms=0)
    validator = JwtValidator(settings)
    assert validator.validate(token()).principal_name == "alice"
    with pytest.raises(InvalidToken):
        validator.validate(token(OTHER, "two"))
    server.keys = key_set(KEY, OTHER)
    assert validator.validate(token(OTHER, "two")).principal_name == "alice"


def test_unreadable_keys_refuse_tokens_until_they_are_readable(server: OauthServer) -> None:
    validator = JwtValidator(ValidatorSettings(jwks_url=server.url("keys"), retry_backoff_ms=1))
    server.keys = b"none"
    with pytest.raises(InvalidToken, match="cannot be read"):
        validator.validate(token())
    server.keys = key_set(KEY)
    deadline = time() + 30
    while True:
        try:
            assert validator.validate(token()).principal_name == "alice"
        except InvalidToken:
            assert time() < deadline
            continue
        break


def test_token_endpoint_gets_credentials_and_gives_a_token(server: OauthServer) -> None:
    found = fetch_token(server.url("token"), "app", Secret("s3cret"), "read write")
    assert found.value.value == "abc"
    assert found.expires_at_ms is not None
    assert abs(found.expires_at_ms - (time() + 60) * 1000) < 30_000
    ((path, authorization, body),) = server.requests
    assert (path, body) == ("/token", "grant_type=client_credentials&scope=read+write")
    assert authorization == f"Basic {b64encode(b'app:s3cret').decode()}"


@pytest.mark.parametrize(
    "answer",
    [
        (401, b"{}"),
        (302, b""),
        (200, b"x"),
        (200, b"{}"),
        (200, b"[]"),
        (200, b'{"access_token": 5}'),
        (200, b"x" * 2_000_000),
    ],
)
def test_wrong_answer_of_a_token_endpoint_is_an_error_without_secrets(
    server: OauthServer, answer: tuple[int, bytes]
) -> None:
    server.answer = answer
    with pytest.raises(BarnabasError, match=r"OAuth server 127\.0\.0\.1") as caught:
        fetch_token(server.url("token"), "app", Secret("s3cret"))
    assert "s3cret" not in str(caught.value)
    assert [path for path, _, _ in server.requests] == ["/token"]


def test_token_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(BarnabasError, match="cannot be read"):
        read_token(str(file))
    file.write_text(" abc\n")
    assert read_token(str(file)).value == Secret("abc")
    file.write_text("")
    with pytest.raises(BarnabasError, match="is empty"):
        read_token(str(file))
