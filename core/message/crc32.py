"""CRC-32 of the classic format (facts A2): of zlib."""

from zlib import crc32

__all__ = ["crc32"]
