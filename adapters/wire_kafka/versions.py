"""ApiVersions (18): how both ends agree on versions (facts C2). Its response header is always the old one."""

import re
from collections.abc import Iterable

from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.values import frozen
from . import wire
from .wire import DECODE_ERRORS, CompactReader, CompactWriter, Reader, Writer

KEY = 18
VERSIONS = (0, 5)
FLEXIBLE = 3
WITH_NODE_ID = 5
"""The version in which a client may say which broker it means to talk to (KIP-1242)."""
NO_NODE = -1
SOFTWARE = "barnabas"
"""The name by which our clients introduce themselves."""
_SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

Ranges = dict[int, tuple[int, int]]
"""API key → lowest and highest version."""


@frozen
class ApiVersionsRequest:
    """A flexible request: the client's software (KIP-511), and the cluster and broker that it means (KIP-1242), None
    and NO_NODE if it does not name them."""

    software_name: str
    software_version: str
    cluster_id: str | None = None
    node_id: int = NO_NODE

    @property
    def is_valid(self) -> bool:
        """Return True if name and version have the form that KIP-511 demands."""
        return all(_SOFTWARE.fullmatch(text) for text in (self.software_name, self.software_version))


def read_request(reader: CompactReader, version: int) -> ApiVersionsRequest:
    """Read a flexible request. Raises as readers do."""
    software, software_version = reader.text(), reader.text()
    cluster_id, node_id = None, NO_NODE
    if version >= WITH_NODE_ID:
        cluster_id, (node_id,) = reader.nullable_text(), reader.unpack(wire.I32)
    reader.skip_tags()
    return ApiVersionsRequest(software, software_version, cluster_id, node_id)


def request_body(version: int, software: str, software_version: str) -> bytes:
    """The request, without its header."""
    if version < FLEXIBLE:
        return b""
    writer = CompactWriter()
    writer.text(software)
    writer.text(software_version)
    writer.end()
    return bytes(writer.out)


def response_body(version: int, ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """The answer for (key, lowest, highest) of each API. No features are advertised, so that the rule about features
    whose minimum is 0 (before version 4) has nothing to leave out."""
    writer = CompactWriter() if version >= FLEXIBLE else Writer()
    writer.out += wire.I16.pack(ErrorCode.NONE)
    _write_ranges(writer, ranges)
    if version >= 1:
        writer.out += wire.I32.pack(0)  # the throttle time
    writer.end()
    return bytes(writer.out)


def refusal_body(error: ErrorCode) -> bytes:
    """The answer to a flexible request that is refused."""
    writer = CompactWriter()
    writer.out += wire.I16.pack(error)
    _write_ranges(writer, ())
    writer.out += wire.I32.pack(0)  # the throttle time
    writer.end()
    return bytes(writer.out)


def error_body(version: int, error: ErrorCode) -> bytes:
    """The answer to a request of any version that is refused."""
    if version >= FLEXIBLE:
        return refusal_body(error)
    return wire.I16.pack(error) + wire.I32.pack(0) + (wire.I32.pack(0) if version >= 1 else b"")


def unknown_version_body() -> bytes:
    """The answer to a version of ApiVersions that we do not know: error 35 and those we do, as version 0 (KIP-511)."""
    writer = Writer()
    writer.out += wire.I16.pack(ErrorCode.UNSUPPORTED_VERSION)
    _write_ranges(writer, [(KEY, *VERSIONS)])
    return bytes(writer.out)


def _write_ranges(writer: Writer, ranges: Iterable[tuple[int, int, int]]) -> None:
    entries = sorted(ranges)
    writer.count(len(entries))
    for key, low, high in entries:
        writer.out += wire.I16.pack(key) + wire.I16.pack(low) + wire.I16.pack(high)
        writer.end()


def read_response(frame: memoryview, position: int, version: int, items_max: int) -> tuple[int, Ranges]:
    """Return (error number, ranges) of an answer to `version`. Raises as readers.

    With error 35 the body should be of version 0 and list the versions of ApiVersions; where it cannot be read as such
    (librdkafka's mock cluster) the ranges are empty.
    """
    (error,) = wire.I16.unpack_from(frame, position)
    if error != ErrorCode.UNSUPPORTED_VERSION:
        return error, _read_ranges((CompactReader if version >= FLEXIBLE else Reader)(frame, position + 2, items_max))
    try:
        return error, _read_ranges(Reader(frame, position + 2, items_max))
    except (Malformed, *DECODE_ERRORS):
        return error, {}


def _read_ranges(reader: Reader) -> Ranges:
    ranges: Ranges = {}
    count = reader.count()
    if count < 0:
        raise Malformed("ApiVersions answered without versions")
    for _ in range(count):
        key, low, high = (reader.unpack(wire.I16)[0] for _ in range(3))
        ranges[key] = (low, high)
        reader.skip_tags()
    return ranges
