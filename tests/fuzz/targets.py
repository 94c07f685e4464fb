"""Every decoder of bytes that come from outside: what it may raise, and bytes to begin with."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import pack
from tempfile import NamedTemporaryFile
from typing import Any

from attrs import frozen
from fuzz.security_targets import SECURITY_DECODERS
from support import classic_wire
from support.classic_frames import message_set
from support.kafka_pair import joined
from support.kafka_samples import SAMPLES

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.wire_classic.requests import read_request
from barnabas.adapters.wire_kafka.fetch import Answered
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.adapters.wire_kafka.wire import DECODE_ERRORS
from barnabas.app.config.properties import parse_properties
from barnabas.app.config.reading import read_config
from barnabas.core.classic.registry import layout as classic_layout
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.client.group import consumer_protocol
from barnabas.core.cluster import layout
from barnabas.core.coordinator.group import records as group_records
from barnabas.core.coordinator.group import share_group_records
from barnabas.core.coordinator.regular_expression import RegularExpression
from barnabas.core.coordinator.transaction import records as transaction_records
from barnabas.core.coordinator.transaction.states import TransactionState
from barnabas.core.log import checkpoints
from barnabas.core.log.manager import broker_epoch_file as broker_epoch
from barnabas.core.log.manager import meta_properties as identity
from barnabas.core.log.producers.producer_state import ProducerStateEntry, ProducerStates, SentBatch
from barnabas.core.log.producers.snapshot import decode_snapshot, encode_snapshot
from barnabas.core.log.segment.offset_index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, SparseIndex
from barnabas.core.log.segment.transaction_index import ENTRY, VERSION, TransactionIndex
from barnabas.core.message.batch_header import HEADER_SIZE, LENGTH_OVERHEAD, parse_header, write_crc
from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.validation import find_valid_prefix, validate_set
from barnabas.core.message.control_records import EndTransactionMarker, encode_marker, read_marker
from barnabas.core.message.message_set import MessageSet
from barnabas.core.message.record_validation import validate_records
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError, ConfigError, Malformed
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import batch, numbered

CODECS = builtin_codecs()
UNPACKED_MAX = 1 << 20
"""The maximum size of decompressed bytes."""


@frozen
class Target:
    """`decode` may raise `errors`, and nothing else."""

    decode: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[Exception], ...] = (ValueError,)


# --- the wire

_APIS = [(key, version) for key, api in sorted(BY_KEY.items()) for version in api.versions]


def _regular_expression(data: bytes) -> None:
    for _ in RegularExpression(data.decode("latin-1")).matches("my-ab1.xyyx"):
        pass


def _kafka_request(data: bytes) -> None:
    """A request's body behind its API key and version."""
    key, version = _APIS[int.from_bytes(data[:2], "big") % len(_APIS)]
    api = BY_KEY[key]
    api.request.read(api.reader(version, memoryview(data), 2, 10_000), version)


def _kafka_result(data: bytes) -> None:
    key, version = _APIS[int.from_bytes(data[:2], "big") % len(_APIS)]
    api = BY_KEY[key]
    api.result.read(api.reader(version, memoryview(data), 2, 10_000), version)


def _kafka_seeds(part: str) -> list[bytes]:
    seeds = []
    for number, (key, version) in enumerate(_APIS):
        writer = BY_KEY[key].writer(version)
        sample = SAMPLES[key].at(version)
        if part == "request":
            BY_KEY[key].request.write(writer, version, sample.request)
        else:
            BY_KEY[key].result.write(writer, version, sample.result)
        seeds.append(pack(">H", number) + joined(writer.pieces()))
    return seeds


# --- messages

_VALUES = (b"one", b"", None, b"long " * 200)


