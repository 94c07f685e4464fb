"""`value.format` and `key.format`: bytes of topics as typed columns, decoded batch by batch in the tasks."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_json_value,
)

from ...ports.errors import BarnabasError, ConfigError
from ...schemas.access import RegistryAccess
from ...schemas.client import RegisteredSchema, RegistryClient
from ...schemas.columns.avro import AvroColumns
from ...schemas.columns.decoded import ColumnDecoder, conformed
from ...schemas.columns.json import JsonColumns, inferred_type
from ...schemas.columns.json_types import json_type
from ...schemas.loaded_avro import load_avro, registered_avro
from ..topics.model import EARLIEST, LATEST, Cluster
from .decoding_options import PERMISSIVE, ColumnDecoding, ColumnFormat
from .options import Selection
from .ranges import selected

_SAMPLE_ROWS = 1000
Sample = Callable[[str], Sequence[bytes]]
"""Some values of a column ("key", "value"), to infer a type from."""


class Undecodable(BarnabasError):
    """A row is not of its schema, and the mode is FAILFAST."""


def settled(
    decoding: ColumnDecoding, topics: Sequence[str], sample: Sample, given: StructType | None = None
) -> ColumnDecoding:
    """Return the decoding with a schema for each column: the newest of the subject where none was chosen, or one that
    is inferred from a sample.

    `given` is what the query was planned with: what was inferred then is not inferred again.
    """
    return evolve(decoding, columns=tuple(_settled(each, topics, sample, given) for each in decoding.columns))


def _settled(each: ColumnFormat, topics: Sequence[str], sample: Sample, given: StructType | None) -> ColumnFormat:
    if each.schema or each.schema_id is not None:
        return each
    if each.registry:
        return evolve(each, schema_id=_newest(each, topics).id)
    if given is not None and each.column in given.names:
        return evolve(each, schema=given[each.column].dataType.json())
    texts = sample(each.column)
    if not texts:
        text = f"there is nothing to infer the type of {each.column} from: give {each.column}.schema"
        raise ConfigError(f"{text}, as in: id BIGINT, name STRING")
    try:
        return evolve(each, schema=from_arrow_type(inferred_type(texts), prefer_timestamp_ntz=True).json())
    except ValueError as error:
        raise ConfigError(f"no type can be inferred of {each.column}: {error}; give {each.column}.schema") from error


def _newest(each: ColumnFormat, topics: Sequence[str]) -> RegisteredSchema:
    subjects = [each.subject] if each.subject else [f"{topic}-{each.column}" for topic in topics]
    if not subjects:
        raise ConfigError(f"topics by a pattern have no common subject: give {each.column}.subject or .schema.id")
    client = _client(each.registry)
    found = {subject: client.latest(subject, fresh=True) for subject in subjects}
    if len({schema.id for schema in found.values()}) > 1:
        ids = ", ".join(f"{subject} has {schema.id}" for subject, schema in found.items())
        raise ConfigError(
            f"these topics have several schemas ({ids}): read them one by one, or give {each.column}.subject or "
            f"{each.column}.schema.id"
        )
    return next(iter(found.values()))


def sampled(cluster: Cluster, selection: Selection, column: str) -> Sequence[bytes]:
    """Return values of the first records of each partition."""
    partitions = [tp for info in selected(cluster, selection) for tp in info.partitions]
    starts, ends = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
    found: list[bytes] = []
    for tp in partitions:
        end = min(ends[tp], starts[tp] + _SAMPLE_ROWS)
        if end <= starts[tp]:
            continue
        for piece in cluster.read(tp, starts[tp], end):
            values = pa.array(piece.values if column == "value" else piece.keys, pa.binary())
            found += values.drop_null().to_pylist()
        if len(found) >= _SAMPLE_ROWS:
            break
    return found[:_SAMPLE_ROWS]


def typed_schema(raw: StructType, decoding: ColumnDecoding) -> StructType:
    """Return the columns of a read: those of `raw` with types, and in mode PERMISSIVE two more for each that is
    decoded."""
    types = {each.column: column_type(each) for each in decoding.columns}
    fields = [StructField(field.name, types.get(field.name, field.dataType)) for field in raw]
    if decoding.permissive:
        for each in decoding.columns:
            fields.append(StructField(f"{each.column}_raw", BinaryType()))
            fields.append(StructField(f"{each.column}_error", StringType()))
    return StructType(fields)


def column_type(each: ColumnFormat) -> DataType:
    """Return the type of a column of a settled format. Raises `ConfigError`."""
    if each.columns:
        return _parse_datatype_json_value(json.loads(each.columns))
    return from_arrow_type(decoder_of(each).type, prefer_timestamp_ntz=True)


def decoded_batches(
    batches: Iterable[pa.RecordBatch], decoding: ColumnDecoding, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with typed columns; `schema` is that of `typed_schema` in Arrow. Raises `Undecodable`."""
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for each in decoding.columns:
            encoded = columns[each.column]
            found = decoder_of(each).decode(encoded)
            if found.errors and not decoding.permissive:
                raise Undecodable(_errors_text(each.column, batch, found.errors))
            columns[each.column] = found.values
            wrong = np.zeros(batch.num_rows, dtype=np.bool_)
            wrong[list(found.errors)] = True
            columns[f"{each.column}_raw"] = pc.if_else(pa.array(wrong), encoded, pa.scalar(None, pa.binary()))
            texts = [found.errors.get(row) for row in range(batch.num_rows)] if found.errors else None
            columns[f"{each.column}_error"] = pa.array(texts or [None] * batch.num_rows, pa.string())
        arrays = [columns[field.name] for field in schema]
        fitting = [conformed(a, f.type) for a, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(fitting, schema=schema)


def _errors_text(column: str, batch: pa.RecordBatch, errors: Mapping[int, str]) -> str:
    row = min(errors)
    record = f"{batch.column('topic')[row]}-{batch.column('partition')[row]} offset {batch.column('offset')[row]}"
    return (
        f"{record}: {column} does not decode: {errors[row]}; with mode={PERMISSIVE} such rows remain, with {column} "
        f"null, {column}_raw and {column}_error"
    )


@lru_cache(maxsize=64)
def _client(registry: RegistryAccess | str) -> RegistryClient:
    """Return one for all reads of this process: what it knows, it knows for all of them."""
    return RegistryClient(registry)


@lru_cache(maxsize=64)
def decoder_of(each: ColumnFormat) -> ColumnDecoder:
    """Return the decoder of a settled format; a worker of Spark keeps it from task to task. Raises `ConfigError`."""
    return _MAKERS[each.format](each)


def _avro(each: ColumnFormat) -> ColumnDecoder:
    client = _client(each.registry)
    if each.schema_id is None:
        return AvroColumns(client, load_avro(each.schema))
    return AvroColumns(client, registered_avro(client, client.by_id(each.schema_id)))


def _json(each: ColumnFormat) -> ColumnDecoder:
    if each.schema_id is not None:
        schema = _client(each.registry).by_id(each.schema_id)
        if schema.kind != "JSON":
            raise ConfigError(f"schema {schema.id} is of type {schema.kind}, expected JSON")
        return JsonColumns(json_type(schema.text))
    return JsonColumns(_json_column(each))


# Types as SQL writes them (`id BIGINT, tags ARRAY<STRING>`), read where no Spark session is: in a Python worker.

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`|[A-Za-z_]\w*|\d+)|([<>(),:])|('(?:[^'\\]|\\.|'')*'))")
_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}


def parse_ddl(text: str) -> DataType:
    """Return a list of columns as a struct, or a single type. Raises `ConfigError`."""
    reading = _Reading(text)
    if len(reading.tokens) == 1 or (len(reading.tokens) > 1 and reading.tokens[1] in ("<", "(")):
        found = reading.type()
    else:
        found = reading.fields("")
    if reading.tokens[reading.index :]:
        raise reading.wrong()
    return found


class _Reading:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.index = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.wrong()
            self.tokens.append(match[0].strip())
            position = match.end()
        if not self.tokens:
            raise self.wrong()

    def wrong(self) -> ConfigError:
        return ConfigError(
            f"{self.text!r} is not a schema in the notation of SQL, such as: id BIGINT, name STRING, tags ARRAY<STRING>"
        )

    def next(self) -> str:
        if self.index >= len(self.tokens):
            raise self.wrong()
        self.index += 1
        return self.tokens[self.index - 1]

    def accept(self, *words: str) -> bool:
        there = [token.upper() for token in self.tokens[self.index : self.index + len(words)]]
        if there != list(words):
            return False
        self.index += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.wrong()

    def fields(self, end: str) -> StructType:
        found: list[StructField] = []
        if end and self.accept(end):
            return StructType(found)
        while True:
            name = self.next()
            self.accept(":")
            kind = self.type()
            nullable = not self.accept("NOT", "NULL")
            metadata = {"comment": self.next()[1:-1].replace("''", "'")} if self.accept("COMMENT") else None
            found.append(StructField(name.strip("`").replace("``", "`"), kind, nullable, metadata))
            if end and self.accept(end):
                return StructType(found)
            if not self.accept(","):
                if end:
                    raise self.wrong()
                return StructType(found)

    def type(self) -> DataType:
        name = self.next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in ("decimal", "dec", "numeric"):
            return self.decimal()
        if name == "array":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return ArrayType(element)
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return MapType(key, value)
        if name == "struct":
            self.expect("<")
            return self.fields(">")
        raise self.wrong()

    def decimal(self) -> DecimalType:
        if not self.accept("("):
            return DecimalType()
        precision = self.number()
        scale = self.number() if self.accept(",") else 0
        self.expect(")")
        return DecimalType(precision, scale)

    def number(self) -> int:
        word = self.next()
        if not word.isdigit():
            raise self.wrong()
        return int(word)


def _json_column(each: ColumnFormat) -> pa.DataType:
    text = each.schema.strip()
    if text[:1] not in ("{", '"'):
        return arrow_type_of(parse_ddl(text))
    try:
        found: Any = json.loads(text)
        if isinstance(found, str) or found.keys() & {"fields", "elementType", "keyType"}:
            return arrow_type_of(_parse_datatype_json_value(found))
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise ConfigError(f"{each.column}.schema is not a schema: {error!r}") from error
    return json_type(text)


def arrow_type_of(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses, with times in UTC."""
    return to_arrow_type(kind, timezone="UTC")


def _protobuf(each: ColumnFormat) -> ColumnDecoder:
    from ...schemas.columns.protobuf import ProtobufColumns

    if each.schema_id is None:
        raise ConfigError(
            f"{each.column}.schema is not supported with protobuf: give {each.column}.schema.id or .subject"
        )
    client = _client(each.registry)
    return ProtobufColumns(client, client.by_id(each.schema_id, serialized=True))


_MAKERS: Mapping[str, Callable[[ColumnFormat], ColumnDecoder]] = {"avro": _avro, "json": _json, "protobuf": _protobuf}


def settled_by(
    cluster: Callable[[], Cluster], decoding: ColumnDecoding, selection: Selection, given: StructType | None
) -> ColumnDecoding:
    """`settled`, with samples from the topics that are read; `cluster` connects to them."""

    def sample(column: str) -> Sequence[bytes]:
        opened = cluster()
        try:
            return sampled(opened, selection, column)
        finally:
            opened.close()

    names = selection.topics or tuple(dict.fromkeys(tp.topic for tp in selection.partitions or ()))
    return settled(decoding, names, sample, given)
