"""Parses the bytes of a terminal into keys; pure."""

from __future__ import annotations

import codecs
import re

_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_LONGEST = 32


class KeyReader:
    """Stores the bytes of an incomplete key."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def waits(self) -> bool:
        """Return True after an Escape: it is the Esc key, or begins another key whose rest follows at once."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the complete keys: letters, or names such as "up" and "esc". Unknown ones are left out."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        keys = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                keys.append(_NAMED.get(text[at], text[at]))
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is not None:
                keys.append(_NAMED.get(found[0], ""))
                at = found.end()
                continue
            unfinished = _UNFINISHED.match(text, at)
            if unfinished is not None and unfinished.end() == len(text) and len(text) - at <= _LONGEST:
                self._rest = text[at:]
                break
            keys.append("esc")
            at += 1
        return [key for key in keys if key]

    def flush(self) -> list[str]:
        """Return the Esc key, since nothing followed the Escape."""
        rest, self._rest = self._rest, ""
        return ["esc", *rest[1:]] if rest else []
