"""A header with a consecutive number for each message of a batch, encoded for the whole batch at once."""

from struct import Struct
from typing import NamedTuple

from .message import Headers

NUMBER_SIZE = 8
_NUMBER = Struct(">Q")


class NumberedHeader(NamedTuple):
    """Message `i` of the batch has the header `name` with the value `head`, then `first` + i as 8 bytes, big-endian."""

    name: str
    head: bytes
    first: int

    def advance(self, count: int) -> "NumberedHeader":
        """Return the header of the messages after the first `count`."""
        return self._replace(first=self.first + count)

    def numbers(self, count: int) -> list[bytes]:
        """Return the number part of the first `count` header values."""
        return list(map(_NUMBER.pack, range(self.first, self.first + count)))

    def headers(self, count: int) -> list[Headers]:
        """Return the headers of the first `count` messages."""
        return [((self.name, self.head + number),) for number in self.numbers(count)]
