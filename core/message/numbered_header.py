"""A header that all messages of a batch get, each with a number of its own: laid out for a whole batch at once."""

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
        """That of the messages after the first `count` of them."""
        return self._replace(first=self.first + count)

    def numbers(self, count: int) -> list[bytes]:
        """The ends of the first `count` messages' values."""
        return list(map(_NUMBER.pack, range(self.first, self.first + count)))

    def headers(self, count: int) -> list[Headers]:
        """The headers of the first `count` messages."""
        return [((self.name, self.head + number),) for number in self.numbers(count)]
