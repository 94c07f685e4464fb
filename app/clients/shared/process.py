"""The check of clients after a fork: a child has a copy of the client, but none of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakSet

from ....ports.errors import BarnabasError

ClassT = TypeVar("ClassT", bound=type)


class ProcessBound:
    """An object that works only in the process in which it was made."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.is_foreign = False
        """True in a child of the process in which it was made."""
        _all.add(self)

    def check_process(self) -> None:
        """Raise `BarnabasError` in a child of the process that it was made in."""
        if self.is_foreign:
            raise BarnabasError(
                f"this client belongs to process {self.process_id}, and works there only: make another one in this "
                f"process ({os.getpid()}), after the fork"
            )


_all: WeakSet[ProcessBound] = WeakSet()


def _forked() -> None:
    for each in list(_all):
        each.is_foreign = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def check_process_in_methods(attribute: str, *, but: tuple[str, ...] = ()) -> Callable[[ClassT], ClassT]:
    """Make all public methods and properties of a class call `check_process` of this attribute first.

    `but`: those that call it themselves. The check comes before any wait: a thread that does not exist in the child may
    hold a lock.
    """

    def checked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def within_process(self: Any, *args: Any, **kwargs: Any) -> Any:
            getattr(self, attribute).check_process()
            return method(self, *args, **kwargs)

        return within_process

    def changed(kind: ClassT) -> ClassT:
        for name, member in list(vars(kind).items()):
            if name in but or (name.startswith("_") and name not in ("__iter__", "__enter__")):
                continue
            if isinstance(member, FunctionType):
                setattr(kind, name, checked(member))
            elif isinstance(member, property) and member.fget is not None:
                setattr(kind, name, property(checked(member.fget), doc=member.__doc__))
        return kind

    return changed
