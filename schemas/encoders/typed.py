"""Schemas of attrs classes, and the conversion of their objects to plain values and back (cattrs)."""

import base64
import datetime
import decimal
import enum
import functools
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import attrs

from ...app.extras import require
from ...ports.errors import ConfigError

S = TypeVar("S")
_DECIMAL = (38, 18)
_LISTS = (list, tuple, set, frozenset, Sequence)
_MAPS = (dict, Mapping)
_AVRO: dict[Any, Any] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_JSON: dict[Any, dict[str, Any]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"},
    Any: {},
}


def is_typed(thing: Any) -> bool:
    """Return True for a class of attrs."""
    return isinstance(thing, type) and attrs.has(thing)


@functools.cache
def avro_of(cls: type) -> dict[str, Any]:
    """Return the Avro schema of a class. `Annotated[Decimal, (precision, scale)]` sets the size of a decimal (default
    38, 18); a field's metadata may have its schema under "avro". Raises `ConfigError` for a type without one."""
    found = _avro(attrs.resolve_types(cls), set(), cls.__name__)
    return dict(found)


@functools.cache
def json_schema_of(cls: type) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a class; a field's metadata may have its schema under "json-schema"."""
    definitions: dict[str, Any] = {}
    _json_object(attrs.resolve_types(cls), definitions, cls.__name__)
    own = definitions.pop(cls.__name__)
    inner = {"definitions": definitions} if definitions else {}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": cls.__name__, **own, **inner}


