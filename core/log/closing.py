"""An orderly stop with many logs: they are made durable side by side, since one fsync after the other takes minutes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...ports.scheduler import Outcome, Scheduler
from ...ports.words import TopicPartition
from .data_folder import DataFolder


def close_all(
    scheduler: Scheduler,
    folders: Sequence[DataFolder],
    now_ms: int,
    also: Callable[[DataFolder], Mapping[str, bytes]],
    done: Callable[[], None],
) -> None:
    """Close all data folders with their logs; `done` is called when the last one is closed. See `_Closing`."""
    left = len(folders)

    def closed() -> None:
        nonlocal left
        left -= 1
        if not left:
            done()

    for folder in folders:
        _Closing(scheduler, folder, now_ms, partial(also, folder), closed).begin()


class _Closing:
    """Closes the logs of a data folder on the workers, then the folder. Owner thread only; `done` is called once.

    Nobody else may use the logs meanwhile. `also` gives further small files, asked for once all logs are closed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        folder: DataFolder,
        now_ms: int,
        also: Callable[[], Mapping[str, bytes]],
        done: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._folder = folder
        self._now_ms = now_ms
        self._also = also
        self._done = done
        self._open = len(folder.logs)

    def begin(self) -> None:
        if not self._open:
            self._finish()
        for key, log in self._folder.logs.items():
            self._scheduler.offload(partial(log.close, self._now_ms), partial(self._closed, key))

    def _closed(self, partition: TopicPartition, outcome: Outcome[None]) -> None:
        self._folder.closed(partition, outcome.error)
        self._open -= 1
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        also = self._also()

        def finished(outcome: Outcome[None]) -> None:
            try:
                outcome.get()
            finally:
                self._done()

        self._scheduler.offload(lambda: self._folder.finish(also), finished)
