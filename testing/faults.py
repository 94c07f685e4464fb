"""Faults on demand: what goes wrong, for which requests, how often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..ports.broker_api.envelope import Caller, Reply, Request
from ..ports.errors import ConfigError
from ..ports.transport import TransportError
from .shapes import (
    OF_PARTITIONS_OF_GROUPS,
    Item,
    error_code,
    merged,
    request_type,
    result_error,
    says_as_a_whole,
    shape_of,
    with_errors,
    without,
)

if TYPE_CHECKING:
    from types import TracebackType

    from ..ports.error_codes import ErrorCode

Api = str | int | type[Request[Any]]
"""An API: Kafka's name or key of it, or the type of its request."""
When = Callable[[Request[Any], Caller], bool]
Submit = Callable[[Request[Any], Caller, Reply[Any]], None]
Later = Callable[[float, Callable[[], None]], None]
"""Runs a callback after a delay in milliseconds, on the broker's thread."""

_PATIENCE_S = 60.0


class Fault:
    """One thing that goes wrong on demand. In force until it is removed, or has happened `times` times.

    with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        ...
    assert fault.hits == 2
    """

    def __init__(
        self,
        faults: Faults,
        api: Api | None,
        *,
        topic: str | None,
        partition: int | None,
        group: str | None,
        client_id: str | None,
        when: When | None,
        times: int | None,
    ) -> None:
        for name, given in (("topic", topic), ("group", group), ("client_id", client_id)):
            if given is not None and not isinstance(given, str):
                raise ConfigError(f"{name}={given!r}: give a text")
        for name, number, least in (("times", times, 1), ("partition", partition, 0)):
            if number is not None and (type(number) is not int or number < least):
                raise ConfigError(f"{name}={number!r}: give {least} or more, or leave it out")
        if when is not None and not callable(when):
            raise ConfigError(f"when={when!r}: give a function of the request")
        self._faults = faults
        self._request_type = None if api is None else request_type(api)
        self._topic = topic
        self._partition = partition
        self._group = group
        self._client_id = client_id
        self._when = when
        self._times = times
        if self._request_type is not None:
            shape_of(self._request_type).check(topic=topic, partition=partition, group=group)
        self._changed = threading.Condition()
        self._hits = 0
        self._removed = False

    @property
    def hits(self) -> int:
        """The number of times that it has happened."""
        return self._hits

    @property
    def active(self) -> bool:
        """False once it was removed, or has happened as often as it should."""
        return not self._removed and (self._times is None or self._hits < self._times)

    def wait(self, hits: int = 1, *, timeout: float = _PATIENCE_S) -> None:
        """Return when it has happened `hits` times. Raises `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout):
                raise TimeoutError(f"{self} has happened {self._hits} times in {timeout:g} s, not {hits}")

    def remove(self) -> None:
        """Stop the fault. A second call has no effect."""
        with self._changed:
            self._removed = True
        self._faults.forget(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        named = {"topic": self._topic, "partition": self._partition, "group": self._group, "client_id": self._client_id}
        parts = [self.api] + [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return f"<{self.what} {' '.join(parts)}, {self._hits} hits>"

    what = "fault"

    @property
    def api(self) -> str:
        """The API it is about."""
        return "every API" if self._request_type is None else self._request_type.__name__

    # --- for the broker's thread

    def takes(self, request: Request[Any], caller: Caller) -> bool:
        """Whether it happens to this request; it counts as having happened then."""
        if self._request_type is not None and type(request) is not self._request_type:
            return False
        if self._client_id is not None and caller.client_id != self._client_id:
            return False
        if not self._concerns(request) or (self._when is not None and not self._when(request, caller)):
            return False
        return self.count()

    def count(self) -> bool:
        """One more time; False if it is over."""
        with self._changed:
            if not self.active:
                return False
            self._hits += 1
            self._changed.notify_all()
            is_over = not self.active
        if is_over:
            self._end()
        return True

    def _end(self) -> None:
        """End the fault: it has happened as often as it should."""
        self._faults.forget(self)

    @property
    def narrowed(self) -> bool:
        """Whether it is meant for a topic or partition."""
        return self._topic is not None or self._partition is not None

    def matches(self, item: Item) -> bool:
        """Whether it is meant for this item; what an item says nothing of counts as meant."""
        return (
            (self._topic is None or item.topic is None or item.topic == self._topic)
            and (self._partition is None or item.partition is None or item.partition == self._partition)
            and (self._group is None or item.group is None or item.group == self._group)
        )

    def _concerns(self, request: Request[Any]) -> bool:
        if not self.narrowed and self._group is None:
            return True
        shape = shape_of(type(request))
        if self._request_type is None and not (
            (self._topic is None or shape.has_topics)
            and (self._partition is None or shape.has_partitions)
            and (self._group is None or shape.has_groups)
        ):
            return False
        items = shape.items(request, inner=True)
        return items is None or any(self.matches(item) for item in items)

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:
        """Do it to a request that it `takes`; `submit` hands requests on to the broker."""
        raise NotImplementedError


class ErrorFault(Fault):
    """Answers with an error code."""

    what = "error"

    def __init__(self, faults: Faults, api: Api, code: str | int | ErrorCode, **which: Any) -> None:
        super().__init__(faults, api, **which)
        self.code = error_code(code)
        self._shape = shape_of(request_type(api))
        self._whole = says_as_a_whole(self._shape, self.code, narrowed=self.narrowed)
        self._inner = self._shape.inner_type is not None and (
            which["partition"] is not None
            or (self._shape.has_groups and (self.narrowed or self.code in OF_PARTITIONS_OF_GROUPS))
        )

    def _concerns(self, request: Request[Any]) -> bool:
        return (self._whole or self._shape.items(request) != []) and super()._concerns(request)

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:  # noqa: ARG002
        shape, code = self._shape, self.code
        if self._whole and not shape.must_ask:
            reply(result_error(shape, request, code))
            return
        items = shape.items(request)
        if shape.must_ask or self._inner or items is None:
            spoil = partial(with_errors, shape, match=self.matches, code=code, inner=self._inner)
            submit(request, caller, _then(reply, spoil))
            return
        gone = [item for item in items if self.matches(item)]
        rest = without(shape, request, gone)
        if rest is None:
            reply(merged(shape, items, gone, None, code))
        else:
            submit(rest, caller, _then(reply, lambda result: merged(shape, items, gone, result, code)))


class DelayFault(Fault):
    """Delays answers by a number of milliseconds, or until it is removed."""

    what = "delay"

    def __init__(self, faults: Faults, api: Api | None, delay_ms: float | None, **which: Any) -> None:
        super().__init__(faults, api, **which)
        if delay_ms is not None and (type(delay_ms) not in (int, float) or delay_ms < 0):
            raise ConfigError(f"a delay of {delay_ms!r} ms")
        self._delay_ms = delay_ms
        self._held: list[Callable[[], None]] = []

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:
        def wait(result: Any) -> None:
            if self._delay_ms is not None:
                later(self._delay_ms, lambda: reply(result))
                return
            with self._changed:
                is_over = self._removed
                if not is_over:
                    self._held.append(lambda: later(0.0, lambda: reply(result)))
            if is_over:
                reply(result)

        submit(request, caller, wait)

    def _end(self) -> None:
        if self._delay_ms is not None:  # else it is still to be removed
            super()._end()

    def remove(self) -> None:
        super().remove()
        with self._changed:
            held, self._held = self._held, []
        self._faults.on_broker_thread(partial(_call_all, held))


class DropFault(Fault):
    """Closes the connection in place of an answer."""

    what = "drop"

    def __init__(self, faults: Faults, api: Api | None, *, after: bool, **which: Any) -> None:
        super().__init__(faults, api, **which)
        self._after = after

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:  # noqa: ARG002
        dropped = TransportError("the connection is dropped on demand")
        if self._after:
            submit(request, caller, lambda _: reply(dropped))
        else:
            reply(dropped)


class RefuseFault(Fault):
    """Closes new connections at once."""

    what = "refuse"

    def __repr__(self) -> str:
        return f"<refuse connections, {self._hits} hits>"

    def takes(self, request: Request[Any], caller: Caller) -> bool:  # noqa: ARG002
        return False


class Faults:
    """The faults of one broker. They act on every client of any kind, and outlive a restart of the broker.

    In common: `topic`, `partition`, `group` and `client_id` say which requests of the API are meant (a request is, when
    anything in it is), `when(request, caller)` decides for whatever else there is, on the broker's thread. `times`
    limits how often a fault happens. Each method returns the `Fault`; several that concern one request all act, in the
    order they were made. Raises `ConfigError` for what an API cannot express, or for an unknown one, listing the known.
    """

    def __init__(self, on_broker_thread: Callable[[Callable[[], None]], None]) -> None:
        """`on_broker_thread` runs a callback there, soon; it may drop it when the broker does not run."""
        self.on_broker_thread = on_broker_thread
        self._lock = threading.Lock()
        self._active: tuple[Fault, ...] = ()

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults in force."""
        return tuple(fault for fault in self._active if fault.active)

    def error(
        self,
        api: Api,
        code: str | int | ErrorCode,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Answer with an error code, without doing what was asked.

        With `topic` or `partition`, only those are answered so; the rest of a request is done. The error stands where
        the API has a place for it: with each partition, topic or group, or as the answer as a whole.
        """
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(ErrorFault(self, api, code, **which, when=when, times=times))

    def delay(
        self,
        api: Api | None = None,
        ms: float | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Do what was asked, but hold the answer back for `ms`; without `ms`, until the fault is removed."""
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(DelayFault(self, api, ms, **which, when=when, times=times))

    def drop(
        self,
        api: Api | None = None,
        *,
        after: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Close the connection in place of an answer; `after`: once it is done what was asked, so that only the answer
        is lost."""
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(DropFault(self, api, after=after, **which, when=when, times=times))

    def refuse(self, *, times: int | None = None) -> Fault:
        """Close new connections at once; open ones stay open."""
        which = {"topic": None, "partition": None, "group": None, "client_id": None}
        return self._add(RefuseFault(self, None, **which, when=None, times=times))

    def clear(self) -> None:
        """Remove them all."""
        for fault in self._active:
            fault.remove()

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._active = (*self._active, fault)
        return fault

    def forget(self, fault: Fault) -> None:
        """Remove a fault that has ended."""
        with self._lock:
            self._active = tuple(each for each in self._active if each is not fault)

    # --- for the broker's thread

    def refuses(self) -> bool:
        """Whether a new connection is to be closed."""
        return any(isinstance(fault, RefuseFault) and fault.count() for fault in self._active)

    @property
    def in_the_way(self) -> tuple[Fault, ...]:
        """The faults that each request has to pass, in this order."""
        return self._active


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()


def _then(reply: Reply[Any], change: Callable[[Any], Any]) -> Reply[Any]:
    """A reply that changes results, and lets errors pass."""
    return lambda result: reply(result if isinstance(result, Exception) else change(result))
