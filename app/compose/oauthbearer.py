"""OAuth tokens, as configurations ask for them: their validators for listeners, and their sources for clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.security.jaas import JaasEntry, parse_one_login_module
from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ...ports.values import Secret, frozen
from ..config.tls_keys import ssl_settings

if TYPE_CHECKING:
    from ssl import SSLContext

    from ...core.security.sasl.client import SaslFactory
    from ...core.security.sasl.oauthbearer import AccessToken, TokenValidator
    from ...plugins.host import PluginHost
    from ...ports.clock import Clock
    from ..config import BrokerConfig
    from ..config.security_settings import SecuritySettings

_MECHANISM = "OAUTHBEARER"
_URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
_UNSECURED = (
    "unsecured",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
)
"""The values of `sasl.server.callback.handler.class` that accept tokens without a signature."""


def token_validator(config: BrokerConfig, listener: str, plugins: PluginHost) -> TokenValidator:
    """Return the validator of a listener: a plug-in's, or that of the configured keys. Raises `ConfigError`."""
    from ...adapters.oauthbearer.jwt_validator import JwtValidator, ValidatorSettings

    def value(key: str) -> object:
        return config.for_listener(listener, key, _MECHANISM)

    def number(key: str) -> int:
        found = value(key)
        assert isinstance(found, int)
        return found

    handler, url = value("sasl.server.callback.handler.class"), value(_URL_KEY)
    if handler is not None and handler not in _UNSECURED:
        return plugins.token_validator(str(handler))
    if handler is None:
        _check_allowed(config, url, listener)
    issuer, audience = value("sasl.oauthbearer.expected.issuer"), value("sasl.oauthbearer.expected.audience")
    assert isinstance(audience, tuple)
    return JwtValidator(
        ValidatorSettings(
            jwks_url=None if handler is not None else str(url),
            refresh_ms=number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_backoff_ms=number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            retry_backoff_max_ms=number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            expected_issuer=None if issuer is None else str(issuer),
            expected_audience=audience,
            subject_claim=str(value("sasl.oauthbearer.sub.claim.name")),
            skew_s=number("sasl.oauthbearer.clock.skew.seconds"),
            accept_unsecured=handler is not None,
            tls=None if handler is not None else _trust_of_keys(config, listener, str(url)),
        )
    )


def _trust_of_keys(config: BrokerConfig, listener: str, url: str) -> SSLContext | None:
    """Return the TLS of requests for the keys. Raises `ConfigError`."""
    jaas = config.for_listener(listener, "sasl.jaas.config", _MECHANISM)
    key = f"listener.name.{listener.lower()}.{_MECHANISM.lower()}.sasl.jaas.config"
    login = parse_one_login_module(jaas, key) if isinstance(jaas, Secret) else None
    return _server_trust(url, _options(login), _trusted_by(config, listener))


def _check_allowed(config: BrokerConfig, url: object, listener: str) -> None:
    """Raise `ConfigError` unless the URL of the keys is set and on the list of allowed ones."""
    if url is None:
        raise ConfigError(f"{_URL_KEY} is not set; listener {listener} with SASL mechanism {_MECHANISM} needs it")
    if str(url).startswith("file://"):
        what, allowed = str(url).removeprefix("file://"), config.org_apache_kafka_sasl_oauthbearer_allowed_files
        key = "org.apache.kafka.sasl.oauthbearer.allowed.files"
    else:
        what, allowed = str(url), config.org_apache_kafka_sasl_oauthbearer_allowed_urls
        key = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    if what not in allowed:
        raise ConfigError(f"{_URL_KEY}={url} is not allowed; add {what} to {key}")


@frozen(kw_only=True)
class _TokenRequest:
    """The settings by which a client or a broker obtains tokens."""

    url: str
    client_id: str
    client_secret: Secret[str] | None
    scope: str | None
    timeout_s: float
    refresh_window: float
    options: Mapping[str, str]
    """The options of the login module."""
    trust: SslSettings
    """The certificates to trust in addition to the system's, unless the login module has options `ssl.*`."""
    url_key: str = "sasl.oauthbearer.token.endpoint.url"


def client_oauthbearer(security: SecuritySettings, clock: Clock) -> SaslFactory:
    """Return the SASL of a client with OAuth tokens: from a callable, a token endpoint, or a file that is renewed.

    Raises `ConfigError`.
    """
    login = security.login_module() if security.sasl_jaas_config else None
    request = _TokenRequest(
        url=security.sasl_oauthbearer_token_endpoint_url,
        client_id=security.sasl_oauthbearer_client_credentials_client_id,
        client_secret=security.sasl_oauthbearer_client_credentials_client_secret,
        scope=security.sasl_oauthbearer_scope,
        timeout_s=security.sasl_login_read_timeout_ms / 1000,
        refresh_window=security.sasl_login_refresh_window_factor,
        options=_options(login),
        trust=SslSettings(
            truststore_type=security.ssl_truststore_type or "JKS",
            truststore_location=security.ssl_truststore_location or None,
            truststore_password=security.ssl_truststore_password or None,
            truststore_certificates=security.ssl_truststore_certificates or None,
        ),
    )
    extensions = dict(
        pair.strip().partition("=")[::2] for pair in security.sasl_oauthbearer_extensions.split(",") if pair.strip()
    )
    if security.sasl_oauth_token_provider is not None:
        from ...adapters.oauthbearer.http import provided_token

        provider = security.sasl_oauth_token_provider
        return _factory(request, lambda: provided_token(provider), clock, extensions)
    return _factory(request, _fetch(request), clock, extensions)


