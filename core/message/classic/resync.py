"""Where a classic log can be read again behind damage."""

from ....ports.errors import ApiError
from .entry import LENGTH, MAGIC_0, next_entry

_MAGIC_AT = LENGTH.size
_MAGICS = (b"\0", b"\1")


def next_intact_entry(data: bytes, position: int) -> int | None:
    """The position of the next entry behind the one at `position` that is whole and right; None where there is none.

    First where the wrong one says that it ends, then wherever one can begin.
    """
    if position + LENGTH.size <= len(data):
        claimed: int = position + LENGTH.size + LENGTH.unpack_from(data, position)[0]
        if position < claimed < len(data) and _is_intact(data, claimed):
            return claimed
    for at in range(position + 1, len(data) - MAGIC_0.size + 1):
        if data[at + _MAGIC_AT : at + _MAGIC_AT + 1] in _MAGICS and data[at] < 0x80 and _is_intact(data, at):
            return at
    return None


def _is_intact(data: bytes, position: int) -> bool:
    length = LENGTH.unpack_from(data, position)[0] if position + LENGTH.size <= len(data) else 0
    if not 0 < length <= len(data) - position - LENGTH.size:
        return False
    try:
        return next_entry(memoryview(data)[position : position + LENGTH.size + length], 0) is not None
    except ApiError:
        return False