def _batches() -> list[bytes]:
    codecs = [None, *(CODECS.by_name(name) for name in ("gzip", "snappy", "lz4", "zstd"))]
    seeds = [bytes(batch(*_VALUES, keys=(b"k", None, b"", b"key"), codec=codec)) for codec in codecs]
    return [*seeds, bytes(numbered(b"x", transactional=True)), bytes(batch(b"a")) + bytes(batch(b"b", b"c"))]


def _right(data: bytes) -> bytearray:
    """With the length and the CRC that a batch of these bytes has, so that what is behind them is looked at."""
    fixed = bytearray(data)
    if len(fixed) >= HEADER_SIZE:
        fixed[8:12] = pack(">i", len(fixed) - LENGTH_OVERHEAD)
        fixed[16] = 2
        write_crc(fixed, 0, len(fixed))
    return fixed


def _record_batch(data: bytes) -> None:
    for each in (data, _right(data)):
        for message in MessageSet(each, CODECS, max_bytes=UNPACKED_MAX):
            assert message is not None


def _checked_batch(data: bytes) -> None:
    if len(data) >= HEADER_SIZE:
        validate_records(_right(data), CODECS, max_bytes=UNPACKED_MAX)


def _marker(data: bytes) -> None:
    fixed = _right(data)
    read_marker(fixed, parse_header(fixed, 0))


def _classic_set(data: bytes) -> None:
    decode_set(data, CODECS, max_bytes=UNPACKED_MAX, check_crc=False)


def _classic_checked(data: bytes) -> None:
    find_valid_prefix(data)
    complete(validate_set(data, CODECS, max_message_bytes=10_000, max_bytes=UNPACKED_MAX))


def _classic_sets() -> list[bytes]:
    inner = message_set(b"a", b"b" * 100)
    wrapped = []
    for codec_id, name in ((1, "gzip"), (2, "snappy")):
        codec = CODECS.by_name(name)
        assert codec is not None
        payload = bytes(codec.compress(inner))
        wrapped.append(pack(">ibBI", 6 + len(payload), 1, codec_id, 0) + payload)
    return [message_set(b"one", b"two"), inner, *wrapped, b"\0\0\0\x05\0\0\0\0\0"]


# --- files of a log

_STATES = ProducerStates()
_STATES.put(5, ProducerStateEntry(1, 3, (SentBatch(2, 3, 10, 11, 1000),), 1000, 2, 10))


def _index(struct: Any, column_max: int) -> Callable[[bytes], None]:
    def decode(data: bytes) -> None:
        folder = MemoryLogDir(MemoryDisk()).folder("t-0")
        folder.open("0.index").append(data)
        index = SparseIndex(folder, "0.index", struct, len(data))
        index.last()
        for column in range(column_max):
            for target in (0, 7, 2**31):
                index.find(column, target)
                index.before(column, target, 3)
                index.after(column, target)
        index.truncate(0, 5)

    return decode


def _aborted_index(data: bytes) -> None:
    folder = MemoryLogDir(MemoryDisk()).folder("t-0")
    folder.open("0.txnindex").append(data)
    index = TransactionIndex(folder, "0.txnindex", 0, len(data))
    index.check()
    index.between(3, 2**40)
    index.truncate(7)