def broker_oauthbearer(config: BrokerConfig, listener: str) -> SaslFactory:
    """Return the SASL of connections to other brokers by OAuth tokens. Raises `ConfigError`."""
    from ...adapters.system import SystemClock

    def value(key: str) -> Any:
        return config.for_listener(listener, key, _MECHANISM)

    prefix = f"listener.name.{listener.lower()}.{_MECHANISM.lower()}."
    handler = value("sasl.login.callback.handler.class")
    if handler and not str(handler).endswith("OAuthBearerLoginCallbackHandler"):
        text = f"{handler} is not supported: use OAuthBearerLoginCallbackHandler"
        raise ConfigError(f"{prefix}sasl.login.callback.handler.class={text}")
    jaas = value("sasl.jaas.config")
    login = parse_one_login_module(jaas, f"{prefix}sasl.jaas.config") if isinstance(jaas, Secret) else None
    request = _TokenRequest(
        url=value("sasl.oauthbearer.token.endpoint.url") or "",
        client_id=value("sasl.oauthbearer.client.credentials.client.id") or "",
        client_secret=value("sasl.oauthbearer.client.credentials.client.secret"),
        scope=value("sasl.oauthbearer.scope"),
        timeout_s=value("sasl.login.read.timeout.ms") / 1000,
        refresh_window=value("sasl.login.refresh.window.factor"),
        options=_options(login),
        trust=_trusted_by(config, listener),
        url_key=f"{prefix}sasl.oauthbearer.token.endpoint.url",
    )
    return _factory(request, _fetch(request), SystemClock(), {})


def _options(login: JaasEntry | None) -> dict[str, str]:
    return {} if login is None else {name: value.value for name, value in login.options.items()}


def _factory(
    request: _TokenRequest, fetch: Callable[[], AccessToken], clock: Clock, extensions: Mapping[str, str]
) -> SaslFactory:
    from ...core.security.sasl.oauthbearer import OauthbearerClient, TokenSource, check_extensions

    given = {name: value for name, value in request.options.items() if name.startswith("extension_")}
    every = {**extensions, **{name.removeprefix("extension_"): value for name, value in given.items()}}
    check_extensions(every, "sasl.oauthbearer.extensions")
    source = TokenSource(fetch, clock, request.refresh_window)
    return lambda _: OauthbearerClient(source, every)


def _fetch(request: _TokenRequest) -> Callable[[], AccessToken]:
    """Return the function that obtains a token; it blocks. Raises `ConfigError`."""
    from ...adapters.oauthbearer.http import check_url, fetch_token, read_token, unsecured_token

    url, key, options = request.url, request.url_key, request.options
    if url.startswith("file://"):
        path = url.removeprefix("file://")
        return lambda: read_token(path)
    user = options.get("unsecuredLoginStringClaim_sub")
    if not url and user is not None:
        return lambda: unsecured_token(user)
    if not url:
        raise ConfigError(f"SASL mechanism {_MECHANISM} needs {key}, https://... or file:///..., which is not set")
    check_url(url, key)
    client_id = request.client_id or options.get("clientId", "")
    secret = request.client_secret or Secret(options.get("clientSecret", ""))
    if not client_id or not secret:
        missing = "secret" if client_id else "id"
        raise ConfigError(f"{key} needs sasl.oauthbearer.client.credentials.client.{missing}, which is not set")
    scope, tls = request.scope or options.get("scope"), _server_trust(url, options, request.trust)
    return lambda: fetch_token(url, client_id, secret, scope, tls=tls, timeout_s=request.timeout_s)


def _trusted_by(config: BrokerConfig, listener: str) -> SslSettings:
    """Return the trust store of a listener."""
    settings = ssl_settings(config, listener)
    return SslSettings(
        truststore_type=settings.truststore_type,
        truststore_location=settings.truststore_location,
        truststore_password=settings.truststore_password,
        truststore_certificates=settings.truststore_certificates,
    )


def _server_trust(url: str, options: Mapping[str, str], trust: SslSettings) -> SSLContext | None:
    """Return the TLS of requests to an OAuth server; None: the certificates that the system trusts are all.

    Options `ssl.*` of the login module count alone, as in Kafka. Else the trust store of the listener or client is
    added to that of the system: an OAuth server may be the company's own, or a public one. Raises `ConfigError`.
    """
    if not url.startswith("https://"):
        return None
    from ...adapters.transport_tls import client_tls

    given = {name.removeprefix("ssl."): value for name, value in options.items() if name.startswith("ssl.")}
    if given:
        secrets = {name: Secret(given[name]) for name in given if name.endswith("password")}
        return client_tls(
            SslSettings(
                keystore_type=given.get("keystore.type", "JKS"),
                keystore_location=given.get("keystore.location"),
                keystore_password=secrets.get("keystore.password"),
                key_password=secrets.get("key.password"),
                truststore_type=given.get("truststore.type", "JKS"),
                truststore_location=given.get("truststore.location"),
                truststore_password=secrets.get("truststore.password"),
            )
        ).context
    if not (trust.truststore_location or trust.truststore_certificates):
        return None
    context = client_tls(trust).context
    context.load_default_certs()
    return context
