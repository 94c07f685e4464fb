"""The batches of a log, and how they are read back."""

from attrs import frozen

from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import HEADER_SIZE, parse_header
from barnabas.core.message.classic.entry import LENGTH
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import size_of


class Broken(AssertionError):
    """A promise was not kept."""


@frozen
class Written:
    """One batch, or one classic message, as it stands in the log."""

    base: int
    end: int
    data: bytes


def serve(log: UnifiedLog) -> list[Written]:
    """Return all batches that readers get, from the log's start to its end."""
    found: list[Written] = []
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            records = log.read(offset, max_bytes=1 << 20, limit=log.log_end_offset).records
        except ApiError as error:
            raise Broken(f"unreadable: {error}") from error
        data = records if isinstance(records, bytes) else records.read(0, size_of(records))
        part = _classic(data, offset) if log.format_name == "classic" else _batches(data)
        if not part:
            break
        found += part
        offset = part[-1].end
    return found


def _batches(data: bytes) -> list[Written]:
    found, position = [], 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        found.append(Written(header.base_offset, header.next_offset, data[position : position + header.size]))
        position += header.size
    return found


def _classic(data: bytes, offset: int) -> list[Written]:
    found, position = [], 0
    while position + LENGTH.size <= len(data):
        size = LENGTH.size + int(LENGTH.unpack_from(data, position)[0])
        if position + size > len(data):
            break
        found.append(Written(offset + position, offset + position + size, data[position : position + size]))
        position += size
    return found
