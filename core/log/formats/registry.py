"""The formats of logs by the value of `message.format`, and by the files of an existing log."""

from collections.abc import Iterable

from ....ports.storage import StorageError
from ..log_format import LogFormat
from ..names import CLASSIC_SEGMENT_FILE, LOG_SUFFIX, SEGMENT_FILE
from .batch_format import BatchFormat
from .classic_format import ClassicFormat

BATCHES = "v2"
CLASSIC = "classic"

_FORMATS: dict[str, LogFormat] = {BATCHES: BatchFormat(), CLASSIC: ClassicFormat()}


def get_log_format(name: str) -> LogFormat:
    """Return the strategy for a value of `message.format`."""
    return _FORMATS[name]


def holds_classic_segments(files: Iterable[str]) -> bool:
    return any(CLASSIC_SEGMENT_FILE.fullmatch(name) is not None for name in files)


def detect_format(folder: str, files: Iterable[str]) -> str | None:
    """Return the format of a folder by its files, None without segments. Raises `StorageError` for a mixture."""
    found = set()
    for name in files:
        match = SEGMENT_FILE.fullmatch(name)
        if match is not None and match["kind"] == LOG_SUFFIX:
            found.add(BATCHES)
        elif CLASSIC_SEGMENT_FILE.fullmatch(name) is not None:
            found.add(CLASSIC)
    if len(found) > 1:
        raise StorageError(f"{folder} contains segments of both generations; move one of them to another folder")
    return found.pop() if found else None
