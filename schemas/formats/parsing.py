"""Parsing of schemas of any format."""

from collections.abc import Sequence

from .parsed import (
    AVRO,
    FORMATS,
    JSON,
    PROTOBUF,
    TEXT_CHARS_MAX,
    InvalidSchema,
    ParsedSchema,
    Referenced,
    UnsupportedFormat,
)


def parse(format_name: str, text: str, references: Sequence[Referenced] = ()) -> ParsedSchema:
    """Parse a schema. `references`: the schemas that it needs, directly or indirectly, dependencies first.

    Raises `InvalidSchema`, `UnsupportedFormat`.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidSchema(f"the schema has {len(text)} characters; the maximum is {TEXT_CHARS_MAX}")
    if not text.strip():
        raise InvalidSchema("an empty schema")
    if format_name == AVRO:
        from .avro import parse_avro

        return parse_avro(text, references)
    if format_name == JSON:
        from .json_schema import parse_json_schema

        return parse_json_schema(text, references)
    if format_name == PROTOBUF:
        from .protobuf import parse_protobuf

        return parse_protobuf(text, references)
    raise UnsupportedFormat(f"unknown schema type {format_name!r:.100}; known: {', '.join(FORMATS)}")
