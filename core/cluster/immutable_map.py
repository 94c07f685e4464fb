"""A mapping that never changes, of which one with another entry is made in little time, however many there are."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from math import isqrt
from typing import Any, Final, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

LAYER_MIN = 16


class _Gone:
    """Stands in the upper layer for a key that is in the lower one only."""


_GONE: Final = _Gone()
_UNSEEN: Final = _Gone()


class ImmutableMap(Mapping[K, V]):
    """Two dicts: a large one that many versions share, and over it the few entries that have changed since.

    A change copies the upper one alone, until that has more than the root of the entries below: then both become one.
    So a change costs about as much as copying that root of the entries. Entries keep their order, new ones come last.
    """

    __slots__ = ("_base", "_count", "_over")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._over: dict[K, V | _Gone] = {}
        self._count = len(self._base)

    def put(self, key: K, value: V) -> "ImmutableMap[K, V]":
        """The mapping with this entry, in place of the one of the same key."""
        return self._with(key, value, self._count + (key not in self))

    def drop(self, key: K) -> "ImmutableMap[K, V]":
        """The mapping without this key; the same one if it has none."""
        return self._with(key, _GONE, self._count - 1) if key in self else self

    def put_all(self, entries: Mapping[K, V]) -> "ImmutableMap[K, V]":
        """The mapping with all of these."""
        if len(entries) > self._over_max():
            return ImmutableMap({**self, **entries})
        made = self
        for key, value in entries.items():
            made = made.put(key, value)
        return made

    def _with(self, key: K, value: V | _Gone, count: int) -> "ImmutableMap[K, V]":
        made: ImmutableMap[K, V] = ImmutableMap.__new__(ImmutableMap)
        made._base, made._over, made._count = self._base, {**self._over, key: value}, count
        return ImmutableMap(made._merged()) if len(made._over) > self._over_max() else made

    def _over_max(self) -> int:
        return max(LAYER_MIN, isqrt(len(self._base)))

    def _merged(self) -> dict[K, V]:
        merged = self._base.copy()
        for key, value in self._over.items():
            if isinstance(value, _Gone):
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged

    def __getitem__(self, key: K) -> V:
        value = self._over.get(key, _UNSEEN)
        if value is _UNSEEN:
            return self._base[key]
        if isinstance(value, _Gone):
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...

    def get(self, key: K, default: Any = None, /) -> Any:
        """Return what `dict.get` would; Mapping's own implementation with KeyError is slow."""
        value = self._over.get(key, _UNSEEN)
        if value is _UNSEEN:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def __contains__(self, key: object) -> bool:
        value = self._over.get(key, _UNSEEN)  # type: ignore[arg-type]  # any object may be asked for
        return key in self._base if value is _UNSEEN else value is not _GONE

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        over, base = self._over, self._base
        for key in base:
            if over.get(key) is not _GONE:
                yield key
        for key, value in over.items():
            if value is not _GONE and key not in base:
                yield key

    def items(self) -> ItemsView[K, V]:
        """Return a dict's view of the items; without recent changes it costs no copy."""
        return (self._merged() if self._over else self._base).items()

    def values(self) -> ValuesView[V]:
        """Return a dict's view of the values, as `items` does."""
        return (self._merged() if self._over else self._base).values()

    def __repr__(self) -> str:
        return f"Layered({dict(self)!r})"
