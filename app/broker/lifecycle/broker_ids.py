"""Generation of a broker id for broker.id=-1: the id in the data folders, or a new one of the cluster."""

from collections.abc import Sequence

from attrs import evolve

from ....core.cluster.brokers import next_broker_id
from ....core.log.manager.meta_properties import META_PROPERTIES, read_meta_properties
from ....ports.coordination import Coordination
from ....ports.errors import ConfigError
from ....ports.report import Report, info
from ....ports.storage import LogDir, StorageError
from ...config import BrokerConfig

GENERATED = -1


def with_broker_id(
    config: BrokerConfig, log_dirs: Sequence[LogDir], coordination: Coordination, report: Report
) -> BrokerConfig:
    """Return the configuration with a broker id, which `checked_cluster_id` writes into the data folders.

    Raises `ConfigError` where no id may be generated, or the folders disagree; `CoordinationError`.
    """
    if config.broker_id != GENERATED:
        return config
    known = _noted(log_dirs)
    if known is not None:
        return evolve(config, broker_id=known)
    if not config.broker_id_generation_enable:
        raise ConfigError("broker.id=-1, and broker.id.generation.enable is false: set broker.id")
    made = next_broker_id(coordination, config.reserved_broker_max_id)
    report(info(f"this broker has got the number {made}, which its data folders keep", broker=made))
    return evolve(config, broker_id=made)


def _noted(log_dirs: Sequence[LogDir]) -> int | None:
    """Return the broker id in the data folders, or None. Raises `ConfigError` where they disagree."""
    noted: dict[int, str] = {}
    for log_dir in log_dirs:
        try:
            identity = read_meta_properties(log_dir)
        except StorageError:
            continue  # the folder cannot be used, which its logs will report
        if identity is not None and identity.broker_id is not None:
            noted[identity.broker_id] = log_dir.path
    if len(noted) > 1:
        owners = ", ".join(f"{path} to broker {number}" for number, path in noted.items())
        raise ConfigError(f"the data folders belong to different brokers, says their {META_PROPERTIES}: {owners}")
    return next(iter(noted), None)
