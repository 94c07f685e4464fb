"""APIs and versions that this broker does not offer and answers with UNSUPPORTED_VERSION (35), where it can.

Versions of our APIs that are cut off below. Their
forms are those of Kafka's brokers that had them. All else that is unknown closes the connection, as with Kafka.
"""

from collections.abc import Sequence

from ...ports.error_codes import ErrorCode
from ...ports.transport import Piece
from ...ports.values import frozen
from .schema import (
    BOOL,
    DATA,
    ERROR,
    I8,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    Array,
    ByTopic,
    Field,
    FieldCodec,
    Filler,
    NullableArray,
    Struct,
)
from .table import BY_KEY
from .wire import CompactReader, CompactWriter, Reader, Writer

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
_NO_TEXT = Filler(NULLABLE_TEXT, None)


class _Records:
    """Records, passed over; none in an answer."""

    def read(self, reader: Reader, version: int) -> None:  # noqa: ARG002
        reader.nullable_data()

    def write(self, writer: Writer, version: int, value: None) -> None:  # noqa: ARG002
        writer.data(b"")


@frozen(kw_only=True)
class _RefusedPartition:
    """A partition, and what is said of it."""

    topic: str
    partition: int
    error: ErrorCode = _UNSUPPORTED


@frozen(kw_only=True)
class _RefusedItem:
    """A topic or resource, and what is said of it."""

    name: str
    kind: int = 0
    error: ErrorCode = _UNSUPPORTED


@frozen(kw_only=True)
class Unsupported:
    """A request as far as its answer needs it, and the answer."""

    partitions: Sequence[_RefusedPartition] = ()
    items: Sequence[_RefusedItem] = ()
    acks: int = 1
    error: ErrorCode = _UNSUPPORTED


@frozen
class Refused:
    """Some versions of one API. `request` None: the answer needs nothing of it."""

    name: str
    versions: tuple[int, int]
    request: FieldCodec[Unsupported] | None
    result: FieldCodec[Unsupported]
    flexible: bool = False


_PARTITION = Field("partition", I32)
_ERROR = Field("error", ERROR)
_THROTTLE = Filler(I32, 0)


def _request(*parts: Field | Filler) -> Struct[Unsupported]:
    return Struct(Unsupported, *parts)


def _partitions(*parts: Field | Filler, inline: bool = False) -> Field:
    return Field("partitions", ByTopic(_RefusedPartition, *parts, inline=inline))


def _items(*parts: Field | Filler) -> Field:
    return Field("items", Array(Struct(_RefusedItem, *parts)))


_NAME = Field("name", TEXT)
_ANY_NUMBER, _ANY_LONG = Filler(I32, 0), Filler(I64, -1)
_PRODUCE = Refused(
    "Produce",
    (0, 2),
    _request(Field("acks", I16), _ANY_NUMBER, _partitions(_PARTITION, Filler(_Records(), None))),
    _request(_partitions(_PARTITION, _ERROR, Filler(I64, -1), Filler(I64, -1, since=2)), Filler(I32, 0, since=1)),
)
_FETCH = Refused(
    "Fetch",
    (0, 3),
    _request(*(_ANY_NUMBER,) * 3, Filler(I32, 0, since=3), _partitions(_PARTITION, _ANY_LONG, _ANY_NUMBER)),
    _request(Filler(I32, 0, since=1), _partitions(_PARTITION, _ERROR, _ANY_LONG, Filler(_Records(), None))),
)
_LIST_OFFSETS = Refused(
    "ListOffsets",
    (0, 0),
    _request(_ANY_NUMBER, _partitions(_PARTITION, _ANY_LONG, _ANY_NUMBER)),
    _request(_partitions(_PARTITION, _ERROR, Filler(Array(I64), ()))),
)
_OFFSET_COMMIT = Refused(
    "OffsetCommit",
    (0, 1),
    _request(
        Filler(TEXT, ""),
        Filler(I32, 0, since=1),
        Filler(TEXT, "", since=1),
        _partitions(_PARTITION, _ANY_LONG, Filler(I64, -1, since=1), _NO_TEXT),
    ),
    _request(_partitions(_PARTITION, _ERROR)),
)
_OFFSET_FETCH = Refused(
    "OffsetFetch",
    (0, 0),
    _request(Filler(TEXT, ""), _partitions(_PARTITION, inline=True)),
    _request(_partitions(_PARTITION, _ANY_LONG, Filler(NULLABLE_TEXT, ""), _ERROR)),
)
_ASSIGNMENT = _request(_ANY_NUMBER, Filler(Array(I32), ()))
_CONFIG = _request(Filler(TEXT, ""), _NO_TEXT)
_CREATE_TOPICS = Refused(
    "CreateTopics",
    (0, 1),
    _request(
        _items(_NAME, _ANY_NUMBER, Filler(I16, 0), Filler(Array(_ASSIGNMENT), ()), Filler(Array(_CONFIG), ())),
        _ANY_NUMBER,
        Filler(BOOL, False, since=1),
    ),
    _request(_items(_NAME, _ERROR, Filler(NULLABLE_TEXT, None, since=1))),
)
_DELETE_TOPICS = Refused(
    "DeleteTopics",
    (0, 0),
    _request(_items(_NAME), _ANY_NUMBER),
    _request(_items(_NAME, _ERROR)),
)
_LEADER_EPOCHS = Refused(
    "OffsetForLeaderEpoch",
    (0, 1),
    _request(_partitions(_PARTITION, _ANY_NUMBER)),
    _request(_partitions(_ERROR, _PARTITION, Filler(I32, -1, since=1), _ANY_LONG)),
)
_KIND = Field("kind", I8)
_DESCRIBE_CONFIGS = Refused(
    "DescribeConfigs",
    (0, 0),
    _request(_items(_KIND, _NAME, Filler(NullableArray(TEXT), None))),
    _request(_THROTTLE, _items(_ERROR, _NO_TEXT, _KIND, _NAME, Filler(Array(TEXT), ()))),
)
_EMPTY_LISTS = (Filler(Array(TEXT), ()),) * 2
_SHARE_HEARTBEAT = Refused(
    "ShareGroupHeartbeat",
    (0, 0),
    None,
    _request(_THROTTLE, _ERROR, _NO_TEXT, _NO_TEXT, *(_ANY_NUMBER,) * 2, Filler(I8, -1)),
    True,
)
_SHARE_DESCRIBE = Refused("ShareGroupDescribe", (0, 0), None, _request(_THROTTLE, Filler(Array(TEXT), ())), True)
_SHARE_FETCH = Refused("ShareFetch", (0, 0), None, _request(_THROTTLE, _ERROR, _NO_TEXT, *_EMPTY_LISTS), True)
_SHARE_ACKNOWLEDGE = Refused(
    "ShareAcknowledge", (0, 0), None, _request(_THROTTLE, _ERROR, _NO_TEXT, *_EMPTY_LISTS), True
)

