"""Compression codecs by id, as in batches, and by name, as in configurations."""

from collections.abc import Iterable
from typing import Protocol

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.types import Buffer

DECOMPRESSED_BYTES_MAX = 104_857_600
"""Default bound of the decompressed size of a batch."""

UNCOMPRESSED_NAMES = ("none", "uncompressed")


class Codec(Protocol):
    """One way to compress the records of a batch. Methods are callable from any thread, several at once."""

    @property
    def id(self) -> int:
        """The id in the attributes of a batch, 1 to 7 (gzip 1, snappy 2, lz4 3, zstd 4)."""
        ...

    @property
    def name(self) -> str:
        """The name in `compression.type`."""
        ...

    def compress(self, data: Buffer) -> bytes:
        """Return `data` compressed, as a batch holds it."""
        ...

    def decompress(self, data: Buffer, max_bytes: int) -> bytes:
        """Return the original bytes. Uses about `max_bytes` of memory at most, whatever size `data` claims.

        Raises `ApiError`: CORRUPT_MESSAGE for corrupt or truncated data, MESSAGE_TOO_LARGE for more than `max_bytes`.
        """
        ...


class Codecs:
    """The immutable set of codecs of a broker or client."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self, codecs: Iterable[Codec] = ()) -> None:
        """Raise `ConfigError` for an id outside 1 to 7, or a duplicate id or name."""
        self._by_id: dict[int, Codec] = {}
        self._by_name: dict[str, Codec] = {}
        for codec in codecs:
            if not 1 <= codec.id <= 7:
                raise ConfigError(f"codec {codec.name!r} has the number {codec.id}; a batch has room for 1 to 7")
            if codec.id in self._by_id or codec.name in self._by_name or codec.name in UNCOMPRESSED_NAMES:
                raise ConfigError(f"codec {codec.name!r} (number {codec.id}): the name or the number is already taken")
            self._by_id[codec.id] = codec
            self._by_name[codec.name] = codec

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def __contains__(self, codec_id: object) -> bool:
        """Return True for the id of a known codec and for 0 (no compression)."""
        return codec_id == 0 or codec_id in self._by_id

    def by_id(self, codec_id: int) -> Codec:
        """Return the codec with this id. Raises `ApiError` UNSUPPORTED_COMPRESSION_TYPE."""
        codec = self._by_id.get(codec_id)
        if codec is None:
            known = ", ".join(f"{each.id} {each.name}" for each in self._by_id.values()) or "none"
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {codec_id}; known: {known}"
            )
        return codec

    def by_name(self, name: str) -> Codec | None:
        """Return the codec with this name, None for "none" and "uncompressed". `ConfigError` lists the known names."""
        if name in UNCOMPRESSED_NAMES:
            return None
        codec = self._by_name.get(name)
        if codec is None:
            known = ", ".join(("none", *self._by_name))
            raise ConfigError(f"unknown compression codec {name!r}; known: {known}")
        return codec


NO_CODECS = Codecs()
