"""Making a log durable, off the thread that owns it."""

from collections.abc import Mapping, Sequence

from ...ports.errors import ClosedError
from ...ports.storage import File, Folder
from ...ports.words import Offset
from .checkpoints import LEADER_EPOCHS


class FlushWork:
    """What to flush, collected by `LogFlushes.begin`. Call it on any thread, then give it to `LogFlushes.end`."""

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
        """How many messages the log had taken, ever, when the work began."""
        self.files_flushed = False
        """Set when the records are durable and only small files remain."""
        self.snapshots = snapshots
        """Of the producers: by file name what is true once the records are durable."""
        self._files = files
        self._folder = folder
        self._new_names = new_names
        self._epochs = epochs

    def __call__(self) -> None:
        """Do it. Raises `StorageError`; unless `files_flushed` it is then unknown which records became durable."""
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
