"""`frozen`, the decorator of our value types: attrs' own, in half the time; `quick_frozen` for those of each request.

For every class, when its module is loaded, attrs writes and compiles `__init__`, `__eq__`, `__ne__`, `__hash__` and
`__repr__`. All but the first are the same work for any class, and few values ever need them: here all classes share one
of each (docs/design/wire.md, 'Schemas'). For the type checker both are `attrs.frozen`.

`quick_frozen` is for values of which every request makes several, and nothing else: they are made in a ninth of the
time, since nothing but the type checker refuses to change them (docs/design/wire.md, 'The cost of a small request').
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["frozen", "quick_frozen"]

if TYPE_CHECKING:
    from attrs import frozen
    from attrs import frozen as quick_frozen
else:
    import attrs

    def frozen(maybe_class: type[Any] | None = None, /, *, eq: bool = True, **options: Any) -> Any:
        """Work like `attrs.frozen`, without replacing methods of the class. `eq`: compare and hash by the fields."""
        return _decorator(maybe_class, attrs.frozen, eq, options)

    def quick_frozen(maybe_class: type[Any] | None = None, /, *, eq: bool = True, **options: Any) -> Any:
        """Work like `frozen`, without refusing changes of fields."""
        return _decorator(maybe_class, attrs.define, eq, options)

    def _decorator(maybe_class: type[Any] | None, kind_of: Any, eq: bool, options: Any) -> Any:
        def made(kind: type[Any]) -> type[Any]:
            shared = {"__repr__": _repr}
            if eq and "__eq__" not in kind.__dict__:
                shared |= {"__eq__": _eq, "__hash__": _hash}
            for name, method in shared.items():
                if name not in kind.__dict__:
                    setattr(kind, name, method)
            value_type = kind_of(kind, eq=False, repr=False, **options)
            names = [field.name for field in attrs.fields(value_type) if field.eq]
            value_type._compared = attrgetter(*names) if names else _nothing
            return value_type

        return made if maybe_class is None else made(maybe_class)

    def _nothing(_value: object) -> tuple[()]:
        return ()

    def _eq(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = self.__class__._compared
        return compared(self) == compared(other)

    def _hash(self: Any) -> int:
        return hash((self.__class__, self.__class__._compared(self)))

    def _repr(self: Any) -> str:
        shown = []
        for field in attrs.fields(self.__class__):
            if field.repr:
                as_text = repr if field.repr is True else field.repr
                shown.append(f"{field.name}={as_text(getattr(self, field.name))}")
        return f"{self.__class__.__qualname__.rsplit('>.', 1)[-1]}({', '.join(shown)})"
