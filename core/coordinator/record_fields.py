"""Keys and values of the records of internal topics: Kafka's own encoding of their fields (facts C1, E3).

Strings have 16-bit lengths, bytes and lists 32-bit ones; in flexible values varints one above the length, and fields
with tags end each structure.
"""

from collections.abc import Collection, Mapping
from struct import Struct, error, unpack_from

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError

STRING_BYTES_MAX = 0x7FFF

_BYTE = Struct(">b")
_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_UUID_BYTES = 16


class UnknownVersion(ApiError):
    """A record of a version that this release does not know."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"{what} of version {version}")


def encode_text(text: str) -> bytes:
    """Raises `ApiError` INVALID_REQUEST for one that is too long."""
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a text of {len(data)} bytes; at most {STRING_BYTES_MAX} fit")
    return _SHORT.pack(len(data)) + data


def encode_varint(number: int) -> bytes:
    """Encode an unsigned varint, as the lengths and tags of flexible versions are."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(0x80 | (number & 0x7F))
        number >>= 7
    parts.append(number)
    return bytes(parts)


class FlexibleWriter:
    """Writes a value of a flexible version, field after field. Its methods mirror those of `FlexibleReader`."""

    __slots__ = ("_out",)

    def __init__(self, version: int) -> None:
        self._out = bytearray(_SHORT.pack(version))

    def i8(self, number: int) -> None:
        self._out += _BYTE.pack(number)

    def i32(self, number: int) -> None:
        self._out += _INT.pack(number)

    def i64(self, number: int) -> None:
        self._out += _LONG.pack(number)

    def uuid(self, data: bytes) -> None:
        self._out += data

    def count(self, count: int) -> None:
        """The length of a list."""
        self._out += encode_varint(count + 1)

    def text(self, text: str) -> None:
        self.data(text.encode())

    def optional_text(self, text: str | None) -> None:
        if text is None:
            self._out.append(0)
        else:
            self.text(text)

    def data(self, data: bytes) -> None:
        self._out += encode_varint(len(data) + 1)
        self._out += data

    def numbers(self, numbers: Collection[int]) -> None:
        """A list of 32-bit integers."""
        self.count(len(numbers))
        for number in numbers:
            self.i32(number)

    def texts(self, texts: Collection[str]) -> None:
        """A list of strings."""
        self.count(len(texts))
        for text in texts:
            self.text(text)

    def end(self, tags: Mapping[int, bytes] | None = None) -> None:
        """The tagged fields at the end of a structure, by their numbers in ascending order."""
        self._out += encode_varint(len(tags or {}))
        for tag, data in (tags or {}).items():
            self._out += encode_varint(tag) + encode_varint(len(data)) + data

    def value(self) -> bytes:
        """Return the value."""
        return bytes(self._out)


class RecordReader:
    """Reads Kafka's plain types one after the other. Every method raises `ApiError` CORRUPT_MESSAGE at nonsense."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def i8(self) -> int:
        return self._number(_BYTE)

    def i16(self) -> int:
        return self._number(_SHORT)

    def i32(self) -> int:
        return self._number(_INT)

    def i64(self) -> int:
        return self._number(_LONG)

    def count(self) -> int:
        """Read the length of a list. Raises CORRUPT_MESSAGE if fewer bytes than elements follow."""
        count = self._list_size()
        if not 0 <= count <= len(self._data) - self._position:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a list of {count} elements")
        return count

    def optional_count(self) -> int | None:
        """Return the length of a list as `count` does; None for null."""
        at = self._position
        if self._list_size() == -1:
            return None
        self._position = at
        return self.count()

    def skip_tags(self) -> None:
        """At the end of a structure."""

    def tags(self) -> Mapping[int, bytes]:
        """Read the tagged fields at the end of a structure; there are none in versions that are not flexible."""
        return {}

    def text(self) -> str:
        text = self.optional_text()
        if text is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "null where a text must be")
        return text

    def optional_text(self) -> str | None:
        size = self._text_size()
        if size == -1:
            return None
        try:
            return self._read_bytes(size).decode()
        except UnicodeDecodeError as problem:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a text that is not UTF-8: {problem.reason}") from None

    def data(self) -> bytes:
        return self._read_bytes(self.i32())

    def optional_data(self) -> bytes | None:
        size = self.i32()
        return None if size < 0 else self._read_bytes(size)

    @property
    def has_more(self) -> bool:
        """True before the end."""
        return self._position < len(self._data)

    def uuid(self) -> bytes:
        return self._read_bytes(_UUID_BYTES)

    def numbers(self) -> tuple[int, ...]:
        """Read a list of 32-bit integers."""
        return tuple(self.i32() for _ in range(self.count()))

    def texts(self) -> tuple[str, ...]:
        """Read a list of strings."""
        return tuple(self.text() for _ in range(self.count()))

    def _text_size(self) -> int:
        return self.i16()

    def _list_size(self) -> int:
        return self.i32()

    def _number(self, form: Struct) -> int:
        try:
            (number,) = unpack_from(form.format, self._data, self._position)
        except error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "it ends too early") from None
        self._position += form.size
        return int(number)

    def _read_bytes(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes where {len(self._data) - self._position} are left")
        data = self._data[self._position : end]
        self._position = end
        return data


class FlexibleReader(RecordReader):
    """A reader of the flexible versions (facts C1)."""

    __slots__ = ()

    def data(self) -> bytes:
        return self._read_bytes(self._varint() - 1)

    def skip_tags(self) -> None:
        self.tags()

    def tags(self) -> Mapping[int, bytes]:
        found = {}
        for _ in range(self._varint()):
            tag = self._varint()
            found[tag] = self._read_bytes(self._varint())
        return found

    def _text_size(self) -> int:
        return self._varint() - 1

    def _list_size(self) -> int:
        return self._varint() - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._read_bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a varint of more than 5 bytes")
