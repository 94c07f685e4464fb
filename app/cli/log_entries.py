"""What `barnabas log dump` prints of each kind of file, by its suffix."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from ...core.log.examine import BatchFinding, examine_segment, index_entries, time_index_entries
from ...core.log.examine_classic import ClassicFinding, examine_classic_segment
from ...core.message.batch_header import crc_valid
from ...core.message.classic.message_set import ClassicMessageSet
from ...core.message.codec import Codecs
from ...core.message.message import Message
from ...core.message.message_set import MessageSet
from ...ports.words import Buffer
from .consume import message_fields

Fields = dict[str, object]
RECORDS = "records"

_CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


def entries(content: Buffer, kind: str, base_offset: int, *, records: bool) -> Iterator[Fields]:
    """The entries of a file, by the names of their values; with `records` their messages too, where there are any."""
    return _READERS[kind](content, base_offset, records)


def as_lines(fields: Fields) -> Iterator[str]:
    """The same for a person to read."""
    messages = fields.pop(RECORDS, ())
    yield "  ".join(f"{name} {value}" for name, value in fields.items())
    assert isinstance(messages, Iterable)
    for message in messages:
        yield f"  | {message}"


def _batches(content: Buffer, base_offset: int, records: bool) -> Iterator[Fields]:
    for finding in examine_segment(content, base_offset):
        fields = _batch_fields(content, finding)
        header = finding.header
        if records and header is not None:
            whole = not finding.problem
            batch = bytes(content[finding.position : finding.position + header.size]) if whole else b""
            fields[RECORDS] = _message_fields(MessageSet(batch, _codecs()))
        yield fields


def _batch_fields(content: Buffer, finding: BatchFinding) -> Fields:
    fields: Fields = {"position": finding.position}
    header = finding.header
    if header is not None:
        fields |= {
            "offsets": f"{header.base_offset}..{header.last_offset}",
            "count": header.count,
            "bytes": header.size,
            "codec": _codec_name(header.codec_id),
            "epoch": header.leader_epoch,
            "timestamps": f"{header.base_timestamp}..{header.max_timestamp}",
            "producer": f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}",
            "crc": "ok" if crc_valid(content, header, finding.position) else "WRONG",
        }
        marks = ("transactional", "control", "log_append_time")
        fields |= {mark: "yes" for mark in marks if getattr(header, mark)}
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


def _message_fields(messages: Iterable[Message]) -> list[Fields]:
    found = []
    for message in messages:
        fields = message_fields(message)
        del fields["topic"], fields["partition"]
        found.append(fields)
    return found


def _codecs() -> Codecs:
    from ...plugins.builtin.codecs import builtin_codecs

    return builtin_codecs()


def _index(content: Buffer, base_offset: int, _records: bool) -> Iterator[Fields]:
    for offset, position in index_entries(content, base_offset):
        yield {"offset": offset, "position": position}


def _time_index(content: Buffer, base_offset: int, _records: bool) -> Iterator[Fields]:
    for timestamp, offset in time_index_entries(content, base_offset):
        yield {"timestamp": timestamp, "offset": offset}


_READERS: Mapping[str, Callable[[Buffer, int, bool], Iterator[Fields]]] = {
    "log": _batches,
    "kafka": _classic_messages,
    "index": _index,
    "timeindex": _time_index,
}
