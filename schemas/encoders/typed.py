"""Schemas of dataclasses, attrs classes and pydantic models, and the conversion of their objects to plain values and
back (by cattrs; by pydantic for its models)."""

import base64
import datetime
import decimal
import enum
import functools
import json
import sys
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar, Union, get_args, get_origin

import attrs

from ...app.extras import require
from ...plugins.data_classes import KINDS, ClassField, class_fields, how_to_annotate, is_data_class, is_model
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
_PLAIN = (
    *(bool, int, float, str, bytes, bytearray, Mapping, Sequence, set, frozenset),
    *(datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, enum.Enum),
)
_SETS: Any = {set: list, frozenset: list}
OWN_ENCODER = "encode the values yourself: encoder=lambda v: ..."


@functools.cache
def avro_of(cls: type) -> dict[str, Any]:
    """Return the Avro schema of a class. `Annotated[Decimal, (precision, scale)]` sets the size of a decimal (default
    38, 18); a field's metadata may have its schema under "avro". Raises `ConfigError` for a type without one."""
    return dict(_Avro(cls).of(cls, cls.__name__))


@functools.cache
def json_schema_of(cls: type) -> dict[str, Any]:
    """Return the JSON Schema of a class: draft 7, or pydantic's own of a model. A field's metadata may have its schema
    under "json-schema". Raises `ConfigError` for a type without one."""
    if is_model(cls):
        found = _schema_of_model(cls, cls.__name__)
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": cls.__name__, **found}
    making = _JsonSchema(cls)
    reference = making.of(cls, cls.__name__)
    own = making.definitions[cls.__name__]
    if reference not in making.inner_references:
        del making.definitions[cls.__name__]
    inner = {"definitions": making.definitions} if making.definitions else {}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": cls.__name__, **own, **inner}


