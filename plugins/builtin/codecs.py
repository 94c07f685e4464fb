"""The codecs of Kafka: gzip, snappy, lz4, zstd (facts B1).

Their libraries are imported at first use: most brokers never open a batch.
"""

from struct import Struct
from typing import Any

from ...core.message.codec import Codecs
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer

_CHUNK_MIN = 1 << 20
_GZIP_WRAPPER = 31
"""zlib's `wbits` for a gzip header and trailer around a window of 32 KB."""
_LENGTH = Struct(">i")


def builtin_codecs() -> Codecs:
    """Return all four, at their usual levels."""
    return Codecs([GzipCodec(), SnappyCodec(), Lz4Codec(), ZstdCodec()])


def _corrupt(name: str, reason: object) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {reason}")


class _Output:
    """Decompressed pieces, up to a bound. Pieces are asked for one MiB or so at a time: a bomb ends at the bound."""

    __slots__ = ("_left", "_max_bytes", "_name", "_piece_max", "_pieces")

    def __init__(self, name: str, max_bytes: int, compressed_size: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._pieces: list[bytes] = []
        self._piece_max = max(_CHUNK_MIN, 4 * compressed_size)

    @property
    def wanted(self) -> int:
        """Return the size of the next read; at the end one byte more than allowed, to detect an overflow."""
        return min(self._piece_max, self._left + 1)

    def admit(self, size: int) -> None:
        """Raises `ApiError` MESSAGE_TOO_LARGE when `size` more bytes are too many."""
        if size > self._left:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{self._name}: more than {self._max_bytes} bytes when decompressed"
            )

    def add(self, piece: bytes) -> None:
        """Raises as `admit`."""
        self.admit(len(piece))
        self._left -= len(piece)
        self._pieces.append(piece)

    def join(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


class GzipCodec:
    """gzip, by `isal` where it is installed (about ten times quicker, at its level 1), else by zlib."""

    id = 1
    name = "gzip"

    def __init__(self, level: int | None = None) -> None:
        """`level` 1 to 9 asks for zlib at that level."""
        self._level = level

    def compress(self, data: Buffer) -> bytes:
        library, level = self._library()
        compressor = library.compressobj(level=level, wbits=_GZIP_WRAPPER)
        return bytes(compressor.compress(data)) + bytes(compressor.flush())

    def decompress(self, data: Buffer, max_bytes: int) -> bytes:
        """Also of several gzip members, one after the other, as the format allows."""
        library, _ = self._library()
        output = _Output(self.name, max_bytes, len(data))
        rest: Buffer = data
        while True:
            member = library.decompressobj(wbits=_GZIP_WRAPPER)
            while not member.eof:
                try:
                    piece = member.decompress(rest, output.wanted)
                except library.error as error:
                    raise _corrupt(self.name, error) from error
                output.add(piece)
                rest = member.unconsumed_tail
                if not piece and not rest and not member.eof:
                    raise _corrupt(self.name, "the data ends too early")
            rest = member.unused_data
            if not rest:
                return output.join()

    def _library(self) -> tuple[Any, int]:
        if self._level is None:
            try:
                from isal import isal_zlib
            except ImportError:
                pass
            else:
                return isal_zlib, 1
        import zlib

        return zlib, -1 if self._level is None else self._level


class SnappyCodec:
    """Snappy in the xerial stream format (facts A2), as Java has it; raw snappy, as librdkafka has it, is read too."""

    id = 2
    name = "snappy"

    _HEADER = b"\x82SNAPPY\0" + _LENGTH.pack(1) + _LENGTH.pack(1)
    _CHUNK_SIZE = 32 * 1024

    def compress(self, data: Buffer) -> bytes:
        import snappy

        out = [self._HEADER]
        with memoryview(data) as view:
            for start in range(0, len(view), self._CHUNK_SIZE):
                chunk = snappy.compress(view[start : start + self._CHUNK_SIZE])
                out += (_LENGTH.pack(len(chunk)), chunk)
        return b"".join(out)

    def decompress(self, data: Buffer, max_bytes: int) -> bytes:
        output = _Output(self.name, max_bytes, len(data))
        with memoryview(data) as view:
            if view[:8] != self._HEADER[:8]:
                output.add(self._raw(view, output))
                return output.join()
            if len(view) < len(self._HEADER):
                raise _corrupt(self.name, "the xerial header is cut")
            position, end = len(self._HEADER), len(view)
            while position < end:
                if position + _LENGTH.size > end:
                    raise _corrupt(self.name, "a chunk length is cut")
                (size,) = _LENGTH.unpack_from(view, position)
                position += _LENGTH.size
                if not 0 < size <= end - position:
                    raise _corrupt(self.name, f"a chunk of {size} bytes where {end - position} are left")
                output.add(self._raw(view[position : position + size], output))
                position += size
        return output.join()

    def _raw(self, block: memoryview, output: _Output) -> bytes:
        """Return one snappy block. It begins with the size of its content, which is checked before memory is taken for
        it."""
        import snappy

        claimed = shift = 0
        for byte in block[:5]:
            claimed |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            raise _corrupt(self.name, "a block without its size")
        output.admit(claimed)
        try:
            return bytes(snappy.uncompress(block))
        except snappy.UncompressError as error:
            raise _corrupt(self.name, error.__cause__ or "not a snappy block") from error


class Lz4Codec:
    """The LZ4 frame format, in independent blocks of 64 KB without a content size, as Kafka writes it."""

    id = 3
    name = "lz4"

    def __init__(self, level: int = 0) -> None:
        """`level` 0 is lz4's quick default; 3 to 12 are its high-compression levels."""
        self._level = level

    def compress(self, data: Buffer) -> bytes:
        from lz4 import frame

        return bytes(
            frame.compress(
                data,
                compression_level=self._level,
                block_size=frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
        )

    def decompress(self, data: Buffer, max_bytes: int) -> bytes:
        """Also of several frames, one after the other, as the format allows."""
        from lz4 import frame

        output = _Output(self.name, max_bytes, len(data))
        rest: Buffer | None = data
        while rest is not None:
            decompressor = frame.LZ4FrameDecompressor()
            while not decompressor.eof:
                try:
                    piece = decompressor.decompress(rest, max_length=output.wanted)
                except RuntimeError as error:
                    raise _corrupt(self.name, error) from error
                output.add(piece)
                rest = b""
                if not piece and decompressor.needs_input and not decompressor.eof:
                    raise _corrupt(self.name, "the data ends too early")
            rest = decompressor.unused_data
        return output.join()


class ZstdCodec:
    """Zstandard frames (RFC 8878), with or without a content size."""

    id = 4
    name = "zstd"

    _MAGIC = b"\x28\xb5\x2f\xfd"
    _BLOCK_CONTENT_MAX = 128 * 1024
    _RAW, _RLE, _COMPRESSED = 0, 1, 2
    _WINDOW_MAX = 1 << 27
    """The window of level 22, which is zstd's own bound. It is address space; memory is used only as data arrive."""

    def __init__(self, level: int = 3) -> None:
        self._level = level

    def compress(self, data: Buffer) -> bytes:
        import zstandard

        return zstandard.ZstdCompressor(level=self._level).compress(data)

    def decompress(self, data: Buffer, max_bytes: int) -> bytes:
        import zstandard

        with memoryview(data) as view:
            content_max = self._check_frames(view)
        output = _Output(self.name, max_bytes, len(data))
        decompressor = zstandard.ZstdDecompressor(max_window_size=self._WINDOW_MAX)
        try:
            with decompressor.stream_reader(data, read_across_frames=True) as reader:
                output.add(reader.read(min(content_max, max_bytes) + 1))
        except zstandard.ZstdError as error:
            raise _corrupt(self.name, error) from error
        return output.join()

    def _check_frames(self, view: memoryview) -> int:
        """Return the most that the frames can decompress to, from their block headers.

        The library takes a cut frame for a finished one and says nothing; so all blocks are seen to be there.
        Raises `ApiError` CORRUPT_MESSAGE.
        """
        import zstandard

        position, end, content_max = 0, len(view), 0
        while True:
            if view[position : position + 4] != self._MAGIC:
                raise _corrupt(self.name, f"there is no frame at byte {position}")
            try:
                parameters = zstandard.get_frame_parameters(view[position:])
                position += zstandard.frame_header_size(view[position:])
            except zstandard.ZstdError as error:
                raise _corrupt(self.name, error) from error
            last = 0
            while not last:
                if position + 3 > end:
                    raise _corrupt(self.name, "a frame without its last block")
                header = int.from_bytes(view[position : position + 3], "little")
                last, kind, size = header & 1, header >> 1 & 3, header >> 3
                position += 3 + (1 if kind == self._RLE else size)
                content_max += self._BLOCK_CONTENT_MAX if kind == self._COMPRESSED else size
            position += 4 if parameters.has_checksum else 0
            if position > end:
                raise _corrupt(self.name, "the data ends too early")
            if position == end:
                return content_max
