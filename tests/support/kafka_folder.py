"""Data folders of Apache Kafka made by hand, in the formats that its brokers write."""

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))

# Values of records in `__cluster_metadata`, as a broker of Apache Kafka 4.3.1 has written them.
BEGIN = "01170001001212426f6f747374726170207265636f726473"
END = "01180000"
ABORT = "01190000"
METADATA_VERSION = "010c00116d657461646174612e76657273696f6e001e00"
GROUP_VERSION = "010c000e67726f75702e76657273696f6e000100"
MIN_ISR = "0104000401146d696e2e696e73796e632e7265706c69636173023100"
NO_OP = "01140000"
ORDERS = "010200076f72646572739dd2176b8ab34c469d837d3995be215c00"
ORDERS_0 = (
    "010302000000009dd2176b8ab34c469d837d3995be215c0200000001020000000101010000000100000000000000000224a57a8b7d3ee2c917d4"
    "82d13b362cc000"
)
ORDERS_RETENTION = "01040002076f72646572730d726574656e74696f6e2e6d73032d3100"
GONE = "01020005676f6e650a098cc5d17c4fe59b9f9c43256b33bf00"
REMOVE_GONE = "0109000a098cc5d17c4fe59b9f9c43256b33bf00"
ACL = "0112009331f0c550b14a6e8462aeb87e082d8502076f7264657273030b557365723a616c696365022a030300"
USER = (
    "010b0006616c69636501417394b32b79fad459c4f477d64e195e1dde511c6bdd80f735e9c6bf41ff4999ca9bc7e6a8d03d1516763e54988a5d0e"
    "6ccb25423a8989c2d881afc2e9e6c5c1752103476b2a87a8ad6e79e65633cd82ce240be1d61f22d012ab94c5af5588c111d421a8bd4711a17e6d"
    "cacc2a99fb0e9f13e348eac941be1f1f53384a4e589ecb32610000200000"
)
PRODUCER_IDS = "010f0000000001000000000000000d00000000000003e800"
CLUSTER = (BEGIN, METADATA_VERSION, GROUP_VERSION, MIN_ISR, END, NO_OP, ORDERS, ORDERS_RETENTION, ORDERS_0)
SECURITY = (GONE, REMOVE_GONE, ACL, USER, PRODUCER_IDS)
ORDERS_ID = bytes.fromhex("9dd2176b8ab34c469d837d3995be215c")


def metadata_batch(values: Sequence[str], base_offset: int = 0) -> bytes:
    """Return a batch of metadata records."""
    return bytes(
        encode_batch([Message(bytes.fromhex(each)) for each in values], now_ms=NOW_MS, base_offset=base_offset)
    )


def partition_change(topic_id: bytes, partition: int, *, leader: int) -> str:
    """Return a record that changes the leader of a partition."""
    tag = b"\1" + b"\4" + struct.pack(">i", leader)
    return (b"\1\5\0" + struct.pack(">i", partition) + topic_id + b"\1" + tag).hex()


def quota(user: str, key: str, value: float) -> str:
    """Return a record that limits a user."""

    def text(content: str) -> bytes:
        return bytes([len(content) + 1]) + content.encode()

    entity = b"\2" + text("user") + text(user) + b"\0"
    return (b"\1\x0e\0" + entity + text(key) + struct.pack(">d", value) + b"\0\0").hex()


def segment_batch(values: Sequence[bytes], base_offset: int, epoch: int = 0) -> bytes:
    """Return a batch of messages as it lies in a segment."""
    batch = encode_batch([Message(value) for value in values], now_ms=NOW_MS)
    assign_offset(batch, base_offset, epoch)
    return bytes(batch)


def legacy_messages(offsets: Iterable[int]) -> bytes:
    """Return entries of magic 1 whose values are their offsets."""
    made = b""
    for offset in offsets:
        value = b"%d" % offset
        body = struct.pack(">bbqii", 1, 0, NOW_MS, -1, len(value)) + value
        made += struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body
    return made


class KafkaDataDir:
    """A folder of Kafka's log.dirs."""

    def __init__(self, path: Path, *, node_id: int = 1, version: int = 1) -> None:
        self.path = path
        path.mkdir()
        key = "node.id" if version else "broker.id"
        lines = [
            "#",
            "#Sat Nov 28 07:17:00 UTC 2026",
            f"{key}={node_id}",
            f"version={version}",
            f"cluster.id={CLUSTER_ID}",
        ]
        lines += ["directory.id=JKV6i30-4skX1ILRizYswA"] if version else []
        (path / "meta.properties").write_text("\n".join([*lines, ""]))

    def add_metadata(
        self, values: Sequence[str], *, snapshot: Sequence[str] | None = None, snapshot_end: int = 0
    ) -> None:
        """Write the metadata log, and a snapshot of what is below `snapshot_end`."""
        folder = self.path / "__cluster_metadata-0"
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(metadata_batch(values))
        if snapshot is not None:
            (folder / f"{snapshot_end:020d}-0000000001.checkpoint").write_bytes(metadata_batch(snapshot))

    def add_partition(
        self,
        name: str,
        segments: Mapping[int, bytes],
        *,
        topic_id: bytes | None = ORDERS_ID,
        epochs: Sequence[tuple[int, int]] = ((0, 0),),
    ) -> Path:
        """Write the folder of a partition, without indexes, as after a crash."""
        folder = self.path / name
        folder.mkdir()
        for base, content in segments.items():
            (folder / f"{base:020d}.log").write_bytes(content)
        lines = [f"{epoch} {start}" for epoch, start in epochs]
        (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        if topic_id is not None:
            encoded = urlsafe_b64encode(topic_id).decode().rstrip("=")
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {encoded}")
        return folder

    def contents(self) -> dict[str, bytes]:
        """Return all files by their paths in the folder."""
        return {str(path.relative_to(self.path)): path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
