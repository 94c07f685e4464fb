"""Brokers that connect to each other by OAuth tokens of an identity provider with TLS, and clients with tokens of
their own making."""

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

import pytest
import trustme
from joserfc import jwt
from joserfc.jwk import RSAKey
from support.waiting import PATIENCE_S, wait_for

from barnabas import Consumer, Producer
from barnabas.ports.errors import BarnabasError, ConfigError
from barnabas.testing import TestBroker, TestCluster

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


def token_of(user: str, lifetime_s: float = 100) -> str:
    now = int(time())
    return jwt.encode({"alg": "RS256", "kid": "one"}, {"sub": user, "iat": now, "exp": now + int(lifetime_s)}, KEY)


class IdentityProvider(ThreadingHTTPServer):
    """Serves keys, and tokens of few seconds for the user `broker`, by HTTPS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        authority = trustme.CA()
        self.authority = folder / "idp-ca.pem"
        authority.cert_pem.write_to_path(self.authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.issued = 0

    def url(self, path: str) -> str:
        return f"https://localhost:{self.server_address[1]}/{path}"


class _Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_GET(self) -> None:
        self._answer({"keys": [KEY.as_dict(private=False)]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.issued += 1
        self._answer({"access_token": token_of("broker", 4), "expires_in": 4})

    def _answer(self, content: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[IdentityProvider]:
    serving = IdentityProvider(tmp_path)
    thread = Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


def _settings(provider: IdentityProvider) -> dict[str, object]:
    scope = "listener.name.sasl_plaintext.oauthbearer"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": provider.url("keys"),
        f"{scope}.sasl.oauthbearer.jwks.endpoint.url": provider.url("keys"),
        f"{scope}.sasl.oauthbearer.token.endpoint.url": provider.url("token"),
        f"{scope}.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="broker" clientSecret="s3cret" ssl.truststore.type="PEM" '
        f'ssl.truststore.location="{provider.authority}";',
    }


def test_brokers_replicate_with_tokens_that_expire_and_clients_bring_their_own(provider: IdentityProvider) -> None:
    asked = 0

    def own_token() -> tuple[str, float]:
        nonlocal asked
        asked += 1
        return token_of("alice"), time() + 100

    class Provider:
        async def token(self) -> str:
            return token_of("alice")

    with TestCluster(2, _settings(provider), security="sasl_plaintext", users={"alice": "unused"}) as cluster:
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        config = {**security, "sasl.oauth.token.provider": own_token}
        with Producer(cluster.bootstrap, config={**config, "acks": "all"}) as producer:
            first = provider.issued
            for number in range(20):
                producer.send("t", b"%d" % number).result(60)
            wait_for(lambda: provider.issued >= first + 2)  # the brokers' sessions end with their tokens
            producer.send("t", b"last").result(60)
        assert asked == 1  # the token of both brokers' connections
        with Consumer(
            cluster.bootstrap,
            config={
                **security,
                "sasl.oauth.token.provider": Provider(),
                "group.id": "g",
                "auto.offset.reset": "earliest",
            },
        ) as consumer:
            consumer.subscribe(["t"])
            found: list[bytes | None] = []
            while len(found) < 21:
                found += [each.value for each in consumer.poll_many(timeout=30)]
            assert found[-1] == b"last"


def test_server_of_keys_that_is_not_trusted_refuses_all_tokens(provider: IdentityProvider) -> None:
    scope = "listener.name.sasl_plaintext.oauthbearer"
    settings = {**_settings(provider), f"{scope}.sasl.jaas.config": "OAuthBearerLoginModule required;"}
    with TestBroker(config=settings, security="sasl_plaintext", users={"alice": "unused"}) as broker:
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        config = {**security, "sasl.oauth.token.provider": lambda: token_of("alice")}
        with pytest.raises(BarnabasError, match="invalid_token"), Producer(broker.bootstrap, config=config) as producer:
            producer.send("t", b"x").result(PATIENCE_S)


@pytest.mark.parametrize(
    ("provider_of_tokens", "problem"),
    [(lambda: "", "returned no text"), (lambda: 7, "returned no text"), (lambda: 1 / 0, "ZeroDivisionError")],
)
def test_callable_without_a_token_fails_the_connection_with_the_reason(provider_of_tokens: Any, problem: str) -> None:
    with TestBroker(users={"alice": "unused"}) as broker:
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        config = {**security, "sasl.oauth.token.provider": provider_of_tokens, "default.api.timeout.ms": 3000}
        with pytest.raises(BarnabasError, match=problem), Producer(broker.bootstrap, config=config) as producer:
            producer.send("t", b"x").result(PATIENCE_S)


def test_token_provider_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a callable that returns a token"):
        Producer("localhost:1", config={"sasl.oauth.token.provider": "text"})
