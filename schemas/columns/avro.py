"""Decodes a column of Avro values into a typed column."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from ...ports.errors import ConfigError
from ..client import RegistryClient, RegistryRefused
from ..loaded_avro import LoadedAvro, registered_avro
from ..wire import HEADER_BYTES
from .avro_nodes import AvroNode, node_of
from .avro_shapes import AvroShape, shape_of
from .decoded import DecodedColumn, put_together, regions_of, rows_by_schema
from .span import Ints, Span

_ODD = "the bytes are not of that schema: out of range, or some are left over"


@frozen(eq=False)
class _Written:
    """The reader of values that were written with one schema."""

    node: AvroNode
    schema: LoadedAvro


class AvroColumns:
    """Decodes values with a schema id in front; each id is requested once. `reader` is the column's schema."""

    def __init__(self, client: RegistryClient, reader: LoadedAvro) -> None:
        self._client = client
        self._reader = reader
        self._shape: AvroShape = shape_of(reader.parsed, reader.names)
        self._written: dict[int, _Written | str] = {}

    @property
    def type(self) -> pa.DataType:
        return self._shape.type

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        by_schema, errors = rows_by_schema(encoded)
        begin, end, buffer = regions_of(encoded)
        parts = []
        for schema_id, rows in by_schema.items():
            written = self._of(schema_id)
            if isinstance(written, str):
                errors |= dict.fromkeys(rows.tolist(), written)
                continue
            span = Span(buffer, begin[rows] + HEADER_BYTES, end[rows])
            values = written.node.read(span)
            odd = span.odd | (span.position != span.end)
            if odd.any():
                values = self._one_by_one(values, odd, encoded, rows, schema_id, written, errors)
            parts.append((rows, values))
        return DecodedColumn(put_together(parts, len(encoded), self.type), errors)

    def _of(self, schema_id: int) -> _Written | str:
        """Return the reader for a writer's schema; or the reason why there is none."""
        known = self._written.get(schema_id)
        if known is None:
            try:
                schema = registered_avro(self._client, self._client.by_id(schema_id))
                known = _Written(node_of(shape_of(schema.parsed, schema.names), self._shape), schema)
            except (RegistryRefused, ConfigError) as error:
                known = f"schema {schema_id}: {error}"
            self._written[schema_id] = known
        return known

    def _one_by_one(
        self,
        values: pa.Array,
        odd: Any,
        encoded: pa.BinaryArray,
        rows: Ints,
        schema_id: int,
        written: _Written,
        errors: dict[int, str],
    ) -> pa.Array:
        """Decode odd rows by fastavro: rows with very long arrays are valid, for others it has the error."""
        places = np.flatnonzero(odd)
        mended = []
        for place in places.tolist():
            row = int(rows[place])
            try:
                mended.append(self._one(encoded[row].as_py(), written.schema))
            except Exception as error:  # noqa: BLE001  # fastavro raises anything for bytes that are not Avro
                text = str(error) if isinstance(error, pa.ArrowInvalid | ValueError) and str(error) else _ODD
                errors[row] = f"schema {schema_id}: {text}"
                mended.append(pa.nulls(1, self.type))
        good = np.flatnonzero(~odd)
        fine = values.take(pa.array(good))
        return put_together([(good, fine), (places, pa.concat_arrays(mended))], len(values), self.type)

    def _one(self, message: bytes, written: LoadedAvro) -> pa.Array:
        from fastavro import schemaless_reader

        stream = io.BytesIO(message[HEADER_BYTES:])
        value = schemaless_reader(stream, written.parsed, self._reader.parsed)
        if stream.tell() != len(message) - HEADER_BYTES:
            raise ValueError(_ODD)
        return pa.array([self._shape.plain(value)], self.type)
