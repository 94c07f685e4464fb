"""The dependencies of a broker: its ports, and the servers of its protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ....core.client.network.connection import Connect
from ....core.security.quotas.request_quotas import RequestQuotas
from ....core.security.sasl.exchange import ServerExchange
from ....core.security.sasl.oauthbearer import TokenValidator
from ....core.security.sasl.server_authenticator import SaslListener
from ....core.traffic.socket_server_metrics import SocketServerMetrics
from ....core.traffic.steps import StepRunner
from ....plugins.host import PluginHost
from ....ports.broker_api.cluster import ConnectionDescription
from ....ports.broker_api.envelope import BrokerApi, Principal
from ....ports.broker_api.features import FeatureMetadata
from ....ports.clock import Clock
from ....ports.coordination import Coordination
from ....ports.entropy import Entropy
from ....ports.metrics import Metrics
from ....ports.report import Report
from ....ports.scheduler import Scheduler
from ....ports.storage import LogDir
from ....ports.transport import Connection, ConnectionHandler, ServerTls, Transport
from ....ports.values import frozen
from ...config import BrokerConfig, ListenAddress

if TYPE_CHECKING:
    from .tiering import RemoteOutside


class ServerConnection(Protocol):
    """One connection of a server."""

    @property
    def software(self) -> tuple[str, str]:
        """Name and version of the client's software; empty if it does not say them."""
        ...

    def describe(self) -> ConnectionDescription:
        """Describe the connection for operators."""
        ...


class Server(Protocol):
    """The protocol of one listener."""

    def accept(self, connection: Connection) -> ConnectionHandler:
        """Return the handler of a new connection."""
        ...

    @property
    def connections(self) -> Mapping[int, ServerConnection]:
        """The open connections by `Caller.connection`, in this order."""
        ...

    def close(self, reason: str) -> int:
        """Close every connection once its responses are sent; returns the number of those that are still open."""
        ...


ExposeMetrics = Callable[[Metrics, Callable[[], str | None]], Callable[[], None]]
"""Exposes metrics; the second argument returns the reason why the broker takes no requests. Returns a stop function."""


class MakeServer(Protocol):
    """Makes the server of a listener.

    gone:         called with the number (`Caller.connection`) of each connection that has closed.
    topic_name:   returns the name of a topic by its id, or nothing.
    is_appending: returns True while records that came over a connection are being validated.
    identity:     the cluster's id and the broker's.
    quotas:       the limits of clients.
    sasl:         the SASL that every client has to pass; None: the listener has none.
    principal_of: returns the principal of a connection by its client certificate; None: the listener asks for none.
    metrics:      counts the connections and logins.
    features:     returns the features of the cluster, for clients.
    """

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
        quotas: RequestQuotas,
        sasl: SaslListener | None,
        principal_of: Callable[[Connection], Principal] | None,
        metrics: SocketServerMetrics,
        features: Callable[[], FeatureMetadata],
    ) -> Server: ...


class ListenerTls(Protocol):
    """The TLS of a broker's listeners, by its configuration. Owner thread only."""

    def of_listener(self, listener: ListenAddress, config: BrokerConfig) -> ServerTls | None:
        """Return the TLS of a listener; None: it has none. Raises `ConfigError`."""
        ...

    def checked_change(self, config: BrokerConfig) -> Callable[[], None] | None:
        """Return work for a worker thread that raises `ConfigError` if the listeners cannot use another configuration;
        None: nothing changes for them."""
        ...

    def change(self, config: BrokerConfig) -> None:
        """Use another configuration for new connections; what cannot be used is reported, and the old one stays."""
        ...


@frozen(kw_only=True)
class Outside:
    """The dependencies of a broker."""

    clock: Clock
    entropy: Entropy
    scheduler: Scheduler
    transport: Transport
    metrics: Metrics
    open_log_dirs: Callable[[], Sequence[LogDir]]
    open_coordination: Callable[[], Coordination]
    servers: Mapping[str, MakeServer]
    """The makers of servers by protocol, the word before `://` in a listener."""
    report: Report
    """Takes the lines for the log."""
    finish: Callable[[], None] = lambda: None
    """Called at the end, to log pending summaries."""
    expose_metrics: ExposeMetrics | None = None
    """Exposes the metrics to the outside."""
    shared: bool = False
    """True if other brokers can reach the same coordination tree."""
    lease_clock: Clock | None = None
    """The clock of the lease on the coordination session, and of the lag of followers; None: `clock`."""
    connect: Connect | None = None
    """Opens links to other brokers; needed where the tree is shared."""
    kerberos: Callable[[BrokerConfig, str], Callable[[], ServerExchange]] | None = None
    """Returns what makes the exchanges of GSSAPI of a listener by its name; None: there is no Kerberos."""
    token_validator: Callable[[BrokerConfig, str, PluginHost], TokenValidator] | None = None
    """Makes the validator of OAuth tokens for a listener by its name."""
    open_remote_storage: Callable[[], RemoteOutside] | None = None
    """Opens the remote storage; None: there is none."""
    listener_tls: ListenerTls | None = None
    """The TLS of listeners; None: no listener may have one."""
    host_name: str = "localhost"
    """The host for clients of a listener on every interface when nothing is advertised."""


class MakeOutside(Protocol):
    """Makes the dependencies of a broker with this configuration (see `app.compose.outside_of`)."""

    def __call__(
        self,
        config: BrokerConfig,
        *,
        scheduler: Scheduler,
        transport: Transport,
        metrics: Metrics | None,
        report: Callable[[str], None],
        plugins: PluginHost,
    ) -> Outside: ...
