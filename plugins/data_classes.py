"""The classes of users' values: dataclasses, attrs classes and pydantic models, and their fields."""

import dataclasses
import sys
import typing
from collections.abc import Mapping
from typing import Any

import attrs

KINDS = "neither a dataclass, an attrs class nor a pydantic model"
"""The end of a sentence about a class that has no fields that Barnabas knows."""


@attrs.frozen
class ClassField:
    """A field that goes into messages.

    `name` is the field's name in messages: that of the attribute, or its alias in a pydantic model. `default` is
    `attrs.NOTHING` where there is none, or where a factory of the class makes it; then it is an empty list or
    dict if that is what the class makes.
    """

    name: str
    attribute: str
    type: Any
    required: bool
    default: Any
    metadata: Mapping[str, Any]


def is_model(cls: Any) -> bool:
    """Return True for a model of pydantic 2. Its module is not imported here: a program with a model has done it."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base is not None and isinstance(cls, type) and issubclass(cls, base) and hasattr(cls, "model_fields")


def is_data_class(cls: Any) -> bool:
    """Return True for a dataclass, an attrs class or a pydantic model; not for their objects."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or attrs.has(cls) or is_model(cls))


def class_fields(cls: type) -> tuple[ClassField, ...]:
    """Return the fields that the constructor takes, and resolve their annotations in the class.

    Raises `NameError` for an annotation that names no class.
    """
    if is_model(cls):
        return _of_model(cls)
    if attrs.has(cls):
        return _of_attrs(cls)
    return _of_dataclass(cls)


def how_to_annotate(cls: Any, key: str) -> str:
    """Return the code that gives a field of the class a schema of its own, under "avro" or "json-schema"."""
    if is_model(cls):
        return f"Field(json_schema_extra={{{key!r}: ...}})"
    module = "attrs" if attrs.has(cls) else "dataclasses"
    return f"{module}.field(metadata={{{key!r}: ...}})"


def _of_attrs(cls: type) -> tuple[ClassField, ...]:
    attrs.resolve_types(cls, None, {cls.__name__: cls})
    found = []
    for each in attrs.fields(cls):
        if not each.init:
            continue
        default: Any = each.default
        if hasattr(default, "factory"):
            default = attrs.NOTHING if default.takes_self else _made_by(default.factory)
        required = each.default is attrs.NOTHING
        found.append(ClassField(each.name, each.name, each.type, required, default, each.metadata))
    return tuple(found)


def _of_dataclass(cls: type) -> tuple[ClassField, ...]:
    hints = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    found = []
    for each in dataclasses.fields(cls):
        each.type = hints[each.name]
        if not each.init:
            continue
        default: Any = each.default if each.default is not dataclasses.MISSING else attrs.NOTHING
        required = default is attrs.NOTHING and each.default_factory is dataclasses.MISSING
        if each.default_factory is not dataclasses.MISSING:
            default = _made_by(each.default_factory)
        found.append(ClassField(each.name, each.name, each.type, required, default, each.metadata))
    return tuple(found)


def _of_model(cls: Any) -> tuple[ClassField, ...]:
    if not cls.__pydantic_complete__:
        cls.model_rebuild(_types_namespace={cls.__name__: cls})
    found = []
    for attribute, each in cls.model_fields.items():
        kind = typing.Annotated[each.annotation, *each.metadata] if each.metadata else each.annotation
        default = attrs.NOTHING if each.is_required() else each.default
        if each.default_factory is not None:
            default = _made_by(each.default_factory)
        extra = each.json_schema_extra if isinstance(each.json_schema_extra, dict) else {}
        name = each.serialization_alias or each.alias or attribute
        found.append(ClassField(name, attribute, kind, each.is_required(), default, extra))
    return tuple(found)


def _made_by(factory: Any) -> Any:
    return factory() if factory in (list, dict, tuple, set, frozenset) else attrs.NOTHING
