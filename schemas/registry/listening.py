"""The listen address of a registry, its security, and the registry in a broker process (`schema.registry.listen`)."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...app.clients.shared.connect import secured
from ...app.compose.https import BasicAuthentication, HttpSecurity, broker_http_security, server_context
from ...app.config.tls_keys import ssl_settings_of
from ...app.extras import require
from ...ports.errors import ConfigError

logger = logging.getLogger("barnabas.schemas.registry")

_PACKAGES = ("starlette", "uvicorn")
_LOOPBACK = ("127.", "::1", "localhost")
STORE = "kafkastore."
"""The prefix of settings of the registry's own clients, as Confluent has it."""


def parse_listen(text: str, key: str) -> tuple[str, int]:
    """Parse HOST:PORT, http://HOST:PORT or https://HOST:PORT. Raises `ConfigError`, also without the packages."""
    require("the schema registry", _PACKAGES, "registry")
    address = text.strip().removeprefix("http://").removeprefix("https://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{key}={text!r:.200} is not HOST:PORT")
    return host.strip("[]"), int(port)


def users_of(
    method: str, file: str | None, roles: Sequence[str], realm: str, prefix: str
) -> BasicAuthentication | None:
    """Return the users of a registry; None: everyone may use it. Raises `ConfigError`."""
    if method.upper() not in ("NONE", "BASIC"):
        raise ConfigError(f"{prefix}authentication.method={method}: expected BASIC or NONE")
    if method.upper() == "NONE":
        return None
    if not file:
        raise ConfigError(f"{prefix}authentication.method=BASIC needs {prefix}authentication.users.file")
    return BasicAuthentication(file, roles=roles, realm=realm, report=logger.warning)


def warn_of_passwords(host: str, security: HttpSecurity) -> None:
    """Log that passwords come over the network in plain text, where they do."""
    if security.users is not None and security.tls is None and not host.startswith(_LOOPBACK):
        logger.warning("the registry at %s takes passwords without TLS; use https:// for its address", host)


def security_of(settings: Mapping[str, str], listen: str) -> HttpSecurity:
    """Return the security by the settings of Confluent's registry. Raises `ConfigError`."""
    roles = [each.strip() for each in settings.get("authentication.roles", "*").split(",") if each.strip()]
    users = users_of(
        settings.get("authentication.method", "NONE"),
        settings.get("authentication.users.file"),
        roles,
        settings.get("authentication.realm", "SchemaRegistry"),
        "",
    )
    if not listen.startswith("https://"):
        return HttpSecurity(users=users)
    client_auth = settings.get("ssl.client.authentication") or settings.get("ssl.client.auth", "none")
    client_auth = {"true": "required", "false": "none"}.get(client_auth.lower(), client_auth.lower())
    given = {key: value for key, value in settings.items() if key.startswith("ssl.")}
    given.pop("ssl.client.authentication", None)
    return HttpSecurity(
        tls=server_context(ssl_settings_of({**given, "ssl.client.auth": client_auth}), logger.warning), users=users
    )


def serve_in_broker(config: Any, bootstrap: str, settings: Mapping[str, Any] = {}) -> Any:
    """Start and return a registry over the topics of the broker, as a client with these settings of security.

    Raises `ConfigError`.
    """
    address = parse_listen(config.schema_registry_listen, "schema.registry.listen")
    from .server import RegistryServer

    prefix = "schema.registry."
    users = users_of(
        config.schema_registry_authentication_method,
        config.schema_registry_authentication_users_file,
        config.schema_registry_authentication_roles,
        config.schema_registry_authentication_realm,
        prefix,
    )
    try:
        security = broker_http_security(config, config.schema_registry_listen, "REGISTRY", users, logger.warning)
    except ConfigError as error:
        raise ConfigError(f"schema.registry.listen={config.schema_registry_listen}: {error}") from None
    warn_of_passwords(address[0], security)
    if config.schema_registry_command_config:
        from ...app.cli.client_files import read_client_file

        settings = read_client_file(Path(config.schema_registry_command_config))
        bootstrap = str(settings.get("bootstrap.servers") or bootstrap)
    server = RegistryServer(
        secured(bootstrap, settings),
        address,
        topic="_schemas",
        validate_defaults=config.avro_validate_defaults,
        security=security,
    )
    server.start()
    return server
