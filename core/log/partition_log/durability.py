"""The recovery point of a log, and the flushes that raise it (facts B3, A4)."""

from collections.abc import Mapping, Sequence

from ....ports.errors import ClosedError
from ....ports.storage import File, Folder, StorageError
from ....ports.types import Offset
from ..checkpoints import LEADER_EPOCHS
from ..config import LONG_MAX, LogConfig


class FlushWork:
    """The files to flush, from `LogFlushes.begin_flush`. Call it on any thread, then pass it to
    `LogFlushes.end_flush`."""

    __slots__ = (
        "_epochs",
        "_files",
        "_folder",
        "_new_names",
        "appended_messages",
        "began_ms",
        "files_flushed",
        "snapshots",
        "target",
        "truncations",
    )

    def __init__(
        self,
        *,
        target: Offset,
        files: Sequence[File],
        folder: Folder,
        new_names: bool,
        epochs: bytes | None,
        truncations: int,
        began_ms: int,
        appended_messages: int,
        snapshots: Mapping[str, bytes],
    ) -> None:
        self.target = target
        """Everything below this offset is durable when the work is done."""
        self.truncations = truncations
        self.began_ms = began_ms
        self.appended_messages = appended_messages
        """Number of messages appended to the log when the work began."""
        self.files_flushed = False
        """Set when the records are durable and only small files remain."""
        self.snapshots = snapshots
        """Producer snapshots by file name; they are valid once the records are durable."""
        self._files = files
        self._folder = folder
        self._new_names = new_names
        self._epochs = epochs

    def __call__(self) -> None:
        """Flush. Raises `StorageError`; unless `files_flushed`, it is then unknown which records are durable."""
        for file in self._files:
            try:
                file.flush()
            except ClosedError:
                continue  # the segment was deleted meanwhile
        if self._new_names:
            self._folder.flush()
        self.files_flushed = True
        small = {} if self._epochs is None else {LEADER_EPOCHS: self._epochs}
        self._folder.write_all_small({**small, **self.snapshots})


class Durability:
    """The flush state of one log. Owner thread only.

    recovery_point: all records below are durable.
    appended:       number of messages appended to the log; `at_roll` of them when the active segment began.
    new_names:      the folder has new files since its last flush.
    failure:        the failed flush; appends are refused, since written records may not be durable.
    """

    def __init__(self) -> None:
        self.recovery_point = Offset(0)
        self.appended = 0
        self.at_roll = 0
        self.new_names = True
        self.failure: StorageError | None = None
        self.under_way = False
        self._flushed = 0
        self._last_flush_ms = 0
        self._truncations = 0
        self.truncated_to = LONG_MAX
        """Lowest offset to which the log was truncated since a flush began; -1 after all was deleted."""
        self._found: tuple[int, int, int] | None = None

    def opened(self, recovery_point: Offset, end: Offset, *, in_order: bool) -> None:
        """Set the state of an opened log; `in_order` after a clean shutdown."""
        self.recovery_point = recovery_point
        self.appended = end - recovery_point
        self._found = self._state() if in_order else None

    @property
    def is_as_found(self) -> bool:
        """Return True if the log has not changed since a clean shutdown, so that close need not flush."""
        return self._found == self._state()

    def _state(self) -> tuple[int, int, int]:
        return self.appended, self._truncations, self.recovery_point

    def reset_to(self, offset: Offset) -> None:
        """Reset the state to that of an empty log which begins at `offset`."""
        self.recovery_point = offset
        self.truncated_to = -1
        self._flushed = self.at_roll = self.appended

    def note_flush_time(self, now_ms: int) -> None:
        """Restart the interval of `flush.ms`."""
        self._last_flush_ms = max(self._last_flush_ms, now_ms)

    def due(self, end: Offset, config: LogConfig, now_ms: int) -> bool:
        """Return True if `flush.messages` or `flush.ms` requires a flush of a log that ends at `end`."""
        if end <= self.recovery_point:
            return False
        last_ms = self._last_flush_ms
        self._last_flush_ms = last_ms if last_ms <= now_ms else now_ms  # the clock may have been set back
        return self.appended - self._flushed >= config.flush_messages or now_ms - self._last_flush_ms >= config.flush_ms

    def may_begin(self, target: Offset) -> bool:
        """Return False without unflushed records below `target`, during a flush, or after a failure."""
        return not self.under_way and self.failure is None and target > self.recovery_point

    def take_new_names(self) -> bool:
        """Return True if the folder must be flushed too, also while another flush may do so with unknown outcome."""
        taken, self.new_names = self.new_names or self.under_way, False
        return taken

    @property
    def truncations(self) -> int:
        """Number of truncations: a flush that began before one proves nothing about later records."""
        return self._truncations

    def truncated(self, offset: Offset) -> None:
        """Note that the records from `offset` on were truncated."""
        self._truncations += 1
        self.truncated_to = min(self.truncated_to, offset)
        self.lower(offset)

    def lower(self, offset: Offset) -> None:
        self.recovery_point = min(self.recovery_point, offset)

    def raise_recovery_point(self, offset: Offset) -> None:
        self.recovery_point = max(self.recovery_point, offset)

    def done(self, work: FlushWork, end: Offset) -> bool:
        """Complete `work`; return False if the log was truncated meanwhile, so that its durable end is unknown."""
        self.note_flush_time(work.began_ms)
        if work.truncations != self._truncations:
            return False
        self.raise_recovery_point(min(work.target, end))
        self._flushed = max(self._flushed, work.appended_messages)
        return True
