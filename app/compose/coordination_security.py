"""The security of connections to ZooKeeper and etcd, from the settings of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ...core.cluster.layout import BROKER_CONFIGS, SECURITY
from ...core.security.jaas import JaasEntry, parse_one_login_module
from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ...ports.values import Secret

if TYPE_CHECKING:
    from ...adapters.coord_etcd import EtcdSecurity
    from ...adapters.coord_zookeeper import ZookeeperSecurity
    from ...adapters.coord_zookeeper.security import SaslExchange
    from ...adapters.transport_tls import TlsClient

_JAAS = "zookeeper.sasl.jaas.config"
_DIGEST_MODULE, _KERBEROS_MODULE = "DigestLoginModule", "Krb5LoginModule"
_DIGEST_SERVICE, _DIGEST_HOST = "zookeeper", "zk-sasl-md5"
"""ZooKeeper's own, at every host (its class SecurityUtils)."""
CONSUMERS = "/consumers"
"""The node below which classic consumers create theirs; Kafka leaves it open, too."""


def zookeeper_security(settings: Mapping[str, Any]) -> ZookeeperSecurity:
    """Return the security of a session with ZooKeeper. Raises `ConfigError`."""
    from ...adapters.coord_zookeeper import NodeAcls, ZookeeperSecurity

    tls = _zookeeper_tls(settings) if settings.get("zookeeper.ssl.client.enable") else None
    jaas = cast("Secret[str] | None", settings.get(_JAAS))
    login, user = (None, "") if not jaas else _zookeeper_login(parse_one_login_module(jaas, _JAAS))
    acls = None
    if settings.get("zookeeper.set.acl"):
        if login is None and (tls is None or not tls.settings.has_certificate):
            text = f"zookeeper.set.acl=true needs an identity: {_JAAS}, or zookeeper.ssl.client.enable=true"
            raise ConfigError(f"{text} and zookeeper.ssl.keystore.location")
        acls = NodeAcls(open_paths=(CONSUMERS,), secret_paths=(SECURITY, BROKER_CONFIGS))
    return ZookeeperSecurity(encrypt=None if tls is None else tls.wrap_blocking, login=login, user=user, acls=acls)


def _zookeeper_tls(settings: Mapping[str, Any]) -> TlsClient:
    from ...adapters.transport_tls import client_tls

    highest = settings["zookeeper.ssl.protocol"]
    algorithm = settings["zookeeper.ssl.endpoint.identification.algorithm"]
    try:
        return client_tls(
            SslSettings(
                keystore_type=settings["zookeeper.ssl.keystore.type"] or "JKS",
                keystore_location=settings["zookeeper.ssl.keystore.location"],
                keystore_password=settings["zookeeper.ssl.keystore.password"],
                truststore_type=settings["zookeeper.ssl.truststore.type"] or "JKS",
                truststore_location=settings["zookeeper.ssl.truststore.location"],
                truststore_password=settings["zookeeper.ssl.truststore.password"],
                enabled_protocols=tuple(
                    name
                    for name in settings["zookeeper.ssl.enabled.protocols"]
                    if not (highest == "TLSv1.2" and name == "TLSv1.3")
                ),
                cipher_suites=settings["zookeeper.ssl.cipher.suites"],
                endpoint_identification_algorithm="https" if algorithm.lower() == "https" else "",
            )
        )
    except ConfigError as error:
        raise ConfigError(f"connections to ZooKeeper: zookeeper.{error}") from None


def _zookeeper_login(entry: JaasEntry) -> tuple[Callable[[str], SaslExchange], str]:
    """Return the factory of logins to a host, and the user. Raises `ConfigError`."""
    module = entry.module.rpartition(".")[2]
    if module != _DIGEST_MODULE:
        raise ConfigError(f"{_JAAS}: the login module {entry.module[:100]} is not known; known: {_DIGEST_MODULE}")
    user, password = entry.option("username"), entry.options.get("password")
    if user is None or password is None:
        raise ConfigError(f"{_JAAS} has no option {'username' if user is None else 'password'}")
    from ...adapters.system import SystemEntropy
    from ...core.security.sasl.client import new_nonce
    from ...core.security.sasl.digest_md5 import DigestMd5Client

    entropy = SystemEntropy()

    def login(_: str) -> SaslExchange:
        return DigestMd5Client(user, password, new_nonce(entropy), service=_DIGEST_SERVICE, host=_DIGEST_HOST)

    return login, user


def etcd_security(settings: Mapping[str, Any]) -> EtcdSecurity:
    """Return the security of a session with etcd. Raises `ConfigError`."""
    from ...adapters.coord_etcd import EtcdSecurity

    cacert, cert, key = (settings.get(f"etcd.{name}") for name in ("cacert", "cert", "key"))
    user, password = settings.get("etcd.user"), settings.get("etcd.password")
    if bool(cert) != bool(key):
        raise ConfigError(f"etcd.{'key' if cert else 'cert'} is not set, though etcd.{'cert' if cert else 'key'} is")
    if user and not password:
        raise ConfigError(f"etcd.user={user} needs etcd.password, which is not set")
    if password and not user:
        raise ConfigError("etcd.password is set, and etcd.user is not")
    return EtcdSecurity(
        has_tls=not settings.get("etcd.insecure.transport", True) or bool(cacert or cert),
        cacert=cacert,
        cert=cert,
        key=key,
        user=user or "",
        password=password,
    )