class _Avro:
    """Makes one Avro schema, in which each named type is written out once."""

    def __init__(self, owner: type) -> None:
        self._owner: Any = owner
        self._named: dict[str, type] = {}

    def of(self, kind: Any, where: str, size: tuple[int, int] = _DECIMAL) -> Any:
        """Return the schema of a type; `size` is that of its decimals."""
        kind = _unwrapped(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.of(arguments[0], where, _decimal_size(kind.__metadata__) or size)
        if kind is decimal.Decimal:
            return {"type": "bytes", "logicalType": "decimal", "precision": size[0], "scale": size[1]}
        if kind in _AVRO:
            return _AVRO[kind]
        if origin in (Union, types.UnionType):
            branches = sorted(arguments, key=lambda each: each is not type(None))
            return [self.of(each, where, size) for each in branches]
        if origin is Literal and len({type(each) for each in arguments}) == 1:
            return self.of(type(arguments[0]), where)
        if origin in _LISTS:
            return {"type": "array", "items": self.of(_item_type(kind, where), f"{where}[]", size)}
        if origin in _MAPS and arguments[0] is str:
            return {"type": "map", "values": self.of(arguments[1], f"{where}[]", size)}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._enum(kind, where)
        if is_data_class(kind):
            return self._record(kind, where)
        raise _no_type(kind, self._owner, where, "avro")

    def _enum(self, kind: type[enum.Enum], where: str) -> Any:
        if self._is_known(kind, where):
            return kind.__name__
        return {"type": "enum", "name": kind.__name__, "symbols": [each.name for each in kind]}

    def _record(self, kind: type, where: str) -> Any:
        if self._is_known(kind, where):
            return kind.__name__
        outer, self._owner = self._owner, kind
        fields = [self._field(each, where) for each in _fields_of(kind, where)]
        self._owner = outer
        return {"type": "record", "name": kind.__name__, "fields": fields}

    def _is_known(self, kind: type, where: str) -> bool:
        known = self._named.get(kind.__name__)
        self._named[kind.__name__] = kind
        if known not in (None, kind):
            raise _same_name(kind, where)
        return known is kind

    def _field(self, each: ClassField, where: str) -> dict[str, Any]:
        kind = each.metadata.get("avro") or self.of(each.type, f"{where}.{each.attribute}")
        made: dict[str, Any] = {"name": each.name, "type": kind}
        default = each.default
        if default is attrs.NOTHING:
            return made
        if default is None and isinstance(kind, list):
            made["default"] = None
        elif isinstance(default, enum.Enum):
            made["default"] = default.name
        elif isinstance(default, bool | int | float | str) and _is_written_as_it_is(kind):
            made["default"] = default
        elif isinstance(default, list | dict | tuple | set | frozenset) and not default:
            made["default"] = {} if isinstance(kind, dict) and kind["type"] == "map" else []
        if isinstance(kind, list) and made.get("default") is not None:
            made["type"] = sorted(kind, key=lambda branch: branch == "null")  # a default is of the first branch
        return made


def _is_written_as_it_is(kind: Any) -> bool:
    """Return True for a type whose default stands in a schema as Python has it."""
    return kind in ("boolean", "int", "long", "float", "double", "string") or (
        isinstance(kind, list) and len(kind) == 2 and kind[0] == "null" and _is_written_as_it_is(kind[1])
    )


class _JsonSchema:
    """Makes one JSON Schema; classes are in its definitions."""

    def __init__(self, owner: type) -> None:
        self.definitions: dict[str, Any] = {}
        self.inner_references: list[dict[str, Any]] = []
        """References to classes, from within classes."""
        self._named: dict[str, type] = {}
        self._owner: Any = owner

    def of(self, kind: Any, where: str) -> dict[str, Any]:
        """Return the schema of a type."""
        kind = _unwrapped(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.of(arguments[0], where)
        if kind in _JSON:
            return _JSON[kind]
        if origin in (Union, types.UnionType):
            branches = sorted(arguments, key=lambda each: each is not type(None))
            optional = len(branches) == 2 and branches[0] is type(None)
            return {"oneOf" if optional else "anyOf": [self.of(each, where) for each in branches]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in _LISTS:
            return {"type": "array", "items": self.of(_item_type(kind, where), f"{where}[]")}
        if origin in _MAPS and arguments[0] is str:
            return {"type": "object", "additionalProperties": self.of(arguments[1], f"{where}[]")}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [each.value for each in kind]}
        if is_data_class(kind):
            return self._reference(kind, where)
        raise _no_type(kind, self._owner, where, "json-schema")

    def _reference(self, kind: Any, where: str) -> dict[str, Any]:
        known = self._named.get(kind.__name__)
        if known not in (None, kind):
            raise _same_name(kind, where)
        reference = {"$ref": f"#/definitions/{kind.__name__}"}
        if self._named:
            self.inner_references.append(reference)
        if known is None:
            self._named[kind.__name__] = kind
            self.definitions[kind.__name__] = self._class(kind, where)
        return reference

    def _class(self, kind: Any, where: str) -> dict[str, Any]:
        if is_model(kind):
            found = _schema_of_model(kind, where)
            self.definitions |= found.pop("definitions", {})
            own: dict[str, Any] = self.definitions.get(kind.__name__, found)
            return own
        outer, self._owner = self._owner, kind
        properties, required = {}, []
        for each in _fields_of(kind, where):
            given = each.metadata.get("json-schema")
            properties[each.name] = given or self.of(each.type, f"{where}.{each.attribute}")
            if each.required:
                required.append(each.name)
        self._owner = outer
        found = {"type": "object", "properties": properties}
        return {**found, "required": required} if required else found


def _schema_of_model(cls: Any, where: str) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError

    _fields_of(cls, where)
    try:
        found: dict[str, Any] = cls.model_json_schema(ref_template="#/definitions/{model}")
    except PydanticUserError as error:
        text = f"{where}: {str(error).partition(chr(10))[0]}; {how_to_annotate(cls, 'json-schema')}"
        raise ConfigError(f"{text}, or {OWN_ENCODER}") from error
    inner = found.pop("$defs", None)
    return {**found, "definitions": inner} if inner else found


def _unwrapped(kind: Any) -> Any:
    """Return the type that a NewType or a `type` statement names."""
    while isinstance(kind, NewType) or type(kind).__name__ == "TypeAliasType":
        kind = kind.__supertype__ if isinstance(kind, NewType) else kind.__value__
    return kind


def _decimal_size(metadata: Sequence[Any]) -> tuple[int, int] | None:
    """Return precision and scale of an annotation: a pair of numbers, or pydantic's max_digits and decimal_places."""
    digits = scale = None
    for each in metadata:
        if isinstance(each, tuple) and len(each) == 2:
            return each
        digits = getattr(each, "max_digits", None) or digits
        scale = getattr(each, "decimal_places", None) if scale is None else scale
    return None if digits is None else (digits, scale or 0)


def _item_type(kind: Any, where: str) -> Any:
    arguments = [each for each in get_args(kind) if each is not Ellipsis]
    if len(set(arguments)) != 1:
        raise ConfigError(f"{where}: the items of {_shown(kind)} are of several types; make a class of them")
    return arguments[0]


def _fields_of(cls: Any, where: str) -> tuple[ClassField, ...]:
    try:
        return class_fields(cls)
    except NameError as error:
        text = f"{where}: an annotation of {cls.__name__} names no class: {str(error).partition(chr(10))[0]}"
        raise ConfigError(f"{text}; define the classes of its fields at the top of a module") from error


def _no_type(kind: Any, owner: Any, where: str, key: str) -> ConfigError:
    has = "has no Avro type" if key == "avro" else "has no JSON Schema"
    what = f"{kind.__name__} is {KINDS}, and {has}" if is_own_class(kind) else f"{_shown(kind)} {has}"
    return ConfigError(f"{where}: {what}; give the field one: {how_to_annotate(owner, key)}, or {OWN_ENCODER}")


def is_own_class(kind: Any) -> bool:
    """Return True for a class that is not one of Python's own."""
    return isinstance(kind, type) and not get_args(kind) and kind.__module__ not in sys.stdlib_module_names


def _same_name(kind: type, where: str) -> ConfigError:
    return ConfigError(f"{where}: the schema has another class named {kind.__name__}; rename one of them")


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


class Typed:
    """Converts objects of a class to plain values and back."""

    def __init__(self, cls: type, *, for_json: bool, strict: bool = False) -> None:
        """`strict`: a value of another type is an error; else a number becomes a text where the class has one. Schemas
        have checked values before."""
        require("encoders of classes", ("cattrs",), "schemas")
        self.cls = cls
        self._converter = _json_converter(strict=strict) if for_json else _avro_converter()

    def plain(self, value: Any) -> Any:
        return self._converter.unstructure(value, unstructure_as=self.cls)

    def made(self, value: Any) -> Any:
        """Return the object. Raises `ValueError` with the wrong field."""
        from cattrs import BaseValidationError, StructureHandlerNotFoundError, transform_error

        try:
            return self._converter.structure(value, self.cls)
        except BaseValidationError as error:
            reasons = transform_error(error, path="value", format_exception=reason)
            raise ValueError(f"not a valid {self.cls.__name__}: {'; '.join(reasons)}") from error
        except (ValueError, TypeError, StructureHandlerNotFoundError) as error:
            raise ValueError(f"not a valid {self.cls.__name__}: {reason(error, self.cls)}") from error


def reason(error: BaseException, kind: type | None) -> str:
    """Return what is wrong with a value, and in which field."""
    from cattrs.v import format_exception

    problems = getattr(error, "errors", None)
    if callable(problems):  # pydantic's
        return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in problems())
    text = format_exception(error, kind)
    return text if isinstance(error, KeyError) else f"{text} ({error})"


@functools.cache
def _avro_converter() -> Any:
    """Leave times, decimals and uuids unchanged for fastavro."""
    from cattrs import Converter
    from cattrs.strategies import configure_union_passthrough

    converter = Converter(unstruct_collection_overrides=_SETS)
    for kind in (datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID):
        converter.register_unstructure_hook(kind, lambda value: value)
        converter.register_structure_hook(kind, _of_that_kind)
    converter.register_unstructure_hook_func(_is_enum, lambda value: value.name)
    converter.register_structure_hook_func(_is_enum, _enum_named)
    configure_union_passthrough(bool | int | float | str | bytes | None, converter)
    _resolve_annotations(converter)
    converter.register_unstructure_hook_func(is_model, partial(_plain_model, converter))
    converter.register_structure_hook_func(is_model, partial(_made_model, converter))
    return converter


def _resolve_annotations(converter: Any) -> None:
    """Let cattrs see classes where annotations name them as texts, also within lists and dicts."""

    def hook(make: Callable[[Any], Any], cls: Any) -> Any:
        _fields_of(cls, cls.__name__)
        return make(cls)

    converter.register_unstructure_hook_factory(is_data_class, partial(hook, converter.gen_unstructure_attrs_fromdict))
    converter.register_structure_hook_factory(is_data_class, partial(hook, converter.gen_structure_attrs_fromdict))


def _enum_named(name: str, kind: Any) -> Any:
    if name not in kind.__members__:
        raise ValueError(f"{kind.__name__} has no {name}")
    return kind[name]


def _plain_model(converter: Any, value: object) -> dict[str, Any]:
    cls: Any = type(value)
    return {
        each.name: converter.unstructure(getattr(value, each.attribute), unstructure_as=each.type)
        for each in _fields_of_model(cls)
    }


def _made_model(converter: Any, value: Mapping[str, Any], cls: Any) -> Any:
    """Make enums of their names, and objects of records; pydantic does the rest."""
    from cattrs import StructureHandlerNotFoundError

    given = {}
    for each in _fields_of_model(cls):
        if each.name in value:
            given[each.name] = value[each.name]
            try:
                given[each.name] = converter.structure(value[each.name], each.type)
            except StructureHandlerNotFoundError:  # a type that pydantic alone knows
                continue
    return cls.model_validate(given)


@functools.cache
def _fields_of_model(cls: type) -> tuple[ClassField, ...]:
    return class_fields(cls)


@functools.cache
def _json_converter(*, strict: bool) -> Any:
    from cattrs.preconf.json import make_converter

    converter = make_converter(unstruct_collection_overrides=_SETS)
    texts: dict[type, tuple[Callable[[Any], str], Callable[[Any], Any]]] = {
        bytes: (lambda value: base64.b64encode(value).decode(), partial(base64.b64decode, validate=True)),
        decimal.Decimal: (str, lambda value: decimal.Decimal(str(value))),
        uuid.UUID: (str, uuid.UUID),
        datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    }
    for kind, (write, read) in texts.items():
        converter.register_unstructure_hook(kind, write)
        converter.register_structure_hook(kind, partial(_read_text, read))
    _resolve_annotations(converter)
    converter.register_unstructure_hook_func(is_model, lambda value: value.model_dump(mode="json", by_alias=True))
    converter.register_structure_hook_func(is_model, lambda value, cls: cls.model_validate_json(json.dumps(value)))
    if strict:
        for kind in (bool, str):
            converter.register_structure_hook(kind, _of_that_kind)
        converter.register_structure_hook(int, _whole_number)
        converter.register_structure_hook(float, _number)
    return converter


def _read_text(read: Callable[[Any], Any], value: Any, _kind: Any) -> Any:
    return read(value)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _of_that_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _number(value: Any, _kind: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _whole_number(value: Any, _kind: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError(f"expected a whole number, got {value!r:.40}")
    return int(value)


class WrittenAs(Generic[S]):
    """The writer's schema: the one given to the encoder, else that of the object's class."""

    def __init__(self, given: Any, read: Callable[[Any], S], *, for_json: bool) -> None:
        """`read` returns the schema of a class, or of another form of a schema (None: none)."""
        self._read = read
        self._for_json = for_json
        self._own = None if given is None else read(given)
        self._classes: dict[type, tuple[Typed, S]] = {}

    def of(self, value: Any) -> tuple[S | None, Any]:
        """Return the schema, None if it is the newest of the registry, and the plain value. Raises `ConfigError` for
        an object whose class has no schema."""
        cls = type(value)
        if not is_data_class(cls):
            if self._own is None and not isinstance(value, _PLAIN):
                raise ConfigError(no_schema_of(cls))
            return self._own, value
        known = self._classes.get(cls)
        if known is None:
            known = self._classes[cls] = Typed(cls, for_json=self._for_json), self._read(cls)
        typed, schema = known
        return self._own or schema, typed.plain(value)


def no_schema_of(cls: type) -> str:
    """Return the text of the error for a class that has no schema."""
    return f"{cls.__name__} is {KINDS}, so no schema can be made of it; make it one of them, or {OWN_ENCODER}"


def schema_text(schema: Any) -> str:
    """Return the text of a schema given as text, file, or parsed JSON. Raises `ConfigError`."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, type):
        raise ConfigError(no_schema_of(schema))
    if not isinstance(schema, Path):
        try:
            return json.dumps(schema)
        except TypeError as error:
            text = f"schema: {type(schema).__name__} is not a schema; give a class, a text, a Path or parsed JSON"
            raise ConfigError(text) from error
    try:
        return schema.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the schema cannot be read: {error}") from error
