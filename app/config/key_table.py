"""`key_table`, the decorator of the classes whose fields are configuration keys.

To the type checker and to their users these classes are `frozen` ones of attrs, with values that are converted. attrs
itself took a tenth of a broker's start for its three hundred keys, most of it to write and compile an `__init__` with
three hundred parameters, and one for each part of the table. Here a value has only what was given, over class
attributes with the defaults, and all tables share their methods.
"""

from typing import TYPE_CHECKING, Any

from .keys import ConfigKey

__all__ = ["key_table", "keys_of"]

if TYPE_CHECKING:
    from attrs import frozen as key_table
else:

    def key_table(kind: type[Any]) -> type[Any]:
        """Make a class a table of keys; its bases may be tables."""
        fields: dict[str, ConfigKey | None] = {}
        for base in reversed(kind.__mro__[1:]):
            fields |= base.__dict__.get("_fields", {})
        for name in kind.__annotations__:
            default = getattr(kind, name)
            is_key = isinstance(default, ConfigKey)
            fields[name] = default if is_key else None
            if is_key:
                setattr(kind, name, default.default)
        kind._fields = fields
        for name, method in _METHODS.items():
            setattr(kind, name, method)
        return kind


def _init(self: Any, **values: Any) -> None:
    own = self.__dict__
    for name, value in values.items():
        if name not in self._fields:
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}")
        key = self._fields[name]
        own[name] = value if key is None else key.parse(value)
    check = getattr(self, "__attrs_post_init__", None)
    if check is not None:
        check()


def _equal(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return False
    return all(getattr(self, name) == getattr(other, name) for name in self._fields)


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def _refuse(_self: object, _name: str, _value: object = None) -> None:
    from attrs.exceptions import FrozenInstanceError

    raise FrozenInstanceError


class _Attributes:
    """The fields of a table as attrs describes them, for `attrs.evolve` and `attrs.fields`, once they are asked for."""

    def __get__(self, _value: object, kind: Any) -> Any:
        from attrs import fields, make_class

        kind.__attrs_attrs__ = fields(make_class(kind.__name__, list(kind._fields)))
        return kind.__attrs_attrs__


_METHODS = {
    "__init__": _init,
    "__eq__": _equal,
    "__hash__": None,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__attrs_attrs__": _Attributes(),
}


def keys_of(table: Any) -> dict[str, ConfigKey]:
    """Return the keys that a table declares, by name; those of its bases come after its own."""
    own = table.__annotations__
    found = [*filter(own.__contains__, table._fields), *(name for name in table._fields if name not in own)]
    return {key.name: key for name in found if (key := table._fields[name]) is not None}
