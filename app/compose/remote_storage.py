"""The built-in remote storages, and the opening of one of them or of a plug-in's by its URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...ports.errors import ClosedError, ConfigError
from ...ports.scheduler import Outcome, Scheduler
from ..extras import require

if TYPE_CHECKING:
    from ...plugins.host import PluginHost
    from ...ports.remote_storage import RemoteStorage
    from ..broker.state.tiering import RemoteOutside
    from ..config import BrokerConfig


def open_remote_storage(url: str, settings: Mapping[str, str], plugins: PluginHost) -> RemoteStorage:
    """Open the remote storage of a URL, or of a plug-in by its name.

    Raises `ConfigError` for an unknown scheme, which lists the known ones, and for malformed parts.
    """
    factory = plugins.remote_storage(url.partition("://")[0], _BUILT_IN)
    return factory(url, settings)


def open_for_reader(url: str) -> RemoteStorage:
    """Open a remote storage that brokers have filled, with the settings of the environment. Raises `ConfigError`."""
    from ...plugins.host import PluginHost

    parts = urlsplit(url)
    if parts.scheme == "file" and not Path(unquote(parts.path)).is_dir():
        raise ConfigError(f"there is not a folder {unquote(parts.path)}: name that of the brokers, file:///PATH")
    return open_remote_storage(url, {}, PluginHost())


@contextmanager
def opened_for_command(url: str) -> Iterator[RemoteStorage]:
    """Open a remote storage that is there for a command, as `open_for_reader` does."""
    storage = open_for_reader(url)
    try:
        yield storage
    finally:
        storage.close()


class _Workers:
    """Threads for the calls of remote storage, so that a slow one does not keep others from working."""

    def __init__(self, scheduler: Scheduler, name: str, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._scheduler = scheduler
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def offload(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        """Run `work` on a thread, then `done` on the owner's; neither once the threads are closed."""

        def run() -> None:
            outcome = Outcome.of(work)
            with suppress(ClosedError):
                self._scheduler.call_soon(lambda: done(outcome))

        with suppress(RuntimeError):
            self._executor.submit(run)

    def close(self) -> None:
        """Forget what has not begun, and wait for nothing."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def open_remote_of(config: BrokerConfig, scheduler: Scheduler, plugins: PluginHost) -> RemoteOutside:
    """Open the remote storage of a broker, and start the threads that call it. Raises `ConfigError`."""
    from ..broker.state.tiering import RemoteOutside

    url = config.remote_log_storage_manager_class_name or ""
    try:
        storage = open_remote_storage(url, config.remote_settings, plugins)
    except ConfigError as error:
        raise ConfigError(f"remote.log.storage.manager.class.name: {error}") from None
    copiers = _Workers(scheduler, "remote-copier", config.remote_log_manager_copier_thread_pool_size)
    readers = _Workers(scheduler, "remote-reader", config.remote_log_reader_threads)

    def close() -> None:
        copiers.close()
        readers.close()
        storage.close()

    return RemoteOutside(storage=storage, offload_copy=copiers.offload, offload_read=readers.offload, close=close)


def _folder(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    from ...adapters.remote_folder import open_folder_remote_storage

    return open_folder_remote_storage(url, settings)


def _memory(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    from ...adapters.remote_memory import open_memory_remote_storage

    return open_memory_remote_storage(url, settings)


def _s3(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    require("remote storage in s3://", ["obstore"], "s3")
    from ...adapters.remote_s3 import open_s3_remote_storage

    return open_s3_remote_storage(url, settings)


_BUILT_IN = {"file": _folder, "memory": _memory, "s3": _s3}
