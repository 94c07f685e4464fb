"""The names of a partition's files and folder (facts B3)."""

import re
from functools import cache

from ...ports.types import TopicPartition

LOG_SUFFIX = ".log"
CLASSIC_SUFFIX = ".kafka"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
QUARANTINE_SUFFIX = ".aside"
"""Ours: files for an administrator to inspect. Other programs ignore them."""
DELETE_FOLDER_SUFFIX = "-delete"
STRAY_FOLDER_SUFFIX = "-stray"
ETCD_FOLDER = "etcd"
"""The folder with the data and the log of an etcd that the broker runs."""

SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(?P<state>\.deleted|\.cleaned|\.swap)?"
)
CLASSIC_SEGMENT_FILE = re.compile(r"(?P<base>[0-9]{20})\.kafka(?P<state>\.deleted)?")
_FOLDER = r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})"
_CLASSIC_FOLDER = r"(?P<topic>[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]{1,253})-(?P<partition>[0-9]{1,10})"
_TRANSIENT_FOLDER = re.compile(r"(?P<name>.+)\.[0-9a-f]+-(?P<state>delete|future|stray)")
_FOLDER_NAME_MAX_BYTES = 255


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}" if base_offset else _first_segment_file(suffix)


@cache  # each partition has these names in memory, and most have this segment
def _first_segment_file(suffix: str) -> str:
    return f"{0:020d}{suffix}"


def folder_partition(name: str) -> TopicPartition | None:
    """Return the partition of a folder: its topic is everything before the last '-'. None for other folders."""
    return _partition_of(_FOLDER, name)


def classic_folder_partition(name: str) -> TopicPartition | None:
    """Return the partition of a folder whose name only a classic topic may have (facts A3), else None."""
    return _partition_of(_CLASSIC_FOLDER, name)


def _partition_of(pattern: str, name: str) -> TopicPartition | None:
    found = re.fullmatch(pattern, name)
    if found is None or found["topic"] in (".", ".."):
        return None
    partition = int(found["partition"])
    return TopicPartition(found["topic"], partition) if str(partition) == found["partition"] else None


def folder_state(name: str) -> str | None:
    """Return "delete", "future" or "stray" for a folder in that state, else None."""
    found = _TRANSIENT_FOLDER.fullmatch(name)
    return found["state"] if found is not None else None


def parse_deleted_folder(name: str) -> TopicPartition | None:
    """Return the partition of a folder in such a state; None if its name was shortened, or is not of a partition."""
    found = _TRANSIENT_FOLDER.fullmatch(name)
    return classic_folder_partition(found["name"]) if found is not None else None


def transient_folder_name(partition: TopicPartition, unique: str, state_suffix: str) -> str:
    """Return the name of a folder that no longer belongs to its partition; `unique` is hexadecimal."""
    suffix = f"-{partition.partition}.{unique}{state_suffix}"
    return partition.topic.encode()[: _FOLDER_NAME_MAX_BYTES - len(suffix)].decode(errors="ignore") + suffix
