"""The periodic retention of all logs, and the delayed removal of old segments (facts B3)."""

from collections.abc import Callable, Mapping, Sequence

from ....ports.clock import Clock
from ....ports.errors import ConfigError
from ....ports.scheduler import Outcome, Scheduler
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ..config import LogConfig
from ..log_format import LogSegment
from ..retention import DeletionPolicy
from . import log_lines
from .data_folder import DataFolder


class RetentionTask:
    """Owner thread only. `homes` are the data folders of the logs; `closed` returns True after a stop."""

    def __init__(
        self,
        homes: Mapping[TopicPartition, DataFolder],
        *,
        clock: Clock,
        scheduler: Scheduler,
        policy_for: Callable[[LogConfig, TopicPartition], DeletionPolicy],
        report: Callable[[str], None],
        closed: Callable[[], bool],
    ) -> None:
        self._homes = homes
        self._clock = clock
        self._scheduler = scheduler
        self._policy_for = policy_for
        self._report = report
        self._closed = closed

    def retain(self, high_watermark_of: Callable[[TopicPartition], int | None] | None) -> None:
        """Delete the old segments of every log, below its high watermark where that is known."""
        now_ms = self._clock.now_ms()
        gone: dict[TopicPartition, Sequence[LogSegment]] = {}
        for partition, home in list(self._homes.items()):
            log = home.logs.get(partition)
            if log is None:
                continue
            known = high_watermark_of(partition) if high_watermark_of is not None else None
            try:
                if log.policy_name != log.config.deletion_policy:
                    log.update_config(log.config, self._policy_for(log.config, partition))
                removed = log.retain(now_ms, known if known is not None else log.readable_end)
            except (StorageError, ConfigError) as error:
                home.checked(f"retention of {partition}", error)
                continue
            if removed:
                gone[partition] = removed
                self._delete_later(partition, removed, log.config.file_delete_delay_ms)
        for line in log_lines.retention(gone):
            self._report(line)

    def _delete_later(self, partition: TopicPartition, removed: Sequence[LogSegment], delay_ms: int) -> None:
        def delete() -> None:
            for segment in removed:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and partition in self._homes:
                self._report(f"{partition}: old segments could not be removed: {outcome.error}")

        def due() -> None:
            if not self._closed():  # the next start removes what remains
                self._scheduler.offload(delete, done)

        self._scheduler.call_later(delay_ms, due)
