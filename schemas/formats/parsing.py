"""From a schema's text to what its format makes of it."""

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
    """A schema of that format. `references`: what it needs, directly or not, those that others need first.

    Raises `InvalidSchema`, `UnsupportedFormat`.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidSchema(f"a schema of {len(text)} characters; at most {TEXT_CHARS_MAX} are taken")
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
    raise UnsupportedFormat(f"there is no schema type {format_name!r:.100}; known: {', '.join(FORMATS)}")
