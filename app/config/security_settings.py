"""The security settings of clients: `security.protocol`, `ssl.*` and `sasl.*`, by the names of Kafka, librdkafka and
kafka-python."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
from attrs import field
from attrs.validators import ge, in_, le

from ...core.security.jaas import JaasEntry, parse_one_login_module
from ...core.security.sasl.plain import PLAIN
from ...core.security.sasl.scram import HASHES
from ...ports.errors import ConfigError
from ...ports.values import Secret, frozen

logger = logging.getLogger("barnabas.client")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
GSSAPI, OAUTHBEARER = "GSSAPI", "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)
STORE_TYPES = ("", "PEM", "PKCS12")
_JAAS = "sasl.jaas.config"
_NOT_SET: Secret[str] = Secret("")
_PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.")
_TLS_PREFIXES = ("ssl", "enable_ssl")
_OAUTH_LOGIN = "OAuthBearerLoginCallbackHandler"


@frozen(kw_only=True)
class SecuritySettings:
    """The security of a client's connections. Each field is a dotted key with underscores. Times in ms.

    Made by `read_security`, which checks that the settings fit each other.
    """

    ALIASES: ClassVar[Mapping[str, str]] = {
        # librdkafka
        "sasl.mechanisms": "sasl_mechanism",
        "ssl.ca.location": "ssl_truststore_location",
        "ssl.ca.pem": "ssl_truststore_certificates",
        "ssl.certificate.pem": "ssl_keystore_certificate_chain",
        "ssl.key.pem": "ssl_keystore_key",
        "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
        "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
        # kafka-python
        "sasl.plain.username": "sasl_username",
        "sasl.plain.password": "sasl_password",
        "ssl.cafile": "ssl_truststore_location",
        "ssl.certfile": "ssl_certificate_location",
        "ssl.keyfile": "ssl_key_location",
        "ssl.password": "ssl_key_password",
        "ssl.check.hostname": "ssl_endpoint_identification_algorithm",
        "ssl.ciphers": "ssl_cipher_suites",
    }

    security_protocol: str = field(default="PLAINTEXT", validator=in_(PROTOCOLS))
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: what the listener speaks."""

    ssl_truststore_location: str = ""
    """The file with the certificate authorities that the client trusts; by default those of the system."""
    ssl_truststore_type: str = field(default="", validator=in_(STORE_TYPES))
    """PEM or PKCS12; by default what the file is."""
    ssl_truststore_password: Secret[str] = _NOT_SET
    """The password of a PKCS12 file."""
    ssl_truststore_certificates: str = ""
    """The trusted certificates in PEM, in place of a file."""
    ssl_keystore_location: str = ""
    """The file with the private key and the certificate chain of the client."""
    ssl_keystore_type: str = field(default="", validator=in_(STORE_TYPES))
    """PEM or PKCS12; by default what the file is."""
    ssl_keystore_password: Secret[str] = _NOT_SET
    """The password of a PKCS12 file."""
    ssl_keystore_key: Secret[str] = _NOT_SET
    """The private key in PEM, in place of a file."""
    ssl_keystore_certificate_chain: str = ""
    """The certificate chain in PEM, in place of a file."""
    ssl_key_password: Secret[str] = _NOT_SET
    """The password of the private key."""
    ssl_certificate_location: str = ""
    """The file with the certificate chain in PEM, apart from the key; librdkafka's name."""
    ssl_key_location: str = ""
    """The file with the private key in PEM; librdkafka's name."""
    ssl_endpoint_identification_algorithm: str = field(default="https", validator=in_(("https", "none", "")))
    """https: the certificate of a broker must have the host name that the client connects to; none or empty: any."""
    enable_ssl_certificate_verification: bool = True
    """False: the client accepts every certificate of a broker, and therefore every broker. For experiments only."""
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    """The versions of TLS that may be used."""
    ssl_protocol: str = field(default="TLSv1.3", validator=in_(("TLS", "TLSv1.2", "TLSv1.3")))
    """The highest version of TLS that may be used."""
    ssl_context: Any = None
    """An `ssl.SSLContext` of a client, in place of all other `ssl.*` settings; kafka-python's and aiokafka's name."""
    ssl_cipher_suites: tuple[str, ...] = ()
    """The cipher suites that may be used, by the names of OpenSSL or Java; empty: OpenSSL's default."""

    sasl_mechanism: str = field(default="", validator=in_(("", *MECHANISMS)))
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI; needed with SASL_PLAINTEXT and SASL_SSL."""
    sasl_jaas_config: Secret[str] = _NOT_SET
    """The login module with its options: `MODULE required username="NAME" password="PASSWORD";`."""
    sasl_username: str = ""
    """The user of PLAIN and SCRAM, in place of `sasl.jaas.config`; librdkafka's name."""
    sasl_password: Secret[str] = _NOT_SET
    """The password of that user."""
    sasl_login_callback_handler_class: str = ""
    """Accepted where it is Kafka's own class for OAUTHBEARER, whose work the client does."""
    sasl_login_connect_timeout_ms: int = field(default=10_000, validator=ge(1))
    """The time that the connection to a token endpoint may take."""
    sasl_login_read_timeout_ms: int = field(default=10_000, validator=ge(1))
    """The time that the client waits for the answer of a token endpoint."""
    sasl_login_retry_backoff_ms: int = field(default=100, validator=ge(1))
    """The wait before another request to the token endpoint; it doubles with each failure."""
    sasl_login_retry_backoff_max_ms: int = field(default=10_000, validator=ge(1))
    """The longest wait before another request to the token endpoint."""
    sasl_login_refresh_window_factor: float = field(default=0.8, validator=[ge(0.5), le(1.0)])
    """The part of a token's lifetime after which the client requests the next one."""
    sasl_login_refresh_buffer_seconds: int = field(default=300, validator=ge(0))
    """The time before its expiry at which the client requests the next token at the latest."""
    sasl_oauthbearer_token_endpoint_url: str = ""
    """The URL at which the client requests tokens by its credentials (OAuth 2.0 client credentials grant)."""
    sasl_oauthbearer_client_credentials_client_id: str = ""
    """The client id for the token endpoint; else the option `clientId` of the login module."""
    sasl_oauthbearer_client_credentials_client_secret: Secret[str] = _NOT_SET
    """The client secret for the token endpoint; else the option `clientSecret` of the login module."""
    sasl_oauthbearer_scope: str = ""
    """The scope to request; else the option `scope` of the login module."""
    sasl_oauth_token_provider: Any = None
    """A callable that returns a token, or an object with such a method `token`; kafka-python's name."""
    sasl_oauthbearer_extensions: str = ""
    """SASL extensions for the broker, `name=value,...`; librdkafka's name."""
    sasl_oauthbearer_scope_claim_name: str = "scope"
    """The claim of a token that has its scopes."""
    sasl_oauthbearer_sub_claim_name: str = "sub"
    """The claim of a token that has its principal."""
    sasl_oauthbearer_method: str = field(default="oidc", validator=in_(("oidc", "default")))
    """oidc: client credentials; librdkafka's name."""
    sasl_kerberos_service_name: str = ""
    """The Kerberos service of the brokers, usually kafka; else the option `serviceName` of the login module."""
    sasl_kerberos_principal: str = ""
    """The Kerberos principal of the client; librdkafka's name."""
    sasl_kerberos_keytab: str = ""
    """The file with the keys of that principal; librdkafka's name."""

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.security_protocol.startswith("SASL_")

    def login_module(self) -> JaasEntry:
        """Return the login module of `sasl.jaas.config`, or one of the user name and password. Raises `ConfigError`."""
        if self.sasl_jaas_config:
            return parse_one_login_module(self.sasl_jaas_config, _JAAS)
        options = {"username": Secret(self.sasl_username), "password": self.sasl_password}
        return JaasEntry(module="", flag="required", options={name: value for name, value in options.items() if value})


