"""broker-epoch: the last life of a broker that the data folders know, so that a start knows what it follows upon."""

from collections.abc import Sequence

from ...ports.storage import FileMissing, LogDir, StorageError

BROKER_EPOCH = "broker-epoch"
"""Ours; Kafka keeps it in the marker of an orderly stop (KIP-966)."""
UNKNOWN = -1


def noted_epoch(log_dirs: Sequence[LogDir]) -> int:
    """What all data folders say; -1 where one says nothing, something else, or cannot be read."""
    noted = {_noted(log_dir) for log_dir in log_dirs}
    return noted.pop() if len(noted) == 1 else UNKNOWN


def _noted(log_dir: LogDir) -> int:
    try:
        version, epoch = log_dir.root.read_small(BROKER_EPOCH).decode().split("\n")[:2]
        return int(epoch) if version == "0" else UNKNOWN
    except (FileMissing, StorageError, ValueError):
        return UNKNOWN


def note_epoch(log_dirs: Sequence[LogDir], epoch: int) -> None:
    """Keep the epoch of a life that begins. Any thread. Raises `StorageError` when no folder can be written."""
    errors: list[StorageError] = []
    for log_dir in log_dirs:
        try:
            log_dir.root.write_small(BROKER_EPOCH, f"0\n{epoch}\n".encode())
        except StorageError as error:
            errors.append(error)
    if len(errors) == len(log_dirs):
        raise errors[0]
