"""The data folders and the coordination of a stopped broker, for maintenance commands."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..ports.coordination import Coordination
from ..ports.errors import ConfigError
from ..ports.report import Report
from ..ports.storage import LogDir
from .compose.broker import open_log_dirs_of, plugin_host
from .compose.coordination import broker_backend, broker_session_request
from .compose.memory import MemoryStorage
from .config import BrokerConfig


@contextmanager
def opened_offline(
    config: BrokerConfig, report: Report, *, to_write: bool
) -> Iterator[tuple[Sequence[LogDir], Coordination]]:
    """The data folders and the coordination of a broker that is stopped. Unless `to_write`, no file is made.

    Raises `ConfigError` for folders that are not there, `FolderLocked` while a broker has them.
    """
    missing = [path for path in config.data_dirs if not Path(path).is_dir()]
    if missing:
        raise ConfigError(f"{missing[0]} is not a data folder: it does not exist")
    with ExitStack() as closing:
        log_dirs = open_log_dirs_of(config)
        for log_dir in log_dirs:
            closing.callback(log_dir.close)
        backend, request = broker_backend(config, plugin_host(config)), broker_session_request(config, report)
        if to_write or backend.exists(request):
            coordination = backend.open(request)
        else:
            coordination = MemoryStorage(report).open_coordination()  # as empty as the file would be
        closing.callback(coordination.close)
        yield log_dirs, coordination
