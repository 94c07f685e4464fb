"""Escapes for characters that a command line cannot contain, as in kcat."""

import re

from ...ports.errors import ConfigError

_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{1,2}|.|$)", re.DOTALL)
_CHARACTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def unescaped(text: str, option: str) -> bytes:
    r"""Replace `\n`, `\t`, `\r`, `\0`, `\\` and `\x1f` by their characters. Raises `ConfigError`."""

    def character(found: re.Match[bytes]) -> bytes:
        name = found[1]
        if name[:1] == b"x" and len(name) > 1:
            return bytes([int(name[1:], 16)])
        if name not in _CHARACTERS:
            raise ConfigError(f"{option} {text!r}: unknown escape; known are \\n, \\t, \\r, \\0, \\\\ and \\x1f")
        return _CHARACTERS[name]

    return _ESCAPE.sub(character, text.encode())


def separator(text: str | None, option: str) -> bytes | None:
    """Unescape a separator; None stays None. Raises `ConfigError`, for an empty one too."""
    if text is None:
        return None
    found = unescaped(text, option)
    if not found:
        raise ConfigError(f"{option} must not be empty")
    return found
