"""JSON objects in remote storage, compressed by gzip: a manifest, the offsets of groups."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

_GZIP = 31
"""zlib's window bits for a gzip header."""


def encode_json(content: Mapping[str, object]) -> bytes:
    """Return the content, whose key "format" has its version."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return compressor.compress(json.dumps(content, separators=(",", ":")).encode()) + compressor.flush()


def decode_json(content: bytes, version: int, *, size_max: int) -> Any:
    """Return the content of that version, of at most `size_max` bytes of text. Raises `ValueError`."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(content, size_max)
        if not unpacker.eof:
            raise ValueError("it is truncated, or too large")
        found = json.loads(text)
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict) or found.get("format") != version:
        raise ValueError(f"it is not an object of format {version}")
    return found