NO_SECURITY = SecuritySettings()


def is_security_key(key: str) -> bool:
    """Return whether a dotted key belongs to `SecuritySettings`."""
    return key.startswith(_PREFIXES)


def check_security(found: SecuritySettings, names: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that do not fit each other, and log those that the protocol does not use.

    `names`: field → the key as the user wrote it, for those that were given.
    """
    protocol = found.security_protocol
    unused = []
    if not found.has_tls:
        unused += [named for name, named in names.items() if name.startswith(_TLS_PREFIXES)]
    if not found.has_sasl:
        unused += [named for name, named in names.items() if name.startswith("sasl_")]
    if unused:
        logger.warning("%s %s no effect with security.protocol=%s", ", ".join(sorted(unused)), _has(unused), protocol)
    if found.has_tls:
        if found.ssl_context is not None:
            _check_alone("ssl_context", names)
        _check_tls(found)
    if found.has_sasl:
        _check_sasl(found)


def _has(several: Sequence[str]) -> str:
    return "have" if len(several) > 1 else "has"


def _check_tls(found: SecuritySettings) -> None:
    _check_one_of(found, "ssl_truststore_location", "ssl_truststore_certificates")
    _check_one_of(found, "ssl_keystore_location", "ssl_keystore_certificate_chain")
    _check_one_of(found, "ssl_keystore_location", "ssl_certificate_location")
    _check_one_of(found, "ssl_keystore_certificate_chain", "ssl_certificate_location")
    _check_one_of(found, "ssl_keystore_key", "ssl_key_location")
    if found.ssl_keystore_certificate_chain and not (found.ssl_keystore_key or found.ssl_key_location):
        raise ConfigError("ssl.keystore.certificate.chain needs ssl.keystore.key, the private key in PEM")
    if (found.ssl_keystore_key or found.ssl_key_location) and not (
        found.ssl_keystore_certificate_chain or found.ssl_certificate_location
    ):
        key = "ssl.keystore.key" if found.ssl_keystore_key else "ssl.key.location"
        raise ConfigError(f"{key} needs the certificate: ssl.keystore.certificate.chain or ssl.certificate.location")
    unknown = set(found.ssl_enabled_protocols) - {"TLSv1.2", "TLSv1.3"}
    if unknown or not found.ssl_enabled_protocols:
        raise ConfigError(
            f"ssl.enabled.protocols = {','.join(found.ssl_enabled_protocols)!r}: expected TLSv1.2, TLSv1.3 or both"
        )


def _check_alone(field_name: str, names: Mapping[str, str]) -> None:
    for name, named in names.items():
        if name.startswith(_TLS_PREFIXES) and name != field_name:
            raise ConfigError(f"{names[field_name]} and {named} are both set; the context has all settings of TLS")


def _check_one_of(found: SecuritySettings, one: str, other: str) -> None:
    if getattr(found, one) and getattr(found, other):
        raise ConfigError(f"{_dotted(one)} and {_dotted(other)} are both set; leave one of them out")


def _check_sasl(found: SecuritySettings) -> None:
    mechanism, protocol = found.sasl_mechanism, found.security_protocol
    if not mechanism:
        known = ", ".join(MECHANISMS)
        raise ConfigError(f"security.protocol={protocol} needs sasl.mechanism, which is not set; known: {known}")
    if found.sasl_jaas_config and found.sasl_username:
        raise ConfigError(f"{_JAAS} and sasl.username are both set; leave one of them out")
    handler = found.sasl_login_callback_handler_class
    if handler and not handler.endswith(f".{_OAUTH_LOGIN}") and handler != _OAUTH_LOGIN:
        raise ConfigError(f"sasl.login.callback.handler.class={handler} is not supported: use {_OAUTH_LOGIN}")
    if mechanism not in (PLAIN, *HASHES):
        return
    login = found.login_module()
    for option, key in (("username", "sasl.username"), ("password", "sasl.password")):
        if login.option(option) is None:
            place = f"{_JAAS} has no option {option}" if found.sasl_jaas_config else f"neither {key} nor {_JAAS} is set"
            raise ConfigError(f"sasl.mechanism={mechanism} needs a user name and a password: {place}")


def _dotted(name: str) -> str:
    return name.replace("_", ".")


SECRET_KEYS = frozenset(
    {
        *(_dotted(each.name) for each in attrs.fields(SecuritySettings) if each.type == Secret[str]),
        *(
            alias
            for alias, name in SecuritySettings.ALIASES.items()
            if attrs.fields_dict(SecuritySettings)[name].type == Secret[str]
        ),
    }
)
"""The dotted keys whose values must not be shown."""