def _avro(kind: Any, seen: set[str], where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _avro_decimal(*arguments[1]) if arguments[0] is decimal.Decimal else _avro(arguments[0], seen, where)
    if kind is decimal.Decimal:
        return _avro_decimal(*_DECIMAL)
    if kind in _AVRO:
        return _AVRO[kind]
    if origin in (Union, types.UnionType):
        branches = sorted(arguments, key=lambda each: each is not type(None))
        return [_avro(each, seen, where) for each in branches]
    if origin in _LISTS:
        return {"type": "array", "items": _avro(arguments[0], seen, where)}
    if origin in _MAPS and arguments[0] is str:
        return {"type": "map", "values": _avro(arguments[1], seen, where)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if kind.__name__ in seen:
            return kind.__name__
        seen.add(kind.__name__)
        return {"type": "enum", "name": kind.__name__, "symbols": [each.name for each in kind]}
    if is_typed(kind):
        if kind.__name__ in seen:
            return kind.__name__
        seen.add(kind.__name__)
        fields = [_avro_field(each, seen, where) for each in attrs.fields(attrs.resolve_types(kind))]
        return {"type": "record", "name": kind.__name__, "fields": fields}
    raise ConfigError(f"{where}: {kind!r} has no Avro type; give the field one: attrs.field(metadata={{'avro': ...}})")


def _avro_decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _avro_field(each: "attrs.Attribute[Any]", seen: set[str], where: str) -> dict[str, Any]:
    kind = each.metadata.get("avro") or _avro(each.type, seen, f"{where}.{each.name}")
    made: dict[str, Any] = {"name": each.name, "type": kind}
    if each.default is attrs.NOTHING:
        return made
    if each.default is None and isinstance(kind, list):
        made["default"] = None
    elif isinstance(each.default, bool | int | float | str) and isinstance(kind, str) and kind != "bytes":
        made["default"] = each.default
    elif isinstance(each.default, enum.Enum):
        made["default"] = each.default.name
    elif getattr(each.default, "factory", None) in (list, dict, tuple):
        made["default"] = {} if isinstance(kind, dict) and kind["type"] == "map" else []
    if isinstance(kind, list) and "default" in made and made["default"] is not None:
        made["type"] = sorted(kind, key=lambda branch: branch == "null")  # a default is of the first branch
    return made


def _json(kind: Any, definitions: dict[str, Any], where: str) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _json(arguments[0], definitions, where)
    if kind in _JSON:
        return _JSON[kind]
    if origin in (Union, types.UnionType):
        branches = sorted(arguments, key=lambda each: each is not type(None))
        return {"oneOf": [_json(each, definitions, where) for each in branches]}
    if origin in _LISTS:
        return {"type": "array", "items": _json(arguments[0], definitions, where)}
    if origin in _MAPS and arguments[0] is str:
        return {"type": "object", "additionalProperties": _json(arguments[1], definitions, where)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [each.value for each in kind]}
    if is_typed(kind):
        _json_object(attrs.resolve_types(kind), definitions, where)
        return {"$ref": f"#/definitions/{kind.__name__}"}
    text = f"{where}: {kind!r} has no JSON Schema; give the field one: attrs.field(metadata={{'json-schema': ...}})"
    raise ConfigError(text)


def _json_object(cls: type, definitions: dict[str, Any], where: str) -> None:
    if cls.__name__ in definitions:
        return
    definitions[cls.__name__] = {}  # while its fields are converted
    properties, required = {}, []
    for each in attrs.fields(cls):
        given = each.metadata.get("json-schema")
        properties[each.name] = given or _json(each.type, definitions, f"{where}.{each.name}")
        if each.default is attrs.NOTHING:
            required.append(each.name)
    found: dict[str, Any] = {"type": "object", "properties": properties}
    definitions[cls.__name__] = {**found, "required": required} if required else found


class Typed:
    """Converts objects of a class of attrs to plain values and back."""

    def __init__(self, cls: type, *, for_json: bool) -> None:
        require("encoders of classes", ("cattrs",), "schemas")
        self.cls = cls
        self._converter = _json_converter() if for_json else _avro_converter()

    def plain(self, value: Any) -> Any:
        return self._converter.unstructure(value, unstructure_as=self.cls)

    def made(self, value: Any) -> Any:
        """Return the object. Raises `ValueError` with the wrong field."""
        from cattrs import BaseValidationError, transform_error

        try:
            return self._converter.structure(value, self.cls)
        except BaseValidationError as error:
            raise ValueError(f"no {self.cls.__name__}: {'; '.join(transform_error(error, path='value'))}") from error


@functools.cache
def _avro_converter() -> Any:
    """Leave times, decimals and uuids unchanged for fastavro."""
    from cattrs import Converter

    converter = Converter()
    for kind in (datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID):
        converter.register_unstructure_hook(kind, lambda value: value)
        converter.register_structure_hook(kind, _of_that_kind)
    converter.register_unstructure_hook_func(_is_enum, lambda value: value.name)
    converter.register_structure_hook_func(_is_enum, lambda name, kind: kind[name])
    return converter


@functools.cache
def _json_converter() -> Any:
    from cattrs.preconf.json import make_converter

    converter = make_converter()
    texts: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
        bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
        decimal.Decimal: (str, decimal.Decimal),
        uuid.UUID: (str, uuid.UUID),
        datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    }
    for kind, (write, read) in texts.items():
        converter.register_unstructure_hook(kind, write)
        converter.register_structure_hook(kind, partial(_read_text, read))
    return converter


def _read_text(read: Callable[[str], Any], value: Any, _kind: Any) -> Any:
    return read(value)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _of_that_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


class WrittenAs(Generic[S]):
    """The writer's schema: the one given to the encoder, else that of the object's class."""

    def __init__(self, given: Any, read: Callable[[Any], S], *, for_json: bool) -> None:
        """`read` returns the schema of a class, or of another form of a schema (None: none)."""
        self._read = read
        self._for_json = for_json
        self._own = None if given is None else read(given)
        self._classes: dict[type, tuple[Typed, S]] = {}

    def of(self, value: Any) -> tuple[S | None, Any]:
        """Return the schema, None if it is the newest of the registry, and the plain value."""
        cls = type(value)
        if not is_typed(cls):
            return self._own, value
        known = self._classes.get(cls)
        if known is None:
            known = self._classes[cls] = Typed(cls, for_json=self._for_json), self._read(cls)
        typed, schema = known
        return self._own or schema, typed.plain(value)
