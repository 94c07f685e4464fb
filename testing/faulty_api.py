"""Fault injection between a broker and its clients."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ..app.broker.state.dependencies import MakeServer, Server, ServerConnection
from ..core.security.quotas.request_quotas import RequestQuotas
from ..core.security.sasl.server_authenticator import SaslListener
from ..core.traffic.socket_server_metrics import SocketServerMetrics
from ..core.traffic.steps import StepRunner
from ..ports.broker_api.envelope import BrokerApi, Caller, Principal, Reply, Request, ResultT
from ..ports.broker_api.features import FeatureMetadata
from ..ports.errors import ClosedError
from ..ports.scheduler import Scheduler
from ..ports.transport import Connection, ConnectionHandler, TransportError
from .faults import Fault, Faults


class FaultyApi:
    """Fulfils `BrokerApi` with another one, and the faults in force."""

    def __init__(self, api: BrokerApi, faults: Faults, scheduler: Scheduler) -> None:
        self._api = api
        self._faults = faults
        self._scheduler = scheduler

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """See `BrokerApi`."""
        faults = self._faults.in_the_way
        if faults:
            self._submit(faults, request, caller, reply)
        else:
            self._api.submit(request, caller, reply)

    def _submit(self, faults: tuple[Fault, ...], request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
        for index, fault in enumerate(faults):
            if fault.takes(request, caller):
                fault.apply(request, caller, reply, partial(self._submit, faults[index + 1 :]), self._later)
                return
        self._api.submit(request, caller, reply)

    def _later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        with suppress(ClosedError):  # the broker stops: no client waits for the answer
            self._scheduler.call_later(delay_ms, callback)


class FaultyServer:
    """Fulfils `Server` with another one; may refuse connections."""

    def __init__(self, server: Server, faults: Faults) -> None:
        self._server = server
        self._faults = faults

    def accept(self, connection: Connection) -> ConnectionHandler:
        """Return the handler of a new connection."""
        if self._faults.refuses():
            connection.close()
            return _Refused()
        return self._server.accept(connection)

    @property
    def connections(self) -> Mapping[int, ServerConnection]:
        """See `Server`."""
        return self._server.connections

    def close(self, reason: str) -> int:
        """See `Server`."""
        return self._server.close(reason)


class _Refused:
    """The handler of a connection that is closed before it has said anything."""

    def on_frame(self, content: memoryview) -> None:
        """Ignore frames: none arrive."""

    def on_closed(self, error: TransportError | None) -> None:
        """Ignore the end of the connection."""


def faulty_servers(
    make: MakeServer, faults: Faults, scheduler: Scheduler, made: Callable[[Server], None]
) -> MakeServer:
    """Makes servers with faults; `made` is called with each."""

    def make_faulty(
        api: BrokerApi,
        *,
        listener: str,
        max_in_flight: int,
        gone: Callable[[int], None],
        steps: StepRunner,
        topic_name: Callable[[bytes], str],
        is_appending: Callable[[int], bool],
        identity: tuple[str, int],
        quotas: RequestQuotas,
        sasl: SaslListener | None,
        principal_of: Callable[[Connection], Principal] | None,
        metrics: SocketServerMetrics,
        features: Callable[[], FeatureMetadata],
    ) -> Server:
        inner = make(
            FaultyApi(api, faults, scheduler),
            listener=listener,
            max_in_flight=max_in_flight,
            gone=gone,
            steps=steps,
            topic_name=topic_name,
            is_appending=is_appending,
            identity=identity,
            quotas=quotas,
            sasl=sasl,
            principal_of=principal_of,
            metrics=metrics,
            features=features,
        )
        server = FaultyServer(inner, faults)
        made(server)
        return server

    return make_faulty
