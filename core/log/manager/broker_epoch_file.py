"""broker-epoch: the lives of a broker that its data folders have seen, so that a start knows what it follows upon."""

from collections.abc import Sequence

from ....ports.storage import FileMissing, LogDir, StorageError
from ....ports.values import frozen

BROKER_EPOCH = "broker-epoch"
"""Ours; Kafka has it in the marker of an orderly stop (KIP-966)."""
UNKNOWN = -1
LIVES_MAX = 1000
"""So many lives are listed at most, the latest ones."""
_LISTED, _EARLIER, _FOLDERS = "lives:", "...", "folders:"


@frozen(kw_only=True)
class BrokerLives:
    """The broker epochs in which a data folder was in use, ascending.

    `is_complete`: the folder was in use in no other life. False: in which earlier ones it was is unknown.
    """

    epochs: tuple[int, ...] = ()
    is_complete: bool = True
    folder_count: int = 0
    """How many data folders the broker had in the latest life; 0: unknown."""

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else UNKNOWN

    def includes(self, epoch: int) -> bool:
        """False if the folder was certainly not in use in that life: it is newer, or a copy from before."""
        return epoch in self.epochs or not (self.is_complete or (self.epochs and epoch > self.epochs[0]))

    def followed_by(self, epoch: int, folder_count: int = 0) -> "BrokerLives":
        """The lives with another one that begins, with so many data folders."""
        epochs = (*self.epochs, epoch)
        is_complete = self.is_complete and len(epochs) <= LIVES_MAX
        return BrokerLives(epochs=epochs[-LIVES_MAX:], is_complete=is_complete, folder_count=folder_count)


def noted_epoch(log_dirs: Sequence[LogDir]) -> int:
    """The life before as all data folders note it; -1 where one notes none, another one, or cannot be read."""
    noted = {read_lives(log_dir, is_new=True).latest for log_dir in log_dirs}
    return noted.pop() if len(noted) == 1 else UNKNOWN


def largest_epoch(log_dirs: Sequence[LogDir]) -> int:
    """The latest life that any data folder notes; -1 where none does."""
    return max((max(read_lives(log_dir, is_new=True).epochs, default=UNKNOWN) for log_dir in log_dirs), default=UNKNOWN)


def read_lives(log_dir: LogDir, *, is_new: bool) -> BrokerLives:
    """The lives that a data folder has seen; `is_new`: it holds no logs, so none where none is noted."""
    try:
        return parse_lives(log_dir.root.read_small(BROKER_EPOCH))
    except FileMissing:
        return BrokerLives(is_complete=is_new)
    except (StorageError, ValueError):
        return BrokerLives(is_complete=False)


def parse_lives(content: bytes) -> BrokerLives:
    """Raises `ValueError` for garbage."""
    version, latest, *others = content.decode().split("\n")
    if version != "0":
        raise ValueError(f"version {version[:20]!r}, expected 0")
    named, *listed = others[0].split() if others and others[0] else [""]
    if named != _LISTED:  # of a version that noted the latest life only
        return BrokerLives(epochs=(int(latest),), is_complete=False)
    is_complete = listed[:1] != [_EARLIER]
    epochs = tuple(int(each) for each in (listed if is_complete else listed[1:]))
    if not epochs or epochs[-1] != int(latest):
        raise ValueError("the lives do not end with the latest")
    found = others[1].removeprefix(_FOLDERS).strip() if len(others) > 1 else ""
    return BrokerLives(epochs=epochs, is_complete=is_complete, folder_count=int(found) if found else 0)


def format_lives(lives: BrokerLives) -> bytes:
    """Undo `parse_lives`."""
    listed = [_LISTED, *([] if lives.is_complete else [_EARLIER]), *map(str, lives.epochs)]
    counted = f"{_FOLDERS} {lives.folder_count}\n" if lives.folder_count else ""
    return f"0\n{lives.latest}\n{' '.join(listed)}\n{counted}".encode()


def write_lives(log_dir: LogDir, lives: BrokerLives) -> None:
    """Note the lives that a data folder has seen; durable on return. Any thread. Raises `StorageError`."""
    log_dir.root.write_small(BROKER_EPOCH, format_lives(lives))
