"""Java's properties files, such as the server.properties of Kafka (the format of `java.util.Properties.load`)."""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(content: bytes, *, needs_value: bool = False) -> dict[str, str]:
    """Keys and values; of two lines with one key the last counts. Raises `ValueError` with the number of the line.

    `needs_value`: a line without '=' or ':' is an error. The format is Latin-1 with `\\uXXXX` for the rest; a file that
    is valid UTF-8 is taken for that: editors write it.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    found = {}
    for number, line in _logical_lines(text):
        try:
            if needs_value and not re.search("[=:]", line):
                raise ValueError(f"{line[:100]!r} is not KEY=VALUE")
            key, value = _split(line)
            found[_unescaped(key)] = _unescaped(value)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments; one that ends with a backslash continues in the next, without leading blanks."""
    joined, first = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        stripped = line.lstrip(_BLANK)
        if not first and (not stripped or stripped[0] in "#!"):
            continue
        first = first or number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            joined += stripped[:-1]
            continue
        yield first, joined + stripped
        joined, first = "", 0
    if first:
        yield first, joined


def _split(line: str) -> tuple[str, str]:
    """Split a line at the first '=', ':' or blank that is not escaped; blanks around it do not count."""
    end, escaped = len(line), False
    for place, letter in enumerate(line):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in "=:" or letter in _BLANK:
            end = place
            break
    rest = line[end:].lstrip(_BLANK)
    return line[:end], rest[1:].lstrip(_BLANK) if rest[:1] in ("=", ":") else rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out, place = [], 0
    while place < len(text):
        letter = text[place]
        if letter != "\\":
            out.append(letter)
            place += 1
            continue
        following = text[place + 1 : place + 2]
        if following == "u":
            digits = text[place + 2 : place + 6]
            if not _UNICODE.fullmatch(digits):
                raise ValueError(f"\\u{digits} is not \\u and four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            place += 6
        else:
            out.append(_ESCAPES.get(following, following))
            place += 2
    pairs = "".join(out).encode("utf-16-be", "surrogatepass")  # two escapes may make one character
    try:
        return pairs.decode("utf-16-be")
    except UnicodeDecodeError:
        raise ValueError("half of a pair of \\u escapes is missing") from None
