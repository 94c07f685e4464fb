"""The signature of a client with all its settings, for `inspect.signature`, `help` and completion in IPython."""

from collections.abc import Callable, Mapping
from enum import Enum
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import attrs

from ....ports.values import Secret

_WORDS: Mapping[str, Mapping[object, str]] = {
    "acks": {-1: "all"},
    "isolation_level": {0: "read_uncommitted", 1: "read_committed"},
}
"""Settings that keep a number for a word."""


class SettingsSignature:
    """The `__signature__` of a class whose constructor takes settings as `**settings: Unpack[...]`.

    It has the constructor's parameters, then each setting with its type and default. A subclass with a constructor of
    its own has that one's signature.
    """

    def __init__(self, settings: type, defaults: Callable[[], Mapping[str, object]]) -> None:
        """`settings`: a `TypedDict`. `defaults` gives the values to show, in their order; others come last, as None."""
        self._settings = settings
        self._defaults = defaults
        self._init: Any = None
        self._made: Signature | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._init = vars(owner).get("__init__")

    def __get__(self, instance: object, owner: Any) -> Signature:
        if owner.__init__ is not self._init:
            return _without_self(signature(owner.__init__))
        if self._made is None:
            self._made = self._with_settings()
        return self._made

    def _with_settings(self) -> Signature:
        own = _without_self(signature(self._init))
        parameters = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        hints, defaults = get_type_hints(self._settings), self._defaults()
        names = [name for name in defaults if name in hints]
        names += [name for name in hints if name not in defaults]
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=_shown(name, defaults.get(name)), annotation=hints[name])
            for name in names
        ]
        return own.replace(parameters=parameters)


def _without_self(full: Signature) -> Signature:
    return full.replace(parameters=list(full.parameters.values())[1:], return_annotation=Signature.empty)


def defaults_of(*tables: type[attrs.AttrsInstance]) -> dict[str, object]:
    """Return the defaults of tables of settings: of each first its own settings, then those that it inherits."""
    found: dict[str, object] = {}
    for table in tables:
        for each in sorted(attrs.fields(table), key=lambda each: each.inherited):
            found.setdefault(each.name, each.default)
    return found


def _shown(name: str, default: object) -> object:
    """Return a default as a user writes it."""
    if default is attrs.NOTHING or isinstance(default, attrs.Factory | Secret):
        return None
    if isinstance(default, Enum):
        return default.name.lower()
    return _WORDS.get(name, {}).get(default, default) if name in _WORDS else default
