"""What a broker needs from the outside, and makes of it: its ports, and the servers of its protocols."""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Protocol

from ....core.client.network.connection import Connect
from ....core.traffic.steps import StepRunner
from ....ports.broker_api.envelope import BrokerApi
from ....ports.clock import Clock
from ....ports.coordination import Coordination
from ....ports.entropy import Entropy
from ....ports.metrics import Metrics
from ....ports.report import Report
from ....ports.scheduler import Scheduler
from ....ports.storage import LogDir
from ....ports.transport import Connection, ConnectionHandler, Transport
from ....ports.values import frozen
from ...config import BrokerConfig
from .gate import Authorizer, everyone


class Server(Protocol):
    """The protocol of one listener."""

    def accept(self, connection: Connection) -> ConnectionHandler:
        """The handler of a new connection."""
        ...

    @property
    def connections(self) -> Sized:
        """Those that are open."""
        ...

    def close(self, reason: str) -> int:
        """Close every connection once what was answered has gone out; returns how many have not gone yet."""
        ...


ExposeMetrics = Callable[[Metrics, Callable[[], str | None]], Callable[[], None]]
"""Lets metrics be seen; the second one tells why the broker takes no requests now. Returns how to end it."""


class MakeServer(Protocol):
    """Makes a server; `gone` is told the number (`Caller.connection`) of each connection that has closed, `topic_name`
    tells the name of a topic by its id, or nothing; `is_appending` is true while records that came over a connection
    are being opened; `identity` is the cluster's id and the broker's."""

    def __call__(
        self,
        api: BrokerApi,
        *,
        listener: str,
        max_in_flight: int,
        gone: Callable[[int], None],
        steps: StepRunner,
        topic_name: Callable[[bytes], str],
        is_appending: Callable[[int], bool],
        identity: tuple[str, int],
    ) -> Server: ...


@frozen(kw_only=True)
class Outside:
    """What a broker needs from the outside."""

    clock: Clock
    entropy: Entropy
    scheduler: Scheduler
    transport: Transport
    metrics: Metrics
    open_log_dirs: Callable[[], Sequence[LogDir]]
    open_coordination: Callable[[], Coordination]
    servers: Mapping[str, MakeServer]
    """By protocol, the word before `://` in a listener."""
    report: Report
    """Takes the lines for the log."""
    finish: Callable[[], None] = lambda: None
    """Called at the end: what was counted for the log is told."""
    expose_metrics: ExposeMetrics | None = None
    """Lets the metrics be seen from elsewhere."""
    authorizer: Authorizer = everyone
    """Asked about every request."""
    shared: bool = False
    """True if other brokers can reach the same coordination tree."""
    connect: Connect | None = None
    """Opens links to other brokers; needed where the tree is shared."""
    host_name: str = "localhost"
    """What to tell clients of a listener on every interface when nothing is advertised."""


class MakeOutside(Protocol):
    """Makes what a broker of this configuration gets from the outside (see `app.compose.outside_of`)."""

    def __call__(
        self,
        config: BrokerConfig,
        *,
        scheduler: Scheduler,
        transport: Transport,
        metrics: Metrics | None,
        report: Callable[[str], None],
    ) -> Outside: ...
