"""The keys of secured connections to a coordination service, of brokers and of classic clients: those of ZooKeeper by
Kafka's names (before 4.0), those of etcd by the names of etcdctl's flags."""

import os
from collections.abc import Mapping
from typing import Any

from ...core.security.ssl_settings import STORE_TYPES
from ...ports.broker_api.configs import ConfigType
from ...ports.errors import ConfigError
from ...ports.values import Secret
from .key_table import key_table, keys_of
from .keys import flag_key, list_key, password_key, text_key

_VERSIONS = ("TLSv1.2", "TLSv1.3")
_REVOCATION = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
_NO_EFFECT = ("zookeeper.clientCnxnSocket", *_REVOCATION)
"""Keys without an effect at clients; a broker has them among the ignored ones."""
_ENVIRONMENT = "BARNABAS_"


@key_table
class CoordinationKeys:
    """A part of the table; see `BrokerConfig`."""

    zookeeper_set_acl: bool = flag_key(
        "zookeeper.set.acl",
        False,
        doc="Whether new nodes in ZooKeeper get ACLs: only the broker's user may change them, and others may read "
        "them unless they are secret.",
    )
    zookeeper_sasl_jaas_config: Secret[str] | None = password_key(
        "zookeeper.sasl.jaas.config",
        doc='Ours. DigestLoginModule required username="USER" password="PASSWORD"; is the login at ZooKeeper for the '
        "user of brokers, as in the section Client of a JAAS file.",
    )
    zookeeper_sasl_client_username: str = text_key(
        "zookeeper.sasl.client.username",
        "zookeeper",
        doc="The Kerberos service name of ZooKeeper; a system property in Kafka.",
    )
    zookeeper_ssl_client_enable: bool = flag_key(
        "zookeeper.ssl.client.enable", False, doc="Whether connections to ZooKeeper use TLS."
    )
    zookeeper_ssl_keystore_location: str | None = text_key(
        "zookeeper.ssl.keystore.location", None, doc="The file of the client certificate and its key for ZooKeeper."
    )
    zookeeper_ssl_keystore_password: Secret[str] | None = password_key(
        "zookeeper.ssl.keystore.password", doc="The password of zookeeper.ssl.keystore.location, and of its key."
    )
    zookeeper_ssl_keystore_type: str | None = text_key(
        "zookeeper.ssl.keystore.type",
        None,
        STORE_TYPES,
        doc="PEM or PKCS12. The type is detected by the content of the file.",
    )
    zookeeper_ssl_truststore_location: str | None = text_key(
        "zookeeper.ssl.truststore.location",
        None,
        doc="The file of the certificate authorities that are trusted for ZooKeeper; unset: those of the system.",
    )
    zookeeper_ssl_truststore_password: Secret[str] | None = password_key(
        "zookeeper.ssl.truststore.password", doc="The password of zookeeper.ssl.truststore.location."
    )
    zookeeper_ssl_truststore_type: str | None = text_key(
        "zookeeper.ssl.truststore.type",
        None,
        STORE_TYPES,
        doc="PEM or PKCS12. The type is detected by the content of the file.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = list_key(
        "zookeeper.ssl.enabled.protocols", _VERSIONS, _VERSIONS, doc="The enabled versions of TLS."
    )
    zookeeper_ssl_protocol: str = text_key(
        "zookeeper.ssl.protocol", "TLSv1.3", ("TLS", *_VERSIONS), doc="The highest version of TLS."
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = list_key(
        "zookeeper.ssl.cipher.suites",
        (),
        doc="The cipher suites by Java's or OpenSSL's names; empty: OpenSSL's default.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = text_key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        ("HTTPS", "https", "none", ""),
        doc="HTTPS: the host name is verified against ZooKeeper's certificate; none or empty: it is not.",
    )
    etcd_insecure_transport: bool = flag_key(
        "etcd.insecure.transport",
        True,
        doc="Ours. false: connections to etcd use TLS with the system's certificate authorities; etcd.cacert and "
        "etcd.cert imply it.",
    )
    etcd_cacert: str | None = text_key(
        "etcd.cacert",
        None,
        doc="Ours. The PEM file of the certificate authorities that are trusted for etcd; implies TLS.",
    )
    etcd_cert: str | None = text_key(
        "etcd.cert", None, doc="Ours. The PEM file of the client certificate for etcd; implies TLS."
    )
    etcd_key: str | None = text_key("etcd.key", None, doc="Ours. The PEM file of the private key of etcd.cert.")
    etcd_user: str | None = text_key("etcd.user", None, doc="Ours. The user name for etcd with authentication.")
    etcd_password: Secret[str] | None = password_key("etcd.password", doc="Ours. The password of etcd.user.")


COORDINATION_KEYS = keys_of(CoordinationKeys)

SECRET_COORDINATION_KEYS = frozenset(name for name, key in COORDINATION_KEYS.items() if key.type is ConfigType.PASSWORD)
"""The dotted keys whose values must not be shown."""


def is_coordination_key(name: str) -> bool:
    """Return whether a dotted key of a client belongs to its coordination service."""
    return name in COORDINATION_KEYS or name in _NO_EFFECT


def read_coordination_settings(given: Mapping[str, Any]) -> dict[str, object]:
    """Return all settings of a client for its coordination service, from those that are given. Raises `ConfigError`."""
    for name in _REVOCATION:
        if str(given.get(name, "false")).lower() != "false":
            raise ConfigError(f"{name}={given[name]}: revoked certificates are not looked for; set it to false")
    given = {name: value for name, value in given.items() if value is not None and name in COORDINATION_KEYS}
    return coordination_settings(CoordinationKeys(**{COORDINATION_KEYS[name].attribute: given[name] for name in given}))


def coordination_settings(keys: CoordinationKeys) -> dict[str, object]:
    """Return the settings by their names. A secret that is not set comes from the environment: `BARNABAS_ETCD_PASSWORD`
    and so on."""
    found = {name: getattr(keys, key.attribute) for name, key in COORDINATION_KEYS.items()}
    for name in SECRET_COORDINATION_KEYS:
        variable = _ENVIRONMENT + name.upper().replace(".", "_")
        if found[name] is None and os.environ.get(variable):
            found[name] = Secret(os.environ[variable])
    return found
