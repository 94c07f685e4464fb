"""The names of classic topics (facts A3), which allow much more than those of the current generation."""

import re

from ....core.cluster.topics import INTERNAL_TOPICS
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError

TOPIC_NAME_MAX = 255
_FOLDER_NAME_MAX_BYTES = 255
_ILLEGAL = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_classic_topic(name: str, partition: int = 0) -> None:
    """Raise `ApiError(INVALID_TOPIC_EXCEPTION)` for a name that no classic topic may have."""
    fault = _fault(name, partition)
    if fault:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:260]!r} {fault}")


def _fault(name: str, partition: int) -> str:
    if not name:
        return "is empty"
    if name in INTERNAL_TOPICS:
        return "belongs to the broker itself"
    if name in (".", ".."):
        return "is the name of a folder"
    if len(name) > TOPIC_NAME_MAX:
        return f"is longer than {TOPIC_NAME_MAX} characters"
    if _ILLEGAL.search(name) or not name.isprintable():  # the latter could not stand in the registries
        return "has '/', or characters that cannot be printed"
    if len(f"{name}-{partition}".encode()) > _FOLDER_NAME_MAX_BYTES:
        return "is too long for the name of its folder"
    return ""
