"""Tagged fields of Produce and Fetch that name the current leader and so save a client a Metadata request (KIP-951)."""

from collections.abc import Sequence
from struct import Struct

from ...ports.broker_api.cluster import BrokerNode
from ...ports.broker_api.fetch import CurrentLeader
from . import schema
from .schema import I32, NULLABLE_TEXT, TEXT, Field
from .wire import CompactWriter, Reader, Writer

_NODES_TAG = 0
_LEADER = Struct(">ii")
_NO_TAGS = b"\x00"
_NODES = schema.Array(
    schema.Struct(
        BrokerNode,
        Field("node_id", I32),
        Field("host", TEXT),
        Field("port", I32),
        Field("rack", NULLABLE_TEXT),
    )
)


def leader_field(leader: CurrentLeader) -> bytes:
    """Return the content of the field of one partition."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch) + _NO_TAGS


def read_leader(content: Reader) -> CurrentLeader | None:
    """Return the leader, or None if the field says that none is known."""
    leader_id, leader_epoch = content.unpack(_LEADER)
    return None if leader_id < 0 else CurrentLeader(leader_id, leader_epoch)


def end_with_nodes(writer: Writer, version: int, nodes: Sequence[BrokerNode]) -> None:
    """End an answer with the addresses of the leaders that it names."""
    if not nodes:
        writer.end()
        return
    content = CompactWriter()
    _NODES.write(content, version, nodes)
    writer.tagged([(_NODES_TAG, bytes(content.out))])


def read_nodes(reader: Reader, version: int) -> Sequence[BrokerNode]:
    """Return the addresses that `end_with_nodes` has written."""
    for tag, content in reader.tags():
        if tag == _NODES_TAG:
            return _NODES.read(content, version)
    return ()
