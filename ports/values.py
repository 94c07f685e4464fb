"""`frozen` and `define`, the decorators of our value types: attrs' own, which does most of its work at the first value.

For every class, when its module is loaded, attrs writes and compiles `__init__`, `__eq__`, `__ne__`, `__hash__` and
`__repr__`. All but the first are the same work for any class: here all classes share one of each. `__init__` is written
by attrs for the 101st value, or when the fields are asked for: of the five hundred types of a broker few are ever used
by one process, and many of those only once, at its start (docs/design/wire.md, 'Schemas'). For the type checker these
are the decorators of attrs.

`quick_frozen` is for values of which every request makes several, and nothing else: they are made in a ninth of the
time, since nothing but the type checker refuses to change them (docs/design/wire.md, 'The cost of a small request').

`Secret` holds a password, key or token, which must not appear in a log, an error or a `repr`.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

__all__ = ["Secret", "define", "frozen", "quick_frozen"]

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
        from hmac import compare_digest  # OpenSSL comes with it, 3.5 MB, for the first comparison

        return type(self.value) is type(other.value) and compare_digest(_as_bytes(self), _as_bytes(other))

    def __hash__(self) -> int:
        return hash((Secret, self.value))


def _as_bytes(secret: Secret[Any]) -> bytes:
    value = secret.value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


if TYPE_CHECKING:
    from attrs import define, frozen
    from attrs import frozen as quick_frozen
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414  # exported
else:
    import linecache

    import attrs

    def mypyc_attr(**_: bool) -> Any:
        """Return a decorator that only the compiler reads; pure Python needs no package for it."""
        return lambda kind: kind

    def frozen(maybe_class: type[Any] | None = None, /, **options: Any) -> Any:
        """Work like `attrs.frozen`, without replacing methods of the class. `eq`: compare and hash by the fields."""
        return _decorator(maybe_class, attrs.frozen, options)

    def quick_frozen(maybe_class: type[Any] | None = None, /, **options: Any) -> Any:
        """Work like `frozen`, without refusing changes of fields."""
        return _decorator(maybe_class, attrs.define, options)

    def define(maybe_class: type[Any] | None = None, /, **options: Any) -> Any:
        """Work like `attrs.define`, without replacing methods of the class. `eq`: compare by the fields."""
        return _decorator(maybe_class, attrs.define, options, hashable=False)

    def _decorator(maybe_class: type[Any] | None, kind_of: Any, options: dict[str, Any], hashable: bool = True) -> Any:
        def made(kind: type[Any]) -> type[Any]:
            methods = {"__repr__": _repr}
            if options.get("eq", True) and "__eq__" not in kind.__dict__:
                methods |= {"__eq__": _eq, "__hash__": _hash if hashable else None}
            own = kind.__dict__
            body = {name: method for name, method in methods.items() if name not in own or own[name] is None}
            deferred = _Deferred(kind, kind_of, options)
            return deferred.value_type(body) if deferred.possible() else deferred.complete_type(body)

        return made if maybe_class is None else made(maybe_class)

    class _Deferred:
        """A value type of which attrs has not written `__init__` yet: it does so for the first value, or for the first
        question for the fields, through a second class with the same fields."""

        __slots__ = ("_bases", "_fields", "_kind", "_kind_of", "_left", "_options", "_plan")

        def __init__(self, kind: type[Any], kind_of: Any, options: dict[str, Any]) -> None:
            self._kind = kind
            self._kind_of = kind_of
            self._options = _shared({**options, "eq": False, "repr": False})
            own = kind.__dict__
            self._fields = {name: own.get(name, _NOTHING) for name in _names_of_fields(own)}
            self._bases = tuple(base for base in kind.__mro__[1:-1] if _has_fields(base.__dict__))
            self._left = _MADE_SLOWLY
            self._plan: tuple[tuple[str, str, Any], ...] | None = None

        def possible(self) -> bool:
            """Return whether the second class would be the same to the last detail: rare features are left to attrs."""
            own = self._kind.__dict__
            slotted = self._options.get("slots", True)
            fields = self._fields
            if (
                self._options.keys() - _OPTIONS
                or not _LEFT_TO_ATTRS.isdisjoint(own)
                or issubclass(self._kind, BaseException)
                or (self._bases and any(("__slots__" in base.__dict__) is not slotted for base in self._bases))
                or (self._kind_of is attrs.define and (self._bases or any(map(_has_checks, fields.values()))))
            ):
                return False
            for name, value in own.items():
                kind = type(value)
                if kind is _FUNCTION:
                    if value.__code__.co_freevars and "__class__" in value.__code__.co_freevars:
                        return False
                elif kind is _FIELD:
                    if name not in fields:
                        return False
                elif kind not in _PLAIN and _needs_own_class(value):
                    return False
            return True

        def fill(self, value: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> bool:
            """Give a value its fields as `__init__` would, for a type of which few values are made. Returns False, and
            may have given it some, where attrs must do it: the type has made many values, or rare features, or the
            arguments are wrong."""
            if self._left <= 0:
                return False
            self._left -= 1
            if self._plan is None:
                self._plan = self._planned()
                if not self._plan:
                    self._left = 0
                    return False
            if positional and (self._options.get("kw_only") or len(positional) > len(self._plan)):
                return False
            taken = len(positional)
            used = 0
            for number, (name, argument, default) in enumerate(self._plan):
                if number < taken:
                    if argument in named:
                        return False
                    given = positional[number]
                elif argument in named:
                    given = named[argument]
                    used += 1
                elif default is _NOTHING:
                    return False
                else:
                    given = default.factory() if type(default) is attrs.Factory else default
                _set(value, name, given)
            if used != len(named):
                return False
            if hasattr(self._kind, "__attrs_post_init__"):
                value.__attrs_post_init__()
            return True

        def _planned(self) -> tuple[tuple[str, str, Any], ...]:
            """Return attribute, argument and default of each field; nothing where a field is more than that."""
            if self._bases:
                return ()
            plan = []
            for name, default in self._fields.items():
                if type(default) is _FIELD:
                    if _has_checks(default) or default.kw_only or not default.init or default.alias:
                        return ()
                    default = default._default  # noqa: PLW2901
                    if type(default) is attrs.Factory and default.takes_self:
                        return ()
                plan.append((name, name.lstrip("_"), default))
            return tuple(plan)

        def complete_type(self, body: dict[str, Any]) -> type[Any]:
            """Return the type as attrs makes it at once."""
            for name, method in body.items():
                setattr(self._kind, name, method)
            value_type = self._kind_of(self._kind, **self._options)
            value_type._compared = _compared_of(value_type)
            _slim(value_type)
            return value_type

        def value_type(self, body: dict[str, Any]) -> type[Any]:
            """Return the type; the class that is decorated is replaced if there are slots, as by attrs."""
            kind = self._kind
            body |= {"__init__": _first_init, **_LAZY}
            if self._kind_of is attrs.frozen:
                body |= _REFUSING
            if not self._options.get("slots", True):
                for name, value in self._fields.items():
                    if value is not _NOTHING:
                        delattr(kind, name)
                for name, value in body.items():
                    setattr(kind, name, value)
                kind._deferred = self
                return kind
            inherited = {name for base in self._bases for name in base.__dict__.get("__slots__", ())}
            slots = [name for name in self._fields if name not in inherited]
            if not any("__weakref__" in base.__dict__ for base in kind.__mro__[1:]):
                slots.append("__weakref__")
            left = {name: value for name, value in kind.__dict__.items() if name not in self._fields}
            left.pop("__dict__", None)
            left.pop("__weakref__", None)
            bases, body = kind.__bases__, body | _PICKLING
            if bases == (object,):
                bases, body = (_base_with(body),), {}
            own = {"_deferred": self, "__slots__": tuple(slots), "__qualname__": kind.__qualname__}
            self._kind = type(kind)(kind.__name__, bases, left | body | own)
            return self._kind

        def complete(self) -> None:
            """Give the type what was left out."""
            kind = self._kind
            body = {name: value for name, value in self._fields.items() if value is not _NOTHING}
            body |= {name: kind.__dict__[name] for name in _NAMES if name in kind.__dict__}
            if hasattr(kind, "__attrs_post_init__"):
                body["__attrs_post_init__"] = kind.__attrs_post_init__
            bases: tuple[type[Any], ...] = ()
            for base in reversed(self._bases):
                bases = (type(base.__name__, bases, {"__attrs_attrs__": base.__attrs_attrs__}),)
            twin = self._kind_of(type(kind.__name__, bases, body), **self._options)
            _slim(twin)
            kind.__attrs_attrs__ = twin.__attrs_attrs__
            kind.__match_args__ = twin.__match_args__
            kind._compared = _compared_of(twin)
            if "__signature__" in kind.__dict__:
                del kind.__signature__
            kind.__init__ = twin.__init__
            kind._deferred = None

    def _slim(kind: type[Any]) -> None:
        """Drop what attrs adds for comfort: a class for the tuple of its fields, 2 KB and more, and the source of its
        methods."""
        kind.__attrs_attrs__ = tuple(kind.__attrs_attrs__)
        linecache.cache.pop(kind.__init__.__code__.co_filename, None)

    class _Lazy:
        """An attribute of deferred types that completes the type of which it is asked."""

        __slots__ = ("_name",)

        def __init__(self, name: str) -> None:
            self._name = name

        def __get__(self, _value: object, owner: type[Any]) -> Any:
            for kind in owner.__mro__:
                deferred = kind.__dict__.get("_deferred")
                if deferred is not None:
                    deferred.complete()
                    return getattr(owner, self._name, None)
            if self._name == "__signature__":
                return None  # `inspect` then looks at `__init__`
            for kind in owner.__mro__:  # another thread may have completed the type
                if kind.__dict__.get(self._name, self) is not self:
                    return kind.__dict__[self._name]
            raise AttributeError(self._name)

    def _first_init(self: Any, *positional: Any, **named: Any) -> None:
        for kind in self.__class__.__mro__:
            deferred = kind.__dict__.get("_deferred")
            if deferred is not None and kind.__init__ is _first_init:
                if not deferred.fill(self, positional, named):
                    deferred.complete()
                    kind.__init__(self, *positional, **named)
                return
        self.__init__(*positional, **named)  # another thread has completed the type

    def _base_with(body: dict[str, Any]) -> type[Any]:
        """Return the base class with these methods: most value types share one of a few, and not each has all."""
        key = tuple(body.items())
        if key not in _BASES:
            _BASES[key] = type("Value", (), {**body, "__slots__": (), "__module__": __name__})
        return _BASES[key]

    def _shared(options: dict[str, Any]) -> dict[str, Any]:
        """Return one dictionary for all types with the same options."""
        return _OPTIONS_MADE.setdefault(tuple(sorted(options.items())), options)

    def _has_fields(own: Mapping[str, Any]) -> bool:
        return "_deferred" in own or type(own.get("__attrs_attrs__", _LAZY)) not in (_Lazy, dict)

    def _names_of_fields(own: Mapping[str, Any]) -> Iterator[str]:
        for name, annotation in own.get("__annotations__", {}).items():
            if isinstance(annotation, str):
                if not annotation.startswith(("ClassVar", "typing.ClassVar")):
                    yield name
            elif annotation is not ClassVar and getattr(annotation, "__origin__", None) is not ClassVar:
                yield name

    def _has_checks(value: Any) -> bool:
        return type(value) is _FIELD and (value._validator is not None or value.converter is not None)

    def _needs_own_class(value: Any) -> bool:
        """Return whether a function names its class (`super()`), or is kept by attrs in a way of its own."""
        if isinstance(value, property):
            return any(map(_needs_own_class, (value.fget, value.fset, value.fdel)))
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        return isinstance(value, cached_property) or (code is not None and "__class__" in code.co_freevars)

    def _compared_of(value_type: type[Any]) -> Any:
        names = [field.name for field in value_type.__attrs_attrs__ if field.eq]
        return attrgetter(*names) if names else _nothing

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

    def _get_state(self: Any) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in attrs.fields(self.__class__)}

    def _set_state(self: Any, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    _BASES: dict[tuple[Any, ...], type[Any]] = {}
    _OPTIONS_MADE: dict[tuple[Any, ...], dict[str, Any]] = {}

    @attrs.frozen
    class _Probe:
        """A value of attrs alone."""

    _FIELD = type(attrs.field())
    _FUNCTION = type(_as_bytes)
    _PLAIN = frozenset({str, int, dict, tuple, type(None), bool})
    _MADE_SLOWLY = 100
    """The number of values that are made without the `__init__` of attrs, which costs as much as two hundred values."""
    _set = object.__setattr__
    _NOTHING = attrs.NOTHING
    _REFUSING = {name: _Probe.__dict__[name] for name in ("__setattr__", "__delattr__")}
    _PICKLING = {"__getstate__": _get_state, "__setstate__": _set_state}
    _NAMES = ("__annotations__", "__module__", "__qualname__")
    _LAZY = {name: _Lazy(name) for name in ("__attrs_attrs__", "__match_args__", "_compared", "__signature__")}
    _OPTIONS = {"eq", "repr", "kw_only", "slots"}
    _LEFT_TO_ATTRS = {"__init__", "__attrs_pre_init__", "__setattr__", "__getstate__", "__setstate__", "__slots__"}
