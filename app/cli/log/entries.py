"""The output of `barnabas log dump` for each kind of file."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from ....core.log.checkpoints import (
    CLEANED,
    HIGH_WATERMARK,
    LEADER_EPOCHS,
    LOG_START,
    PARTITION_METADATA,
    RECOVERY_POINT,
    SEGMENTS,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_segments,
)
from ....core.log.producers.snapshot import decode_snapshot
from ....core.log.segment.transaction_index import ENTRY as ABORTED_ENTRY
from ....core.logtools.dump import (
    BatchFinding,
    ClassicFinding,
    examine_classic_segment,
    examine_segment,
    index_entries,
    time_index_entries,
)
from ....core.message.batch_header import DELETE_HORIZON_BIT, BatchHeader, is_crc_valid
from ....core.message.classic.message_set import ClassicMessageSet
from ....core.message.codec import Codecs
from ....core.message.control_records import read_marker
from ....core.message.message import Message
from ....core.message.message_set import MessageSet
from ....ports.errors import ApiError
from ....ports.types import Buffer
from ..message_format import message_fields

Fields = dict[str, object]
RECORDS = "records"
RecordDecoder = Callable[[Message], Fields]
"""Returns further fields of a message."""

_CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_LATE = 2**63 - 1


def entries(
    content: Buffer, kind: str, base_offset: int, *, records: bool, decoder: RecordDecoder | None = None
) -> Iterator[Fields]:
    """Yield the fields of the entries of a segment file; with `records` their messages too."""
    if kind == "log":
        return _batches(content, base_offset, records, decoder)
    if kind == "kafka":
        return _classic_messages(content, base_offset, records)
    return _INDEXES[kind](content, base_offset)


def small_file_entries(content: bytes, name: str) -> Iterator[Fields]:
    """Yield the fields of a checkpoint or label; one that cannot be read has the field `problem`."""
    try:
        yield from _SMALL_FILES[name](content)
    except (ValueError, TypeError) as error:
        yield {"problem": str(error)}


def as_lines(fields: Fields) -> Iterator[str]:
    """Yield the lines for a person."""
    messages = fields.pop(RECORDS, ())
    yield "  ".join(f"{name} {value}" for name, value in fields.items())
    assert isinstance(messages, Iterable)
    for message in messages:
        yield f"  | {message}"


def _batches(content: Buffer, base_offset: int, records: bool, decoder: RecordDecoder | None) -> Iterator[Fields]:
    codecs = _codecs()
    for finding in examine_segment(content, base_offset):
        fields = _batch_fields(content, finding)
        header = finding.header
        if header is not None and header.control and not finding.problem:
            fields |= _marker_fields(content, finding.position, header)
        elif records and header is not None:
            whole = not finding.problem
            batch = bytes(content[finding.position : finding.position + header.size]) if whole else b""
            fields[RECORDS] = _message_fields(MessageSet(batch, codecs), decoder)
        yield fields


def _marker_fields(content: Buffer, position: int, header: BatchHeader) -> Fields:
    try:
        marker = read_marker(bytes(content[position : position + header.size]), header)
    except ApiError as error:
        return {"problem": error.message}
    if marker is None:
        return {}
    return {"marker": "COMMIT" if marker.committed else "ABORT", "coordinator_epoch": marker.coordinator_epoch}


def _batch_fields(content: Buffer, finding: BatchFinding) -> Fields:
    fields: Fields = {"position": finding.position}
    header = finding.header
    if header is not None:
        fields |= {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.count,
            "bytes": header.size,
            "codec": _codec_name(header.codec_id),
            "leader_epoch": header.leader_epoch,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "crc": "ok" if is_crc_valid(content, header, finding.position) else "WRONG",
        }
        marks = ("transactional", "control", "log_append_time")
        fields |= {mark: True for mark in marks if getattr(header, mark)}
        if header.attributes & DELETE_HORIZON_BIT:
            fields["delete_horizon"] = header.base_timestamp
    if finding.problem:
        fields["problem"] = finding.problem
    return fields


def _classic_messages(content: Buffer, base_offset: int, records: bool) -> Iterator[Fields]:
    for finding in examine_classic_segment(content):
        fields = _classic_fields(finding, base_offset)
        if records:
            at, whole = finding.position, not finding.problem
            entry = bytes(content[at : at + finding.size]) if whole else b""
            fields[RECORDS] = _message_fields(ClassicMessageSet(entry, _codecs(), from_offset=base_offset + at))
        yield fields


def _classic_fields(finding: ClassicFinding, base_offset: int) -> Fields:
    fields: Fields = {"position": finding.position, "offset": base_offset + finding.position}
    if finding.size:
        fields |= {
            "next": base_offset + finding.position + finding.size,
            "bytes": finding.size,
            "payload": finding.payload_bytes,
            "magic": finding.magic,
            "codec": _codec_name(finding.codec_id),
            "crc": "ok" if finding.crc_valid else "WRONG",
        }
    if finding.problem:
        fields["problem"] = finding.problem
    return fields


def _codec_name(codec_id: int) -> str:
    return _CODEC_NAMES[codec_id] if codec_id < len(_CODEC_NAMES) else f"unknown ({codec_id})"


def _message_fields(messages: Iterable[Message], decoder: RecordDecoder | None = None) -> list[Fields]:
    found = []
    for message in messages:
        fields = message_fields(message)
        del fields["topic"], fields["partition"]
        if decoder is not None:
            fields |= decoder(message)
        found.append(fields)
    return found


def _codecs() -> Codecs:
    from ....plugins.builtin.codecs import builtin_codecs

    return builtin_codecs()


# --- indexes, snapshots


def _index(content: Buffer, base_offset: int) -> Iterator[Fields]:
    for offset, position in index_entries(content, base_offset):
        yield {"offset": offset, "position": position}


def _time_index(content: Buffer, base_offset: int) -> Iterator[Fields]:
    for timestamp, offset in time_index_entries(content, base_offset):
        yield {"timestamp": timestamp, "offset": offset}


def _aborted(content: Buffer, _base_offset: int) -> Iterator[Fields]:
    whole = len(content) - len(content) % ABORTED_ENTRY.size
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(bytes(content[:whole])):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _snapshot(content: Buffer, _base_offset: int) -> Iterator[Fields]:
    try:
        states = decode_snapshot(bytes(content), now_ms=_LATE)
    except ValueError as error:
        yield {"problem": str(error)}
        return
    for producer_id, known in states.producers.items():
        yield {
            "producer_id": producer_id,
            "producer_epoch": known.epoch,
            "last_sequence": known.last_sequence,
            "last_offset": known.batches[-1].last_offset if known.batches else -1,
            "timestamp": known.seen_ms,
            "coordinator_epoch": known.coordinator_epoch,
            "txn_first_offset": known.txn_first_offset,
        }


_INDEXES: Mapping[str, Callable[[Buffer, int], Iterator[Fields]]] = {
    "index": _index,
    "timeindex": _time_index,
    "txnindex": _aborted,
    "snapshot": _snapshot,
}


# --- checkpoints


def _offsets(content: bytes) -> Iterator[Fields]:
    for (topic, partition), offset in parse_offsets(content).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _segments(content: bytes) -> Iterator[Fields]:
    for (topic, partition), sealed in parse_segments(content).items():
        for base_offset, next_base, size in sealed:
            yield {
                "topic": topic,
                "partition": partition,
                "base_offset": base_offset,
                "next_base": next_base,
                "bytes": size,
            }


def _epochs(content: bytes) -> Iterator[Fields]:
    for epoch, start_offset in parse_epochs(content):
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def _label(content: bytes) -> Iterator[Fields]:
    from ....core.cluster.layout import encode_id

    yield {"topic_id": encode_id(parse_partition_metadata(content))}


_SMALL_FILES: Mapping[str, Callable[[bytes], Iterator[Fields]]] = {
    RECOVERY_POINT: _offsets,
    LOG_START: _offsets,
    HIGH_WATERMARK: _offsets,
    CLEANED: _offsets,
    SEGMENTS: _segments,
    LEADER_EPOCHS: _epochs,
    PARTITION_METADATA: _label,
}
SMALL_FILES = frozenset(_SMALL_FILES)
