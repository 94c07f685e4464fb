"""A search through every history of a small scope, by what the searches of mirrors and of tiers have in common.

A state has calls that are under way, and generators, which cannot be copied. So a state is what was done to reach it,
and is played again from the beginning; only the newest one is kept as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Done = tuple[tuple[str, Any], ...]
"""The actions of a history: names, and of what."""


class BrokenPromise(AssertionError):
    """A history after which a record is missing, or there although it should not be."""


class _Scope(Protocol):
    """The limits of a search: how often each counted action may happen, and what has happened when it begins."""

    @property
    def most(self) -> Mapping[str, int]: ...
    @property
    def before(self) -> tuple[str, ...]: ...


ScopeT = TypeVar("ScopeT", bound=_Scope)


class _History(Protocol):
    """An object to search: a method for each action, which returns False where the action cannot happen."""

    used: dict[str, int]

    @property
    def may_quiesce(self) -> bool:
        """Whether this is a state in which everything is to come to rest."""
        ...

    @property
    def quiesces_in_motion(self) -> bool:
        """Whether that is so even if steps that are not counted still change something."""
        ...

    def of(self, text: str) -> Any: ...
    def note(self) -> object: ...
    def check(self) -> None: ...
    def rest(self) -> None: ...
    def quiesce(self) -> None: ...
    def fingerprint(self) -> str: ...


def search_histories(make: Callable[[ScopeT], _History], scope: ScopeT, actions: Sequence[tuple[str, Any]]) -> int:
    """Play every history of the scope; return the number of states. Raises `BrokenPromise` with the history."""
    first = play_history(make, scope)
    found = {first.fingerprint()}
    waiting: list[tuple[Done, str, _History | None]] = [((), first.fingerprint(), first)]
    while waiting:
        before, own, history = waiting.pop()
        newest: tuple[Done, str, _History | None] | None = None
        history = history or play_history(make, scope, before)
        quiesces, in_motion, is_still = history.may_quiesce, history.quiesces_in_motion, True
        for name, of in actions:
            if sum(each == name for each, _ in before) >= scope.most.get(name, 1_000):
                continue
            history = history or play_history(make, scope, before)
            done = (*before, (name, of))
            try:
                if not _act(history, scope, name, of):
                    continue
                history.check()
            except BrokenPromise as broken:
                raise BrokenPromise(_line(done, broken)) from None
            mark = history.fingerprint()
            is_still = is_still and (name in scope.most or mark == own)
            if mark not in found:
                found.add(mark)
                if newest is not None:
                    waiting.append((*newest[:2], None))
                newest = done, mark, history
            history = None
        if newest is not None:
            waiting.append(newest)
        if quiesces and (is_still or in_motion):
            try:
                (history or play_history(make, scope, before)).quiesce()
            except BrokenPromise as broken:
                raise BrokenPromise(_line(before, broken)) from None
    return len(found)


def play_history(make: Callable[[ScopeT], _History], scope: ScopeT, actions: Done = ()) -> Any:
    """Return what the scope begins with, after these actions."""
    history = make(scope)
    history.note()
    for line in scope.before:
        name, _, of = line.partition(" ")
        if name == "rest":
            history.rest()
        else:
            getattr(history, name)(history.of(of))
        history.note()
    for name, of in actions:
        _act(history, scope, name, of)
        history.note()
    return history


def _act(history: _History, scope: _Scope, name: str, of: Any) -> bool:
    if not getattr(history, name)(of):
        return False
    if name in scope.most:
        history.used[name] = history.used.get(name, 0) + 1
    return True


def _line(done: Done, broken: BrokenPromise) -> str:
    return f"{', '.join(f'{each} {of}' for each, of in done)}: {broken}"
