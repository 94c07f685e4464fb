"""The subject of a certificate as text, in the form of RFC 2253 that Kafka's principals have.

The text equals that of Java's `X500Principal.getName()`: the last part of the name first, keywords for the attributes
of RFC 2253, `OID=#HEX` for others.
"""

from ...ports.errors import Malformed

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ENCODINGS = {12: "utf-8", 18: "ascii", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
"""The text types of ASN.1 by their tags: UTF8, Numeric, Printable, T61, IA5, Universal, BMP."""
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 6, 0xA0
_EXTENSIONS, _ALTERNATIVE_NAMES = 0xA3, bytes.fromhex("551d11")
_ESCAPED = ',=+<>#;"\\'


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises `Malformed`."""
    try:
        fields = _elements(_elements(_content(certificate, _SEQUENCE))[0][1])
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        return ",".join(_rdn(content) for _, content, _ in reversed(_elements(fields[4][1])))
    except (IndexError, ValueError, UnicodeError) as error:
        raise Malformed(f"the subject of a certificate cannot be read: {error}") from None


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Return the alternative names of the subject, each in DER. Raises `Malformed`."""
    try:
        for tag, content, _ in _elements(_elements(_content(certificate, _SEQUENCE))[0][1]):
            if tag != _EXTENSIONS:
                continue
            for _, extension, _ in _elements(_content(content, _SEQUENCE)):
                parts = _elements(extension)
                if parts[0][1] == _ALTERNATIVE_NAMES:
                    return frozenset(whole for _, _, whole in _elements(_content(parts[-1][1], _SEQUENCE)))
    except (IndexError, ValueError) as error:
        raise Malformed(f"the extensions of a certificate cannot be read: {error}") from None
    return frozenset()


def _content(data: bytes, tag: int) -> bytes:
    found, content, _ = _elements(data)[0]
    if found != tag:
        raise ValueError(f"tag {found} in place of {tag}")
    return content


def _elements(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the DER elements one after the other: tag, content, and the whole element."""
    found, at = [], 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, start = int.from_bytes(data[start : start + count], "big"), start + count
        end = start + size
        if end > len(data):
            raise ValueError("an element is truncated")
        found.append((tag, data[start:end], data[at:end]))
        at = end
    return found


def _rdn(content: bytes) -> str:
    return "+".join(_attribute(each) for _, each, _ in _elements(content))


def _attribute(content: bytes) -> str:
    (oid_tag, oid_bytes, _), (tag, value, whole) = _elements(content)
    if oid_tag != _OID:
        raise ValueError("an attribute has no type")
    oid = _oid(oid_bytes)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _ENCODINGS:
        return f"{keyword or oid}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _oid(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    body = "".join(f"\\{letter}" if letter in _ESCAPED else "\\00" if letter == "\0" else letter for letter in text)
    inner = body.strip(" ")
    if not inner:
        return "\\ " * len(body)
    before = len(body) - len(body.lstrip(" "))
    return "\\ " * before + inner + "\\ " * (len(body) - before - len(inner))
