"""The settings of workers: brokers of one machine that come from one configuration (`barnabas serve --workers`).

Each worker is a broker of the cluster with its own number, data folder and ports. Worker 1 has the first number and the
port after the shared one, worker 2 the next ones, and so on.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

from ...core.cluster.topics import ALL_LOG_DIRS, CORDONED_KEY
from ...core.log.manager.meta_properties import META_PROPERTIES
from ...ports.errors import ConfigError
from ...ports.report import counted
from .broker_config import BrokerConfig
from .listeners import KAFKA, ListenAddress

PORT_MAX = 65_535
_EVERYWHERE = ("", "0.0.0.0", "::")


def worker_name(number: int) -> str:
    """Return the name of a worker, which is that of its folder as well."""
    return f"worker-{number}"


def worker_settings(config: BrokerConfig, reserve: Callable[[str], int], *, machine: str) -> list[dict[str, object]]:
    """Return the settings of each worker, which win over `config`.

    `reserve`: returns a free port of a host, for listeners at port 0. Raises `ConfigError`.
    """
    count = config.workers
    if config.broker_id >= 0 and config.broker_id + count - 1 > config.reserved_broker_max_id:
        text = f"broker.id={config.broker_id} with {counted(count, 'worker')} reaches beyond"
        raise ConfigError(f"{text} reserved.broker.max.id={config.reserved_broker_max_id}")
    ports = [_ports(listener, count, reserve) for listener in config.listener_list]
    _check_apart(config.listener_list, count)
    advertised = config.advertised_listener_list
    for address in advertised:
        if address.port:
            _check_range(f"advertised.listeners={address}", address.port, count)
    found: list[dict[str, object]] = []
    for number in range(1, count + 1):
        settings: dict[str, object] = {
            "workers": 1,
            "broker.id": config.broker_id + number - 1 if config.broker_id >= 0 else config.broker_id,
            "broker.machine": config.broker_machine or machine,
            "listeners": ",".join(
                _at(text, listener, ports[index][number - 1])
                for index, (text, listener) in enumerate(zip(config.listeners, config.listener_list, strict=True))
            ),
            "metrics.listen": "",
        }
        if advertised:
            settings["advertised.listeners"] = ",".join(
                _at(text, address, address.port and address.port + number)
                for text, address in zip(config.advertised_listeners, advertised, strict=True)
            )
        if config.storage == "fs":
            settings["log.dirs"] = ",".join(worker_folders(config, number))
            if config.cordoned_log_dirs and tuple(config.cordoned_log_dirs) != (ALL_LOG_DIRS,):
                cordoned = sorted(config.cordoned_dirs(config.cordoned_log_dirs))
                settings[CORDONED_KEY] = ",".join(_below(path, number) for path in cordoned)
        if number > 1:
            settings.update({f"{service}.listen": "" for service in config.services})
        found.append(settings)
    return found


def worker_folders(config: BrokerConfig, number: int) -> list[str]:
    """Return the data folders of a worker, one in each data folder of the configuration."""
    return [_below(path, number) for path in config.data_dirs]


def has_workers(folder: str | Path) -> bool:
    """Return True if a data folder has been used by workers."""
    return (Path(folder) / worker_name(1) / META_PROPERTIES).exists()


def _below(path: str, number: int) -> str:
    return str(Path(path) / worker_name(number))


def is_shared(listener: ListenAddress) -> bool:
    """Return True for a listener whose own port all workers share: classic clients have no use for such a port."""
    return listener.protocol == KAFKA


def _ports(listener: ListenAddress, count: int, reserve: Callable[[str], int]) -> list[int]:
    if not listener.port:
        return [reserve(listener.host or "0.0.0.0") for _ in range(count)]
    _check_range(f"listeners={listener}", listener.port, count)
    return [listener.port + number for number in range(1, count + 1)]


def _check_range(what: str, port: int, count: int) -> None:
    if port + count > PORT_MAX:
        raise ConfigError(f"{what}: {counted(count, 'worker')} need as many ports after it, up to {PORT_MAX}")


def _check_apart(listeners: Sequence[ListenAddress], count: int) -> None:
    """Raise `ConfigError` where the ports of two listeners and their workers overlap."""
    for one, other in combinations(listeners, 2):
        same_host = one.host == other.host or one.host in _EVERYWHERE or other.host in _EVERYWHERE
        if same_host and one.port and other.port and abs(one.port - other.port) <= count:
            text = f"listeners {one} and {other} are too close: the {counted(count, 'worker')} of a listener have"
            raise ConfigError(f"{text} the ports after it; leave a gap of more than {count}")


def _at(text: str, address: ListenAddress, port: int) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{text.partition('://')[0].strip()}://{host}:{port}"
