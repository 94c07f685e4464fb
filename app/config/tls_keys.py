"""The keys of TLS, by Kafka's names, and their values for one listener."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from ...core.security.ssl_settings import CLIENT_AUTH, PROTOCOLS, STORE_TYPES, SslSettings
from ...ports.errors import ConfigError
from ...ports.values import Secret
from .key_table import key_table, keys_of
from .keys import flag_key, list_key, password_key, text_key
from .names import nearest

_SCOPE = "listener"

RELOADABLE_KEYS = frozenset(
    f"ssl.{key}"
    for key in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "key.password",
        "keystore.key",
        "keystore.certificate.chain",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)
"""The keys that AlterConfigs changes for one listener of one broker, Kafka's `SslConfigs.RECONFIGURABLE_CONFIGS`."""


@key_table
class TlsKeys:
    """A part of the table; see `BrokerConfig`."""

    ssl_keystore_type: str = text_key(
        "ssl.keystore.type",
        "JKS",
        STORE_TYPES,
        doc="PEM or PKCS12. The type is detected by the content of the file.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_keystore_location: str | None = text_key(
        "ssl.keystore.location",
        None,
        doc="The file of the private key and certificate chain of the listener: PEM, or PKCS12 with the extra "
        "security.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_keystore_password: Secret[str] | None = password_key(
        "ssl.keystore.password",
        doc="The password of the key store.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_key_password: Secret[str] | None = password_key(
        "ssl.key.password",
        doc="The password of the private key.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_keystore_key: Secret[str] | None = password_key(
        "ssl.keystore.key",
        doc="The private key as PEM text, in place of a file.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_keystore_certificate_chain: Secret[str] | None = password_key(
        "ssl.keystore.certificate.chain",
        doc="The certificate chain as PEM text, in place of a file.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_truststore_type: str = text_key(
        "ssl.truststore.type",
        "JKS",
        STORE_TYPES,
        doc="PEM or PKCS12. The type is detected by the content of the file.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_truststore_location: str | None = text_key(
        "ssl.truststore.location",
        None,
        doc="The file of the trusted certificate authorities; unset: those of the system.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_truststore_password: Secret[str] | None = password_key(
        "ssl.truststore.password",
        doc="The password of the trust store.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_truststore_certificates: Secret[str] | None = password_key(
        "ssl.truststore.certificates",
        doc="The trusted certificate authorities as PEM text, in place of a file.",
        dynamic=True,
        scope=_SCOPE,
    )
    ssl_client_auth: str = text_key(
        "ssl.client.auth",
        "none",
        CLIENT_AUTH,
        doc="Whether clients authenticate with a certificate: required, requested (optional) or none.",
        scope=_SCOPE,
    )
    ssl_enabled_protocols: tuple[str, ...] = list_key(
        "ssl.enabled.protocols", PROTOCOLS, PROTOCOLS, doc="The enabled versions of TLS.", scope=_SCOPE
    )
    ssl_protocol: str = text_key(
        "ssl.protocol",
        "TLSv1.3",
        ("TLS", *PROTOCOLS),
        doc="The highest version of TLS; ssl.enabled.protocols lists the enabled ones.",
        scope=_SCOPE,
    )
    ssl_cipher_suites: tuple[str, ...] = list_key(
        "ssl.cipher.suites",
        (),
        doc="The cipher suites by Java's or OpenSSL's names; empty: OpenSSL's default.",
        scope=_SCOPE,
    )
    ssl_endpoint_identification_algorithm: str = text_key(
        "ssl.endpoint.identification.algorithm",
        "https",
        ("https", "none", ""),
        doc="https: the host names of other brokers are verified against their certificates; none or empty: they are "
        "not.",
        scope=_SCOPE,
    )
    ssl_allow_dn_changes: bool = flag_key(
        "ssl.allow.dn.changes", False, doc="Whether a reloaded certificate may have another subject."
    )
    ssl_allow_san_changes: bool = flag_key(
        "ssl.allow.san.changes",
        False,
        doc="Whether a reloaded certificate may lack subject alternative names of the present one.",
    )
    ssl_principal_mapping_rules: str = text_key(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        doc="RULE:PATTERN/REPLACEMENT/[L|U],...: how the subject of a client certificate becomes a user name.",
        scope=_SCOPE,
    )


def ssl_settings_of(settings: Mapping[str, object]) -> SslSettings:
    """Return the `ssl.*` settings under Kafka's names, for a server that is no broker. Raises `ConfigError`."""
    keys = keys_of(TlsKeys)
    unknown = sorted(settings.keys() - keys.keys())
    if unknown:
        raise ConfigError(f"there is no setting {unknown[0]!r}{nearest(unknown[0], list(keys))}")
    values = {name: key.parse(settings[name]) if name in settings else key.default for name, key in keys.items()}

    class _Values:
        def for_listener(self, listener: str, key: str, mechanism: str = "") -> object:  # noqa: ARG002
            return values[key]

    return ssl_settings(_Values(), "")


class ListenerValues(Protocol):
    """The part of `BrokerConfig` that is needed here."""

    def for_listener(self, listener: str, key: str, mechanism: str = "") -> object: ...


def ssl_settings(config: ListenerValues, listener: str) -> SslSettings:
    """Return the `ssl.*` settings of a listener by its name."""

    def value(key: str) -> Any:
        return config.for_listener(listener, f"ssl.{key}")

    def text(key: str) -> str | None:
        secret = cast("Secret[str] | None", value(key))
        return secret.value if secret else None

    highest = value("protocol")
    enabled = tuple(name for name in value("enabled.protocols") if not (highest == "TLSv1.2" and name == "TLSv1.3"))
    return SslSettings(
        keystore_type=value("keystore.type"),
        keystore_location=value("keystore.location"),
        keystore_password=value("keystore.password"),
        key_password=value("key.password"),
        keystore_key=value("keystore.key"),
        keystore_certificate_chain=text("keystore.certificate.chain"),
        truststore_type=value("truststore.type"),
        truststore_location=value("truststore.location"),
        truststore_password=value("truststore.password"),
        truststore_certificates=text("truststore.certificates"),
        enabled_protocols=enabled,
        cipher_suites=value("cipher.suites"),
        client_auth=value("client.auth"),
        allow_dn_changes=value("allow.dn.changes"),
        allow_san_changes=value("allow.san.changes"),
        endpoint_identification_algorithm="https" if value("endpoint.identification.algorithm") == "https" else "",
    )
