"""`value.format` and `key.format` of a write: typed columns to the bytes of messages, in the tasks."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ...ports.errors import ConfigError
from ...schemas import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder
from ...schemas.columns.written_types import plain_values, written_avro, written_json
from .decoding_options import ColumnEncoding, ColumnFormat

_Encoder = AvroEncoder | JsonSchemaEncoder | ProtobufEncoder


def encoded_batches(
    batches: Iterable[pa.RecordBatch], encoding: ColumnEncoding, topic: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with bytes in place of the typed columns. Raises `ConfigError`, `Malformed` and what the
    registry's client does."""
    columns: dict[str, _Column] = {}
    for batch in batches:
        topics = [topic] * batch.num_rows if topic is not None else batch.column("topic").to_pylist()
        encoded = batch
        for each in encoding.columns:
            if each.column not in batch.schema.names:
                continue
            index = batch.schema.get_field_index(each.column)
            if each.column not in columns:
                columns[each.column] = _Column(each, encoding, batch.schema.field(index).type)
            values = columns[each.column].encoded(topics, batch.column(index))
            encoded = encoded.set_column(index, pa.field(each.column, pa.binary()), values)
        yield encoded


class _Column:
    """One column of a task; without a schema chosen, each topic's is that of the column's type."""

    def __init__(self, chosen: ColumnFormat, encoding: ColumnEncoding, kind: pa.DataType) -> None:
        self._chosen = chosen
        self._encoding = encoding
        self._kind = kind
        self._plain = plain_values(kind, for_json=chosen.format == "json")
        self._encoders: dict[str, _Encoder] = {}

    def encoded(self, topics: list[str | None], column: pa.Array) -> pa.Array:
        plain = self._plain
        found = []
        for topic, value in zip(topics, column.to_pylist(), strict=True):
            encoder = self._encoders.get(topic or "")
            if encoder is None:
                encoder = self._encoders[topic or ""] = self._encoder(topic or "")
            found.append(encoder.encode(topic or "", plain(value)))
        return pa.array(found, pa.binary())

    def _encoder(self, topic: str) -> _Encoder:
        chosen = self._chosen
        if not chosen.registry:
            raise ConfigError(
                f"{chosen.column}.format={chosen.format} needs schema.registry.url to write; to_json makes plain JSON"
            )
        latest = self._encoding.use_latest
        if chosen.format == "protobuf":
            return ProtobufEncoder(
                chosen.registry, is_key=chosen.column == "key", subject_naming=self._subject, use_latest=True
            )
        own: Any = None if latest else chosen.schema
        if not latest and not own:
            own = (written_avro if chosen.format == "avro" else written_json)(self._kind, topic)
        kind = AvroEncoder if chosen.format == "avro" else JsonSchemaEncoder
        return kind(
            chosen.registry,
            own,
            is_key=chosen.column == "key",
            subject_naming=self._subject,
            auto_register=self._encoding.auto_register,
            use_latest=latest,
        )

    def _subject(self, topic: str, is_key: bool, record: str) -> str:  # noqa: ARG002
        return self._chosen.subject or f"{topic}-{self._chosen.column}"