def _config_file(suffix: str) -> Callable[[bytes], None]:
    def decode(data: bytes) -> None:
        with NamedTemporaryFile(suffix=suffix, dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
            file.write(data)
            file.flush()
            read_config(Path(file.name))

    return decode


# --- records of coordinators, nodes of the registry

_TP = TopicPartition("topic", 3)


def _node(**fields: object) -> bytes:
    return json.dumps({"version": layout.FORMAT, **fields}).encode()


_ID = layout.encode_id(bytes(range(16)))
_NODES: Mapping[str, tuple[Callable[[bytes], object], bytes]] = {
    "cluster id": (layout.decode_cluster_id, _node(id=_ID)),
    "topic": (
        lambda data: layout.decode_topic("t", data, {}),
        _node(topic_id=_ID, partitions={"0": [1, 2], "1": [2]}, adding_replicas={"0": [3]}, deleting=True),
    ),
    "configs": (layout.decode_configs, _node(config={"retention.ms": "5"})),
    "states": (
        layout.decode_states,
        _node(topic_id=_ID, states={"0": [1, 2, 3, [[1, 5]], [[2, 6]], [], [[3, 1, 2, 9]]]}),
    ),
    "states with min.insync.replicas": (
        layout.decode_states,
        _node(topic_id=_ID, min_isr=2, states={"0": [-1, 2, 3, [[1, 5]], [], [], [[3, 1, 2, 9, 1]], 1]}),
    ),
    "old state": (layout.decode_old_state, _node(leader=1, leader_epoch=2, isr=[1])),
    "deleted topic": (layout.decode_deleted, _node(topic="t", brokers=[1, 2])),
    "broker": (
        lambda data: layout.decode_broker("7", data),
        _node(endpoints=["kafka://h:1"], rack="r", started_ms=5, broker_epoch=6, offline=["t-0"], leaving=True),
    ),
    "controller": (layout.decode_controller, _node(broker_id=1, broker_epoch=2)),
    "producer ids": (layout.decode_producer_ids, _node(broker_id=1, block_start=0, block_end=999)),
    "classic broker": (lambda data: classic_layout.decode_broker("7", data), b"creator:host:9092"),
    "classic number": (lambda data: classic_layout.decode_number(data, "offset"), b"123"),
    "classic subscription": (ClassicSubscription.decode, b'{ "topic": 2, "other": 1 }'),
    "classic filter": (ClassicSubscription.decode, b"*2*white.*"),
}
_API = (ApiError,)
_WIRE = (Malformed, *DECODE_ERRORS)
"""The errors that close a connection, with one log line."""

_GROUP = group_records.StoredGroup(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    state_timestamp_ms=5,
    members=(
        group_records.StoredMember(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=5,
            session_timeout_ms=6,
            subscription=b"s",
            assignment=b"a",
        ),
    ),
)
_OFFSET = group_records.StoredOffset(
    offset=5, leader_epoch=1, metadata="m", commit_timestamp_ms=9, expire_timestamp_ms=-1
)
_STATE_PARTITIONS = share_group_records.StoredStatePartitions(
    initializing={bytes(range(16)): share_group_records.StoredTopicPartitions("t", (1, 2))},
    deleting={bytes(range(16, 32)): "u"},
)
_TRANSACTION = transaction_records.StoredTransaction(
    producer_id=7,
    producer_epoch=1,
    timeout_ms=1000,
    state=TransactionState(1),
    partitions=frozenset({_TP, TopicPartition("other", 0)}),
    updated_ms=5,
    started_ms=4,
)


def _targets() -> dict[str, Target]:
    found = {
        "kafka requests": Target(_kafka_request, _kafka_seeds("request"), (*_WIRE, Answered)),
        "kafka results": Target(_kafka_result, _kafka_seeds("result"), _WIRE),
        "classic requests": Target(
            lambda data: read_request(memoryview(data)), list(classic_wire.REQUESTS.values()), _WIRE
        ),
        "record batches": Target(_record_batch, _batches(), _API),
        "checked batches": Target(_checked_batch, _batches(), _API),
        "markers": Target(
            _marker,
            [bytes(encode_marker(EndTransactionMarker(True, 3), producer_id=1, producer_epoch=0, now_ms=0))],
            (*_API, *DECODE_ERRORS),
        ),
        "classic sets": Target(_classic_set, _classic_sets(), _API),
        "classic checks": Target(_classic_checked, _classic_sets(), _API),
        "snapshots": Target(lambda data: decode_snapshot(data, now_ms=0), [encode_snapshot(_STATES)]),
        "offset indexes": Target(_index(OFFSET_ENTRY, 2), [OFFSET_ENTRY.pack(5, 100) * 3], (CorruptIndex,)),
        "time indexes": Target(_index(TIME_ENTRY, 2), [TIME_ENTRY.pack(1000, 5) * 2], (CorruptIndex,)),
        "aborted indexes": Target(_aborted_index, [ENTRY.pack(VERSION, 7, 1, 5, 6)], (CorruptIndex,)),
        "offset checkpoints": Target(checkpoints.parse_offsets, [b"0\n2\nt 0 5\nu v 1 6\n"]),
        "segment checkpoints": Target(checkpoints.parse_segments, [b"0\n1\nt 0 5 9 100\n"], (ValueError, TypeError)),
        "epoch checkpoints": Target(checkpoints.parse_epochs, [b"0\n2\n1 0\n2 5\n"]),
        "partition.metadata": Target(
            checkpoints.parse_partition_metadata,
            [checkpoints.format_partition_metadata(bytes(range(16)), until) for until in (None, 7)],
        ),
        "broker-epoch": Target(broker_epoch.parse_broker_epochs, [b"0\n5\n", b"0\n9\nlives: ... 3 9\n"]),
        "meta.properties": Target(
            identity.parse_meta_properties, [f"version=1\ncluster.id={_ID}\nnode.id=3\n".encode()]
        ),
        "group keys": Target(
            group_records.decode_key,
            [group_records.encode_offset_key("g", "t", 1), group_records.encode_group_key("g")],
            _API,
        ),
        "group offsets": Target(
            group_records.decode_offset,
            [group_records.encode_offset(each) for each in (_OFFSET, _OFFSET._replace(topic_id=bytes(range(16))))],
            _API,
        ),
        "groups": Target(group_records.decode_group, [group_records.encode_group(_GROUP)], _API),
        "share group keys": Target(
            share_group_records.decode_share_key,
            [
                share_group_records.encode_share_key(
                    share_group_records.ShareGroupKey(share_group_records.ShareRecord.MEMBER, "g", "m")
                )
            ],
            _API,
        ),
        "share group partitions": Target(
            lambda data: share_group_records.decode_share_value(share_group_records.ShareRecord.STATE_PARTITIONS, data),
            [share_group_records.encode_share_value(_STATE_PARTITIONS)],
            _API,
        ),
        "transaction keys": Target(transaction_records.decode_key, [transaction_records.encode_key("id")], _API),
        "transactions": Target(
            transaction_records.decode_value, [transaction_records.encode_value(_TRANSACTION)], _API
        ),
        "subscriptions": Target(
            consumer_protocol.decode_subscription,
            [
                consumer_protocol.encode_subscription(
                    consumer_protocol.Subscription(
                        topics=("t", "u"), user_data=b"d", owned=(_TP,), generation_id=4, rack="r"
                    ),
                    version,
                )
                for version in range(4)
            ],
        ),
        "assignments": Target(
            consumer_protocol.decode_assignment,
            [consumer_protocol.encode_assignment(consumer_protocol.Assignment(partitions=(_TP,), user_data=b"u"))],
        ),
        "regular expressions": Target(
            _regular_expression, [rb"(?i)my-[a-c\d]+\.(x|y*){1,3}$", rb"\pL[[:alpha:]_-]+"], _API
        ),
        "properties": Target(parse_properties, [b"a=b\nlog.dirs=\\u0041 \\\n  more\n# no\n"]),
        "configuration, TOML": Target(
            _config_file(".toml"), [b'"log.segment.bytes" = 1000\n[log]\nretention.ms = 5\n'], (ConfigError,)
        ),
        "configuration, properties": Target(
            _config_file(".properties"), [b"log.segment.bytes=1000\nlisteners=kafka://:0\n"], (ConfigError,)
        ),
    }
    found |= {f"node: {name}": Target(decode, [seed]) for name, (decode, seed) in _NODES.items()}
    return found | {name: Target(each.decode, each.seeds, each.errors) for name, each in SECURITY_DECODERS.items()}


TARGETS = _targets()