_ANY_BYTE = Filler(I8, 0)
_DESCRIBE_ACLS = Refused(
    "DescribeAcls",
    (0, 0),
    None,
    _request(_THROTTLE, _ERROR, _NO_TEXT, Filler(Array(TEXT), ())),
)
_CREATE_ACLS = Refused(
    "CreateAcls",
    (0, 0),
    _request(_items(Field("kind", I8), _NAME, Filler(TEXT, ""), Filler(TEXT, ""), _ANY_BYTE, _ANY_BYTE)),
    _request(_THROTTLE, _items(_ERROR, _NO_TEXT)),
)
_DELETE_ACLS = Refused(
    "DeleteAcls",
    (0, 0),
    _request(_items(Field("kind", I8), Field("name", NULLABLE_TEXT), _NO_TEXT, _NO_TEXT, _ANY_BYTE, _ANY_BYTE)),
    _request(_THROTTLE, _items(_ERROR, _NO_TEXT, Filler(Array(TEXT), ()))),
)

_NO_LONG = Filler(I64, -1)
_CREATE_TOKEN = Refused(
    "CreateDelegationToken",
    (0, 0),
    None,
    _request(_ERROR, *(Filler(TEXT, ""),) * 2, *(_NO_LONG,) * 3, Filler(TEXT, ""), Filler(DATA, b""), _THROTTLE),
)
_RENEW_TOKEN = Refused("RenewDelegationToken", (0, 0), None, _request(_ERROR, _NO_LONG, _THROTTLE))
_EXPIRE_TOKEN = Refused("ExpireDelegationToken", (0, 0), None, _request(_ERROR, _NO_LONG, _THROTTLE))
_DESCRIBE_TOKEN = Refused("DescribeDelegationToken", (0, 0), None, _request(_ERROR, Filler(Array(TEXT), ()), _THROTTLE))

REFUSED: dict[int, Refused] = {
    0: _PRODUCE,
    1: _FETCH,
    2: _LIST_OFFSETS,
    8: _OFFSET_COMMIT,
    9: _OFFSET_FETCH,
    19: _CREATE_TOPICS,
    20: _DELETE_TOPICS,
    23: _LEADER_EPOCHS,
    29: _DESCRIBE_ACLS,
    30: _CREATE_ACLS,
    31: _DELETE_ACLS,
    32: _DESCRIBE_CONFIGS,
    38: _CREATE_TOKEN,
    39: _RENEW_TOKEN,
    40: _EXPIRE_TOKEN,
    41: _DESCRIBE_TOKEN,
    76: _SHARE_HEARTBEAT,
    77: _SHARE_DESCRIBE,
    78: _SHARE_FETCH,
    79: _SHARE_ACKNOWLEDGE,
}
"""The refused APIs by API key."""

_NAMES = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    34: "AlterReplicaLogDirs",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
}
"""The names of APIs that clients use with Kafka brokers and that this broker does not know."""


def not_offered(key: int, version: int) -> str:
    """Describe the API or version that is not offered."""
    if (api := BY_KEY.get(key)) is not None:
        low, high = api.versions
        return f"version {version} of {api.name}, which is not supported; {low} to {high} are"
    name = REFUSED[key].name if key in REFUSED else _NAMES.get(key)
    return f"API key {key}, which is not known" if name is None else f"{name} (API key {key}), which is not offered"


def refusal(
    content: memoryview, position: int, key: int, version: int, correlation_id: bytes, items_max: int
) -> Sequence[Piece] | None:
    """Return the frame that answers a request whose body begins at `position`; None where nothing can be answered: the
    form of the answer is not known, or none is expected (acks=0). Raises as readers do."""
    found = REFUSED.get(key)
    if found is None or not found.versions[0] <= version <= found.versions[1]:
        return None
    asked = Unsupported()
    if found.request is not None:
        asked = found.request.read((CompactReader if found.flexible else Reader)(content, position, items_max), version)
    if asked.acks == 0:
        return None
    writer = CompactWriter() if found.flexible else Writer()
    writer.out += correlation_id
    writer.end()  # of the header: tagged fields where it is flexible
    found.result.write(writer, version, asked)
    return writer.pieces()
