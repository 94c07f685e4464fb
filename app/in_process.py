"""Requests to a broker object in the same process, without a socket."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, TypeGuard

from attrs import evolve

from ..ports.broker_api.classic import ClassicProduce
from ..ports.broker_api.envelope import BrokerApi, Caller, Reply, Request, ResultT
from ..ports.broker_api.produce import Produce
from ..ports.errors import ClosedError
from ..ports.scheduler import Scheduler
from ..ports.transport import TransportError

_numbers = count(-1, -1)
"""The numbers of links in `Caller.connection`: negative, so that they differ from those of sockets."""


class BrokerHost(Protocol):
    """A running broker and its thread."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def api(self) -> BrokerApi: ...

    def attach(self, link: "InProcessLink") -> None:
        """Remember the link, to call its `broken` when the broker stops. Broker's thread."""
        ...

    def detach(self, link: "InProcessLink") -> None:
        """Forget the link, and whatever still waits for it. Broker's thread."""
        ...


def is_broker_host(value: object) -> TypeGuard[BrokerHost]:
    """Return True if a value is a broker of this process."""
    return all(hasattr(type(value), name) for name in ("api", "attach", "detach"))


class InProcessLink:
    """Fulfils `BrokerLink`. It belongs to the client's thread; each request and answer crosses by `call_soon`."""

    def __init__(self, host: BrokerHost, client: Scheduler) -> None:
        """Raises `ClosedError` when the broker has stopped."""
        self._host = host
        self._client = client
        self._waiting: dict[int, Reply[Any]] = {}
        self._last = 0
        self._failure: TransportError | None = None
        self.connection = next(_numbers)
        host.scheduler.call_soon(lambda: host.attach(self))

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """See `BrokerApi`. Records to append are copied, since the broker reads them when this has returned."""
        if self._failure is not None:
            reply(self._failure)
            return
        self._last += 1
        number = self._last
        self._waiting[number] = reply
        owned = _with_own_records(request)
        caller = evolve(caller, connection=self.connection)
        answer: Callable[[Any], None] = lambda result: self._deliver(number, result)  # noqa: E731
        try:
            self._host.scheduler.call_soon(lambda: self._host.api.submit(owned, caller, answer))
        except ClosedError:
            self._fail()

    def close(self) -> None:
        """Give up; replies still outstanding get a `TransportError`."""
        self._fail("the link was closed")
        with suppress(ClosedError):
            self._host.scheduler.call_soon(lambda: self._host.detach(self))

    def broken(self) -> None:
        """The broker stops. Broker's thread."""
        with suppress(ClosedError):
            self._client.call_soon(self._fail)

    def _deliver(self, number: int, result: Any) -> None:
        with suppress(ClosedError):  # the client has gone
            self._client.call_soon(lambda: self._answer(number, result))

    def _answer(self, number: int, result: Any) -> None:
        reply = self._waiting.pop(number, None)
        if reply is not None:
            reply(result)

    def _fail(self, why: str = "the broker in this process has stopped") -> None:
        if self._failure is None:
            self._failure = TransportError(why)
            waiting, self._waiting = self._waiting, {}
            for reply in waiting.values():
                reply(self._failure)


def _with_own_records(request: Request[Any]) -> Request[Any]:
    """Return a produce request with copies of its records, and any other request as it is."""
    if isinstance(request, Produce):
        return evolve(request, partitions=[evolve(each, records=_copied(each.records)) for each in request.partitions])
    if isinstance(request, ClassicProduce):
        return evolve(request, partitions=[evolve(each, records=_copied(each.records)) for each in request.partitions])
    return request


def _copied(records: memoryview) -> memoryview:
    return memoryview(bytearray(records))
