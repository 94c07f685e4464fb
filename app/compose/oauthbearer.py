"""OAuth tokens, as configurations ask for them: their validators for listeners, and their sources for clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError
from ...ports.values import Secret

if TYPE_CHECKING:
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
        )
    )


def _check_allowed(config: BrokerConfig, url: object, listener: str) -> None:
    """Raise `ConfigError` unless the URL of the keys is set and on the list of allowed ones."""
    if url is None:
        raise ConfigError(f"{_URL_KEY} is not set, and listener {listener} has SASL mechanism {_MECHANISM}")
    if str(url).startswith("file://"):
        what, allowed = str(url).removeprefix("file://"), config.org_apache_kafka_sasl_oauthbearer_allowed_files
        key = "org.apache.kafka.sasl.oauthbearer.allowed.files"
    else:
        what, allowed = str(url), config.org_apache_kafka_sasl_oauthbearer_allowed_urls
        key = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    if what not in allowed:
        raise ConfigError(f"{_URL_KEY}={url} is not allowed; add {what} to {key}")


def client_oauthbearer(security: SecuritySettings, clock: Clock) -> SaslFactory:
    """Return the SASL of a client with OAuth tokens: from a token endpoint, or from a file that something renews.

    Raises `ConfigError`.
    """
    from ...core.security.sasl.oauthbearer import OauthbearerClient, TokenSource, check_extensions

    login = security.login_module() if security.sasl_jaas_config else None
    options = {} if login is None else {name: value.value for name, value in login.options.items()}
    extensions = dict(
        pair.strip().partition("=")[::2] for pair in security.sasl_oauthbearer_extensions.split(",") if pair.strip()
    )
    extensions |= {
        name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")
    }
    check_extensions(extensions, "sasl.oauthbearer.extensions")
    source = TokenSource(_fetch(security, options), clock, security.sasl_login_refresh_window_factor)
    return lambda _: OauthbearerClient(source, extensions)


def _fetch(security: SecuritySettings, options: Mapping[str, str]) -> Callable[[], AccessToken]:
    """Return the function that obtains a token; it blocks. Raises `ConfigError`."""
    from ...adapters.oauthbearer.http import check_url, fetch_token, read_token, unsecured_token

    url, key = security.sasl_oauthbearer_token_endpoint_url, "sasl.oauthbearer.token.endpoint.url"
    if url.startswith("file://"):
        path = url.removeprefix("file://")
        return lambda: read_token(path)
    user = options.get("unsecuredLoginStringClaim_sub")
    if not url and user is not None:
        return lambda: unsecured_token(user)
    if not url:
        raise ConfigError(f"sasl.mechanism={_MECHANISM} needs {key}, https://... or file:///..., which is not set")
    check_url(url, key)
    client_id = security.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    secret = security.sasl_oauthbearer_client_credentials_client_secret or Secret(options.get("clientSecret", ""))
    scope = security.sasl_oauthbearer_scope or options.get("scope")
    if not client_id or not secret:
        missing = "secret" if client_id else "id"
        raise ConfigError(f"{key} needs sasl.oauthbearer.client.credentials.client.{missing}, which is not set")
    timeout_s = security.sasl_login_read_timeout_ms / 1000
    return lambda: fetch_token(url, client_id, secret, scope, timeout_s=timeout_s)
