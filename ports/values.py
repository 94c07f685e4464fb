"""`frozen`, the decorator of our value types: attrs' own, in half the time; `quick_frozen` for those of each request.

For every class, when its module is loaded, attrs writes and compiles `__init__`, `__eq__`, `__ne__`, `__hash__` and
`__repr__`. All but the first are the same work for any class, and few values ever need them: here all classes share one
of each (docs/design/wire.md, 'Schemas'). For the type checker both are `attrs.frozen`.

`quick_frozen` is for values of which every request makes several, and nothing else: they are made in a ninth of the
time, since nothing but the type checker refuses to change them (docs/design/wire.md, 'The cost of a small request').

`Secret` holds a password, key or token, which must not appear in a log, an error or a `repr`.
"""

import hmac
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["Secret", "frozen", "quick_frozen"]

SecretT = TypeVar("SecretT", str, bytes)
HIDDEN = "[hidden]"
"""Kafka's text for a value of the type PASSWORD."""


class Secret(Generic[SecretT]):
    """A password, key or token, Kafka's `Password`: `value` has it, and every text of it is `[hidden]`.

    Two secrets are compared in constant time.
    """

    __slots__ = ("value",)

    def __init__(self, value: SecretT) -> None:
        self.value: SecretT = value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return type(self.value) is type(other.value) and hmac.compare_digest(_as_bytes(self), _as_bytes(other))

    def __hash__(self) -> int:
        return hash((Secret, self.value))


def _as_bytes(secret: Secret[Any]) -> bytes:
    value = secret.value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


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
