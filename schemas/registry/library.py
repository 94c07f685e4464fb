"""A cache of parsed schemas with their references."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from ..formats.avro import AvroSchema
from ..formats.parsed import (
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
from .state import Subjects
from .words import Content

_CACHED_SCHEMAS_MAX = 500
_CACHED_CHARS_MAX = 16 * 1024 * 1024
REFERENCES_MAX = 1000
_Key = tuple[str, str, tuple[Referenced, ...]]


def parse(format_name: str, text: str, references: Sequence[Referenced] = ()) -> ParsedSchema:
    """Parse a schema. `references`: the schemas that it needs, directly or indirectly, dependencies first.

    Raises `InvalidSchema`, `UnsupportedFormat`.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidSchema(f"the schema has {len(text)} characters; the maximum is {TEXT_CHARS_MAX}")
    if not text.strip():
        raise InvalidSchema("an empty schema")
    if format_name == AVRO:
        from ..formats.avro import parse_avro

        return parse_avro(text, references)
    if format_name == JSON:
        from ..formats.json_schema import parse_json_schema

        return parse_json_schema(text, references)
    if format_name == PROTOBUF:
        from ..formats.protobuf import parse_protobuf

        return parse_protobuf(text, references)
    raise UnsupportedFormat(f"unknown schema type {format_name!r:.100}; known: {', '.join(FORMATS)}")


class Library:
    """Parses schemas and caches the recent ones. Callable from any thread."""

    def __init__(self, *, validate_defaults: bool = False) -> None:
        """`validate_defaults`: a new Avro schema is refused if a default is not of its field's type
        (`avro.validate.defaults`; like Confluent's registry, this one accepts it otherwise)."""
        self._validate_defaults = validate_defaults
        self._lock = Lock()
        self._cached: OrderedDict[_Key, ParsedSchema] = OrderedDict()
        self._chars = 0

    def parse(self, content: Content, subjects: Subjects, *, fresh: bool = False) -> ParsedSchema:
        """Parse a schema. `fresh`: it may refer to undeleted versions only. Raises `InvalidSchema`,
        `UnsupportedFormat`."""
        key = (content.format, content.text, resolve(content, subjects, fresh=fresh))
        with self._lock:
            found = self._cached.get(key)
            if found is not None:
                self._cached.move_to_end(key)
        if found is not None:
            self._check_defaults(found, fresh=fresh)
            return found
        parsed = parse(*key)
        self._check_defaults(parsed, fresh=fresh)
        with self._lock:
            if key not in self._cached:
                self._cached[key] = parsed
                self._chars += len(content.text)
            while len(self._cached) > _CACHED_SCHEMAS_MAX or self._chars > _CACHED_CHARS_MAX:
                gone, _ = self._cached.popitem(last=False)
                self._chars -= len(gone[1])
        return parsed

    def _check_defaults(self, parsed: ParsedSchema, *, fresh: bool) -> None:
        if fresh and self._validate_defaults and isinstance(parsed, AvroSchema) and parsed.wrong_default:
            raise InvalidSchema(parsed.wrong_default)


def resolve(content: Content, subjects: Subjects, *, fresh: bool = False) -> tuple[Referenced, ...]:
    """Return the schemas that the content needs, dependencies first. Raises `InvalidSchema` for a missing one."""
    found: dict[str, str] = {}
    under_way: set[str] = set()

    def visit(schema: Content) -> None:
        for each in schema.references:
            if each.name in found or each.name in under_way:
                continue
            if len(under_way) + len(found) >= REFERENCES_MAX:
                raise InvalidSchema(f"more than {REFERENCES_MAX} references")
            version = subjects.version(each.subject, each.version, deleted=not fresh)
            if version is None:
                raise InvalidSchema(f"reference {each.name}: subject {each.subject} has no version {each.version}")
            under_way.add(each.name)
            visit(version.content)
            found[each.name] = version.content.text

    try:
        visit(content)
    except RecursionError:
        raise InvalidSchema("references nest too deep") from None
    return tuple(Referenced(name, text) for name, text in found.items())
