"""Many encoded values in one buffer, and the readers of Avro's primitive types for all of them at once.

A value is a row; a row that ends too early, or has an invalid value, is marked odd and not read further.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_VARINT_BYTES_MAX = 10
_INT32 = np.iinfo(np.int32)
DECIMAL_BYTES = 16


class Span:
    """The unread rest of each row: from `position` to `end` in `data`, where rows are in order."""

    __slots__ = ("buffer", "data", "end", "odd", "position")

    def __init__(self, buffer: pa.Buffer, position: Ints, end: Ints) -> None:
        self.buffer = buffer
        self.data = np.frombuffer(buffer, dtype=np.uint8) if buffer.size else np.zeros(1, dtype=np.uint8)
        self.position = position
        self.end = end
        self.odd: Flags = np.zeros(len(position), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.position)

    def some(self, rows: Ints) -> "Span":
        """Return a separate span of these rows; `put` returns its positions."""
        part = Span.__new__(Span)
        part.buffer, part.data = self.buffer, self.data
        part.position, part.end, part.odd = self.position[rows], self.end[rows], self.odd[rows]
        return part

    def put(self, rows: Ints, part: "Span") -> None:
        self.position[rows] = part.position
        self.odd[rows] = part.odd

    def refuse(self, rows: Flags) -> None:
        """Mark rows as odd; they are not read further."""
        if rows.any():
            self.odd |= rows
            self.position[rows] = self.end[rows]

    def longs(self) -> Ints:
        """Read a zigzag varint of each row."""
        position, data = self.position, self.data
        byte = data.take(position, mode="clip")
        number = (byte & 0x7F).astype(np.uint64)
        position = position + 1
        going = np.flatnonzero(byte & 0x80)
        for index in range(1, _VARINT_BYTES_MAX):
            if not len(going):
                break
            byte = data.take(position[going], mode="clip")
            number[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            position[going] += 1
            going = going[(byte & 0x80) != 0]
        self.position = position
        late = position > self.end
        late[going] = True
        self.refuse(late)
        return (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64)

    def ints(self) -> npt.NDArray[np.int32]:
        numbers = self.longs()
        self.refuse((numbers < _INT32.min) | (numbers > _INT32.max))
        return numbers.astype(np.int32)

    def booleans(self) -> Flags:
        byte = self.data.take(self.position, mode="clip")
        self.position = self.position + 1
        self.refuse((self.position > self.end) | (byte > 1))
        return byte.astype(np.bool_)

    def floats(self) -> npt.NDArray[np.float32]:
        return self._fixed(4).view("<f4").reshape(-1)

    def doubles(self) -> npt.NDArray[np.float64]:
        return self._fixed(8).view("<f8").reshape(-1)

    def _fixed(self, size: int) -> npt.NDArray[np.uint8]:
        places = self.position[:, None] + np.arange(size)
        self.position = self.position + size
        self.refuse(self.position > self.end)
        return np.ascontiguousarray(self.data.take(places, mode="clip"))

    def regions(self, size: int | None) -> tuple[Ints, Ints]:
        """Return begin and end of bytes of `size`; None: with their length in front."""
        length = self.longs() if size is None else np.full(len(self), size, dtype=np.int64)
        self.refuse((length < 0) | (length > self.end - self.position))
        length = np.where(self.odd, 0, length)
        begin = self.position
        self.position = begin + length
        return begin, self.position

    def binary(self, size: int | None) -> pa.BinaryArray:
        begin, end = self.regions(size)
        return gathered(self.buffer, begin, end)

    def strings(self) -> pa.StringArray:
        """Read strings; invalid UTF-8 makes a row odd."""
        found = self.binary(None)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(value) for value in found.to_pylist()], dtype=np.bool_)
            self.refuse(wrong)
            valid = pa.array([b"" if bad else v for v, bad in zip(found.to_pylist(), wrong, strict=True)], pa.binary())
            return valid.cast(pa.string())

    def unscaled(self, size: int | None) -> npt.NDArray[np.uint8]:
        """Convert big-endian two's complement numbers to the 16 little-endian bytes of Arrow's decimals."""
        begin, end = self.regions(size)
        self.refuse(end - begin > DECIMAL_BYTES)
        places = end[:, None] - 1 - np.arange(DECIMAL_BYTES)
        inside = places >= begin[:, None]
        negative = (self.data.take(begin, mode="clip") >= 0x80) & (end > begin)
        fill = np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
        return np.ascontiguousarray(np.where(inside, self.data.take(places, mode="clip"), fill))


def gathered(buffer: pa.Buffer, begin: Ints, end: Ints) -> pa.BinaryArray:
    """Return the regions of a buffer as an array, taken from an array of regions and gaps in turn."""
    count = len(begin)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = begin
    offsets[1::2] = end
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer])
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
