"""ApiVersions (18): how both ends agree on versions (facts C2), and learn of the cluster's features (KIP-584).

Its response header is always the old one.
"""

import re
from collections.abc import Iterable, Mapping
from struct import Struct

from ...ports.broker_api.features import FeatureMetadata, FinalizedVersionRange, SupportedVersionRange
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

WITH_ZERO_MIN = 4
"""The version in which supported features may have 0 as the lowest level: clients of version 3 refuse that."""
_SUPPORTED_TAG, _EPOCH_TAG, _FINALIZED_TAG = 0, 1, 2
NO_FEATURES = FeatureMetadata()
_RANGE = Struct(">hhh")
"""An API key, its lowest and its highest version."""

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
        return bool(_SOFTWARE.fullmatch(self.software_name) and _SOFTWARE.fullmatch(self.software_version))


def read_request(reader: CompactReader, version: int) -> ApiVersionsRequest:
    """Read a flexible request. Raises as readers do."""
    software, software_version = reader.text(), reader.text()
    cluster_id, node_id = None, NO_NODE
    if version >= WITH_NODE_ID:
        cluster_id, (node_id,) = reader.nullable_text(), reader.unpack(wire.I32)
    reader.skip_tags()
    return ApiVersionsRequest(software, software_version, cluster_id, node_id)


def request_body(version: int, software: str, software_version: str) -> bytes:
    """Return the request, without its header."""
    if version < FLEXIBLE:
        return b""
    writer = CompactWriter()
    writer.text(software)
    writer.text(software_version)
    writer.end()
    return bytes(writer.out)


def response_body(
    version: int, ranges: Iterable[tuple[int, int, int]], features: FeatureMetadata = NO_FEATURES
) -> bytes:
    """Return the answer for (key, lowest, highest) of each API."""
    writer = CompactWriter() if version >= FLEXIBLE else Writer()
    writer.out += wire.I16.pack(ErrorCode.NONE)
    _write_ranges(writer, ranges)
    if version >= 1:
        writer.out += wire.I32.pack(0)  # the throttle time
    if version >= FLEXIBLE:
        write_features(writer, version, features)
    else:
        writer.end()
    return bytes(writer.out)


def write_features(writer: Writer, version: int, features: FeatureMetadata) -> None:
    """End a flexible answer with what it says of features."""
    tagged: list[tuple[int, bytes]] = []
    supported = {
        name: (each.min_version, each.max_version)
        for name, each in features.supported.items()
        if version >= WITH_ZERO_MIN or each.min_version > 0
    }
    if supported:
        tagged.append((_SUPPORTED_TAG, _level_pairs(supported)))
    if features.finalized_epoch >= 0:
        tagged.append((_EPOCH_TAG, wire.I64.pack(features.finalized_epoch)))
    if features.finalized:
        levels = {name: (at.max_version_level, at.min_version_level) for name, at in features.finalized.items()}
        tagged.append((_FINALIZED_TAG, _level_pairs(levels)))
    writer.tagged(tagged)


def _level_pairs(features: Mapping[str, tuple[int, int]]) -> bytes:
    writer = CompactWriter()
    writer.count(len(features))
    for name, (first, second) in sorted(features.items()):
        writer.text(name)
        writer.out += wire.I16.pack(first) + wire.I16.pack(second)
        writer.end()
    return bytes(writer.out)


def read_features(reader: Reader) -> FeatureMetadata:
    """Read the end of a flexible answer. Raises as readers do."""
    supported: dict[str, SupportedVersionRange] = {}
    finalized: dict[str, FinalizedVersionRange] = {}
    epoch = -1
    for tag, content in reader.tags():
        if tag == _SUPPORTED_TAG:
            supported = {name: SupportedVersionRange(*levels) for name, levels in _read_level_pairs(content).items()}
        elif tag == _EPOCH_TAG:
            (epoch,) = content.unpack(wire.I64)
        elif tag == _FINALIZED_TAG:
            pairs = _read_level_pairs(content)
            finalized = {name: FinalizedVersionRange(low, high) for name, (high, low) in pairs.items()}
    return FeatureMetadata(supported=supported, finalized=finalized, finalized_epoch=epoch)


def _read_level_pairs(reader: Reader) -> dict[str, tuple[int, int]]:
    found = {}
    for _ in range(max(0, reader.count())):
        name = reader.text()
        (first,), (second,) = reader.unpack(wire.I16), reader.unpack(wire.I16)
        found[name] = first, second
        reader.skip_tags()
    return found


def refusal_body(error: ErrorCode) -> bytes:
    """Return the answer to a flexible request that is refused."""
    writer = CompactWriter()
    writer.out += wire.I16.pack(error)
    _write_ranges(writer, ())
    writer.out += wire.I32.pack(0)  # the throttle time
    writer.end()
    return bytes(writer.out)


def error_body(version: int, error: ErrorCode) -> bytes:
    """Return the answer to a request of any version that is refused."""
    if version >= FLEXIBLE:
        return refusal_body(error)
    return wire.I16.pack(error) + wire.I32.pack(0) + (wire.I32.pack(0) if version >= 1 else b"")


def unknown_version_body() -> bytes:
    """Return the answer to a version of ApiVersions that we do not know: error 35 and those we do, as version 0
    (KIP-511)."""
    writer = Writer()
    writer.out += wire.I16.pack(ErrorCode.UNSUPPORTED_VERSION)
    _write_ranges(writer, [(KEY, *VERSIONS)])
    return bytes(writer.out)


def _write_ranges(writer: Writer, ranges: Iterable[tuple[int, int, int]]) -> None:
    entries = sorted(ranges)
    writer.count(len(entries))
    for key, low, high in entries:
        writer.out += _RANGE.pack(key, low, high)
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
        raise Malformed("the ApiVersions response has no versions")
    for _ in range(count):
        key, low, high = reader.unpack(_RANGE)
        ranges[key] = (low, high)
        reader.skip_tags()
    return ranges
