"""The workers of a machine before they run: their folders, shared ports where clients bootstrap, and coordination."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from ...core.log.manager.meta_properties import META_PROPERTIES
from ...core.log.names import classic_folder_partition, folder_partition
from ...ports.errors import ConfigError
from ...ports.report import Report, counted, info
from ...ports.types import TopicPartition
from ...ports.values import frozen
from ..config.workers import is_shared, worker_folders, worker_name, worker_settings
from ..reserve_port import reserve_port
from .broker import metrics_security, open_log_dirs_of, plugin_host
from .coordination import COORDINATION_FILE, workers_coordination
from .worker_control import HEALTHY, METRICS, READY, ControlledWorker, WorkerSilent

if TYPE_CHECKING:
    from ..config import BrokerConfig

_NAMED_MAX = 3


@frozen(kw_only=True)
class Worker:
    """One worker: its settings, and the shared ports by the index of their listener."""

    name: str
    settings: dict[str, object]
    shared: dict[int, socket.socket]


@frozen(kw_only=True)
class OpenedWorkers:
    """The workers of a machine, before they run."""

    listeners: list[str]
    """The listeners where clients bootstrap, with real ports."""
    workers: list[Worker]


@contextmanager
def opened_workers(config: BrokerConfig) -> Iterator[OpenedWorkers]:
    """Open what the workers share; it is closed at the end, when they have stopped.

    Raises `ConfigError` and other `BarnabasError`s; the text says what to change.
    """
    with ExitStack() as keep:
        if config.storage == "fs":
            for folder in open_log_dirs_of(config, of_workers=True):  # no other process may use them
                keep.callback(folder.close)
            _check_folders(config)
        shared = _open_shared(config, keep)
        settings = worker_settings(
            config,
            lambda host: reserve_port(host, keep),
            machine=socket.gethostname() or "this-machine",
        )
        url = keep.enter_context(workers_coordination(config, plugin_host(config)))
        listeners = [
            str(evolve(listener, port=shared[index].getsockname()[1]))
            for index, listener in enumerate(config.listener_list)
            if index in shared
        ]
        workers = [
            Worker(name=worker_name(number), settings={**each, "coordination": url}, shared=shared)
            for number, each in enumerate(settings, start=1)
        ]
        yield OpenedWorkers(listeners=listeners, workers=workers)


class WorkersMetrics:
    """The metrics and the health of all workers, at one endpoint."""

    def __init__(self, config: BrokerConfig, workers: Mapping[str, ControlledWorker], report: Report) -> None:
        """`workers`: by the value of the label `worker`. Raises `ConfigError`, `TransportError`."""
        from ...adapters.metrics_prometheus.endpoint import MetricsEndpoint
        from ...adapters.metrics_prometheus.metrics import PrometheusMetrics

        assert config.metrics_address is not None
        self._workers = workers
        self._threads = ThreadPoolExecutor(len(workers), "barnabas-workers")
        self.content_type = PrometheusMetrics.content_type
        security = metrics_security(config, report)
        self._endpoint = MetricsEndpoint(
            self,
            config.metrics_address,
            healthy=self._why_stuck,
            ready=self._why_not_ready,
            tls=security.tls,
            users=security.users,
        )
        host, port = self._endpoint.address
        report(
            info(
                f"metrics of all workers at {security.scheme}://{host}:{port}/metrics, their state at /healthz, /readyz"
            )
        )

    def render(self) -> bytes:
        """Return the metrics of the workers that answer, and which do."""
        from ...adapters.metrics_prometheus.metrics import merge_metrics

        answers = self._ask(METRICS)
        texts = {number: answer for number, answer in answers if isinstance(answer, bytes)}
        up = "".join(f'barnabas_worker_up{{worker="{number}"}} {int(number in texts)}\n' for number, _ in answers)
        head = "# HELP barnabas_worker_up Whether the worker answers its parent.\n# TYPE barnabas_worker_up gauge\n"
        return merge_metrics(texts, "worker") + f"{head}{up}".encode()

    def close(self) -> None:
        """Stop serving."""
        self._endpoint.close()
        self._threads.shutdown()

    def _ask(self, what: bytes) -> list[tuple[str, bytes | WorkerSilent]]:
        """Return the number of each worker and its answer."""

        def ask(worker: ControlledWorker) -> bytes | WorkerSilent:
            try:
                return worker.ask(what)
            except WorkerSilent as silent:
                return silent

        return list(zip(self._workers, self._threads.map(ask, self._workers.values()), strict=True))

    def _why_stuck(self) -> str | None:
        """Return the reasons of the workers that run; the parent restarts a worker that has ended."""
        found = self._ask(HEALTHY)
        return _reasons((number, answer) for number, answer in found if isinstance(answer, bytes) or answer.runs)

    def _why_not_ready(self) -> str | None:
        return _reasons(self._ask(READY))


def _reasons(answers: Iterable[tuple[str, bytes | WorkerSilent]]) -> str | None:
    reasons = ((number, each.decode() if isinstance(each, bytes) else str(each)) for number, each in answers)
    return "; ".join(f"worker {number}: {reason}" for number, reason in reasons if reason) or None


def _open_shared(config: BrokerConfig, keep: ExitStack) -> dict[int, socket.socket]:
    """Open the ports of the listeners, which all workers accept connections at. Raises `TransportError`."""
    from ...adapters.transport_tcp.listener import open_port

    opened = {}
    for index, listener in enumerate(config.listener_list):
        if is_shared(listener):
            opened[index] = open_port((listener.host, listener.port))
            keep.callback(opened[index].close)
    if not opened:
        raise ConfigError("workers need a listener kafka://HOST:PORT, where clients bootstrap")
    return opened


def _check_folders(config: BrokerConfig) -> None:
    """Raise `ConfigError` for data of a single broker, or of workers that are no longer wanted."""
    for path in map(Path, config.data_dirs):
        if (path / META_PROPERTIES).exists() or (path / COORDINATION_FILE).exists():
            text = f"{path} has the data of a single broker, and workers have folders of their own"
            raise ConfigError(f"{text}: serve it without workers, or start in a new folder and copy the topics there")
    number = config.workers + 1
    while any(Path(path).is_dir() for path in worker_folders(config, number)):
        held = [str(found) for path in worker_folders(config, number) for found in _partitions(Path(path))]
        if held:
            named = ", ".join(held[:_NAMED_MAX]) + (", ..." if len(held) > _NAMED_MAX else "")
            text = (
                f"workers={config.workers}, but {worker_name(number)} holds {counted(len(held), 'replica')} ({named})"
            )
            broker = "its broker" if config.broker_id < 0 else f"broker {config.broker_id + number - 1}"
            drain = "ID" if config.broker_id < 0 else str(config.broker_id + number - 1)
            raise ConfigError(
                f"{text}: start with at least {number} workers, empty {broker} with "
                f"'barnabas brokers drain {drain} --execute', and start with fewer then"
            )
        number += 1


def _partitions(folder: Path) -> list[TopicPartition]:
    if not folder.is_dir():
        return []
    names = sorted(each.name for each in folder.iterdir() if each.is_dir())
    found = [folder_partition(name) or classic_folder_partition(name) for name in names]
    return [each for each in found if each is not None]
