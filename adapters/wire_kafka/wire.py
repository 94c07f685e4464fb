"""The types of the protocol as bytes (facts C1): readers that trust nothing, writers that copy no records.

There are two encodings of strings, bytes and arrays: the classic one and the compact one of flexible versions. A
version of an API uses one of them throughout its body, so `Reader` and `Writer` are the classic ones and their
subclasses the compact ones, and what reads or writes an API rarely needs to know which it has.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar

from ...ports.errors import Malformed
from ...ports.storage import JoinedBuffers, Region, size_of
from ...ports.transport import Piece
from ...ports.types import Buffer

I8 = Struct(">b")
I16 = Struct(">h")
I32 = Struct(">i")
U16 = Struct(">H")
I64 = Struct(">q")
_unpack_i16 = I16.unpack_from
_unpack_i32 = I32.unpack_from

TEXT_BYTES_MAX = 0x7FFF
"""No string is longer, in either encoding."""
TAGS_MAX = 1_000
"""Tagged fields accepted in one struct; the protocol defines fewer than ten."""
COPIED_BYTES_MAX = 4096
"""Longer bytes go into a frame by reference."""
UVARINT_BYTES_MAX = 5
UVARINT_MAX = 0xFFFF_FFFF


DECODE_ERRORS = (StructError, IndexError, ValueError, OverflowError)
"""Plain operations of a reader raise these on bytes that end early or are not UTF-8; they mean `Malformed`, too."""

ENCODE_ERRORS = (StructError, ValueError, TypeError, OverflowError)
"""A writer raises these on a value that the protocol cannot carry: too large, too long, null where it must not be."""


class Reader:
    """Takes values off a buffer, classic encoding. Slices share the buffer's memory; text is copied.

    `items_max` bounds the elements of all arrays together, so that a frame of tiny elements cannot become gigabytes of
    objects; no count makes anything be allocated before its elements are there.
    """

    __slots__ = ("buffer", "items_left", "position", "size")
    is_compact: ClassVar[bool] = False

    def __init__(self, buffer: memoryview, position: int, items_max: int) -> None:
        self.buffer = buffer
        self.position = position
        self.size = len(buffer)
        self.items_left = items_max

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Return the fixed-width fields of `layout`."""
        values = layout.unpack_from(self.buffer, self.position)
        self.position += layout.size
        return values

    def span(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        start = self.position
        end = start + size
        if size < 0 or end > self.size:
            raise Malformed(f"{size} bytes are claimed at {start}, {self.size - start} are there")
        self.position = end
        return self.buffer[start:end]

    def text(self) -> str:
        position = self.position
        (size,) = _unpack_i16(self.buffer, position)
        start = position + 2
        end = self.position = start + size
        if size < 0 or end > self.size:
            raise Malformed(f"a string of {size} bytes is claimed at {position}")
        return str(self.buffer[start:end], "utf-8")

    def nullable_text(self) -> str | None:
        (size,) = _unpack_i16(self.buffer, self.position)
        if size == -1:
            self.position += 2
            return None
        return self.text()

    def nullable_data(self) -> memoryview | None:
        (size,) = _unpack_i32(self.buffer, self.position)
        self.position += 4
        return None if size == -1 else self.span(size)

    def count(self) -> int:
        """Return the number of elements of an array; -1 for null."""
        (count,) = _unpack_i32(self.buffer, self.position)
        self.position += 4
        # An element takes at least one byte.
        if count < -1 or count > self.size - self.position or count > self.items_left:
            raise Malformed(f"an array of {count} elements is claimed before {self.position}")
        self.items_left -= count
        return int(count)

    def skip_tags(self) -> None:
        """Pass over the tagged fields at the end of a struct; the classic encoding has none."""

    def tags(self) -> Sequence[tuple[int, "Reader"]]:
        """Return the tagged fields at the end of a struct, each with a reader of its content."""
        return ()


class CompactReader(Reader):
    """A `Reader` of the compact encoding."""

    __slots__ = ()
    is_compact = True

    def uvarint(self) -> int:
        """Return an unsigned base-128 number of at most 32 bits."""
        buffer, position = self.buffer, self.position
        value = buffer[position]
        position += 1
        if value > 0x7F:
            value &= 0x7F
            for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
                byte = buffer[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                raise Malformed(f"the varint before byte {position} is too long")
            if value > UVARINT_MAX:
                raise Malformed(f"the varint before byte {position} has more than 32 bits")
        self.position = position
        return value

    def text(self) -> str:
        size = self.buffer[self.position] - 1
        if size > 0x7E:
            size = self.uvarint() - 1
            start = self.position
        else:
            start = self.position + 1
        end = self.position = start + size
        if size < 0 or end > self.size or size > TEXT_BYTES_MAX:
            raise Malformed(f"a string of {size} bytes is claimed before {start}")
        return str(self.buffer[start:end], "utf-8")

    def nullable_text(self) -> str | None:
        if self.buffer[self.position] == 0:
            self.position += 1
            return None
        return self.text()

    def nullable_data(self) -> memoryview | None:
        size = self.uvarint() - 1
        return None if size == -1 else self.span(size)

    def count(self) -> int:
        count = self.buffer[self.position] - 1
        if count > 0x7E:
            count = self.uvarint() - 1
        else:
            self.position += 1
        if count > self.size - self.position or count > self.items_left:
            raise Malformed(f"an array of {count} elements is claimed before {self.position}")
        self.items_left -= count
        return count

    def skip_tags(self) -> None:
        position = self.position
        if self.buffer[position] == 0:
            self.position = position + 1
            return
        count = self.uvarint()
        if count > TAGS_MAX:
            raise Malformed(f"{count} tagged fields are claimed before {self.position}")
        for _ in range(count):
            self.uvarint()
            self.span(self.uvarint())

    def tags(self) -> Sequence[tuple[int, Reader]]:
        if self.buffer[self.position] == 0:
            self.position += 1
            return ()
        count = self.uvarint()
        if count > TAGS_MAX:
            raise Malformed(f"{count} tagged fields are claimed before {self.position}")
        found: list[tuple[int, Reader]] = []
        for _ in range(count):
            tag = self.uvarint()
            found.append((tag, CompactReader(self.span(self.uvarint()), 0, self.items_left)))
        return found


class Writer:
    """Collects one frame as pieces, classic encoding: records by reference, all else in buffers between them."""

    __slots__ = ("_pieces", "out")
    is_compact: ClassVar[bool] = False

    def __init__(self) -> None:
        self.out = bytearray()
        self._pieces: list[Piece] = []

    def put(self, layout: Struct, *values: Any) -> None:
        """The fixed-width fields of `layout`."""
        self.out += layout.pack(*values)

    def text(self, text: str) -> None:
        content = text.encode()
        self.out += I16.pack(len(content))
        self.out += content

    def nullable_text(self, text: str | None) -> None:
        if text is None:
            self.out += b"\xff\xff"
        else:
            self.text(text)

    def data(self, data: Buffer | Region) -> None:
        """Bytes with their length before them, by reference; the last field that the current piece holds."""
        size = size_of(data)
        self.out += I32.pack(size)
        self._add(data, size)

    def raw(self, content: bytes) -> None:
        """Bytes as they are, by reference where they are many."""
        if len(content) > COPIED_BYTES_MAX:
            self._add(content, len(content))
        else:
            self.out += content

    def count(self, count: int) -> None:
        """The number of elements of an array that follows; -1 for null."""
        self.out += I32.pack(count)

    def end(self) -> None:
        """End a struct: no tagged fields; the classic encoding writes nothing."""

    def tagged(self, fields: Sequence[tuple[int, bytes]]) -> None:
        """End a struct with tagged fields, by ascending tag; the classic encoding has no room for them."""
        if fields:
            raise ValueError(f"{len(fields)} tagged fields in the classic encoding")

    def pieces(self) -> Sequence[Piece]:
        """Return the frame. The writer is used up."""
        if self.out:
            self._pieces.append(self.out)
        return self._pieces

    def _add(self, data: Buffer | Region, size: int) -> None:
        if size:
            self._pieces.append(self.out)
            if isinstance(data, JoinedBuffers):
                self._pieces += data.parts
            else:
                self._pieces.append(data)
            self.out = bytearray()


class CompactWriter(Writer):
    """A `Writer` of the compact encoding."""

    __slots__ = ()
    is_compact = True

    def uvarint(self, value: int) -> None:
        out = self.out
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)

    def text(self, text: str) -> None:
        content = text.encode()
        if len(content) > TEXT_BYTES_MAX:
            raise ValueError(f"a string of {len(content)} bytes is too long for the protocol")
        if len(content) < 0x7F:
            self.out.append(len(content) + 1)
        else:
            self.uvarint(len(content) + 1)
        self.out += content

    def nullable_text(self, text: str | None) -> None:
        if text is None:
            self.out.append(0)
        else:
            self.text(text)

    def data(self, data: Buffer | Region) -> None:
        size = size_of(data)
        self.uvarint(size + 1)
        self._add(data, size)

    def count(self, count: int) -> None:
        if count < 0x7F:
            self.out.append(count + 1)
        else:
            self.uvarint(count + 1)

    def end(self) -> None:
        self.out.append(0)

    def tagged(self, fields: Sequence[tuple[int, bytes]]) -> None:
        self.uvarint(len(fields))
        for tag, content in fields:
            self.uvarint(tag)
            self.uvarint(len(content))
            self.out += content
