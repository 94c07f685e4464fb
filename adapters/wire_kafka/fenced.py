"""PRODUCER_FENCED came with Kafka 2.7; clients before know INVALID_PRODUCER_EPOCH (KIP-588, facts C6)."""

from ...ports.error_codes import ErrorCode
from .schema import ERROR
from .wire import Reader, Writer


class FencedError:
    """An error code; versions below `since` carry INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED."""

    def __init__(self, *, since: int) -> None:
        self._since = since

    def read(self, reader: Reader, version: int) -> ErrorCode:
        return ERROR.read(reader, version)

    def write(self, writer: Writer, version: int, value: ErrorCode) -> None:
        if version < self._since and value is ErrorCode.PRODUCER_FENCED:
            value = ErrorCode.INVALID_PRODUCER_EPOCH
        ERROR.write(writer, version, value)
