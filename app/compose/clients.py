"""The connectors of clients to brokers."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Condition, Lock
from typing import TYPE_CHECKING, Literal, TypeGuard

from ...ports.errors import ClosedError, ConfigError
from ...ports.report import Report
from ...ports.transport import Address, TransportError
from ..logs import log_report
from .tls import client_tls_of

if TYPE_CHECKING:
    from ...core.security.sasl.client import SaslFactory
    from ...ports.clock import Clock
    from ...ports.entropy import Entropy
    from ...ports.scheduler import Scheduler
    from ..config.security_settings import SecuritySettings
    from ..connector import Connector, Opened
    from ..in_process import BrokerHost


class _TcpConnector:
    """Fulfils `Connector` with sockets and a reactor of its own."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        protocol: str,
        client_id: str | None,
        request_timeout_ms: float,
        connect_timeout_ms: float,
        workers: int,
        report: Report,
        security: SecuritySettings | None,
    ) -> None:
        from ...adapters.system import SystemClock, SystemEntropy
        from ...adapters.transport_tcp.reactor import Reactor
        from ...adapters.transport_tcp.tcp import TcpTransport
        from ..background import ReactorThread

        self.bootstrap = tuple(bootstrap)
        self._protocol = protocol
        self.clock: Clock = SystemClock()
        self.entropy: Entropy = SystemEntropy()
        self._sasl = None if security is None else client_sasl(security, self.entropy)
        self._tls = None if security is None else client_tls_of(security)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._reactor = Reactor(report, workers=workers, lends_turns=protocol == "classic")
        self._transport = TcpTransport(self._reactor, report)
        self._thread = ReactorThread(self._reactor, f"barnabas-client {client_id or ''}".rstrip())

    def start(self) -> Scheduler:
        self._thread.start()
        return self._reactor

    def condition(self, lock: Lock) -> Condition:
        return Condition(lock)

    def owns_thread(self) -> bool:
        return self._thread.owns_caller() or self._reactor.is_lent_here

    def connect(self, address: Address, opened: Opened) -> None:
        if self._protocol == "classic":
            from ...adapters.wire_classic.client import connect_classic

            connect_classic(
                self._transport,
                self._reactor,
                address,
                request_timeout_ms=self._request_timeout_ms,
                connect_timeout_ms=self._connect_timeout_ms,
                opened=opened,
                tls=self._tls,
            )
            return
        from ... import __version__
        from ...adapters.wire_kafka.client import connect_kafka

        connect_kafka(
            self._transport,
            self._reactor,
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
            opened=opened,
            software_version=__version__,
            sasl=self._sasl,
            tls=self._tls,
        )

    def stop(self) -> None:
        self._thread.stop()


class _InProcessConnector:
    """Fulfils `Connector` with links to a broker object, and a reactor of its own; addresses do not matter to it."""

    def __init__(self, broker: BrokerHost, *, client_id: str | None, report: Report) -> None:
        from ...adapters.system import SystemClock, SystemEntropy
        from ...adapters.transport_tcp.reactor import Reactor
        from ..background import ReactorThread

        self.bootstrap: Sequence[Address] = (("in-process", 0),)
        self.clock: Clock = SystemClock()
        self.entropy: Entropy = SystemEntropy()
        self._broker = broker
        self._reactor = Reactor(report, workers=1)
        self._thread = ReactorThread(self._reactor, f"barnabas-client {client_id or ''}".rstrip())

    def start(self) -> Scheduler:
        self._thread.start()
        return self._reactor

    def condition(self, lock: Lock) -> Condition:
        return Condition(lock)

    def owns_thread(self) -> bool:
        return self._thread.owns_caller()

    def connect(self, address: Address, opened: Opened) -> None:  # noqa: ARG002
        from ..in_process import InProcessLink

        try:
            link = InProcessLink(self._broker, self._reactor)
        except ClosedError as error:
            opened(TransportError(f"the broker in this process does not run: {error}"))
            return
        opened(link)

    def stop(self) -> None:
        self._thread.stop()


def client_connector(
    bootstrap: object,
    *,
    client_id: str | None = None,
    request_timeout_ms: float = 30_000.0,
    connect_timeout_ms: float = 10_000.0,
    protocol: Literal["kafka", "classic"] = "kafka",
    workers: int = 1,
    report: Report = log_report,
    security: SecuritySettings | None = None,
) -> Connector:
    """Return the connector of a client: over TCP, or to a `Broker` object in its own process without a socket.

    `bootstrap` is the broker object; or "host:port", several of them separated by commas or in a list, also as
    (host, port) or `kafka://host:port`. For `protocol` classic it may be empty: the registries hold the addresses.
    `workers`: threads for what may block. `security`: TLS and SASL of TCP connections. Raises `ConfigError`.
    """
    from ..in_process import is_broker_host

    if is_broker_host(bootstrap):
        return _InProcessConnector(bootstrap, client_id=client_id, report=report)
    if bootstrap or protocol == "kafka":
        addresses = _addresses(bootstrap, protocol)
    else:
        addresses = []
    if security is not None and security.has_sasl and protocol == "classic":
        raise ConfigError(f"security.protocol={security.security_protocol}: the classic protocol has no SASL; use SSL")
    return _TcpConnector(
        addresses,
        protocol=protocol,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
        workers=workers,
        report=report,
        security=security,
    )


def client_sasl(security: SecuritySettings, entropy: Entropy) -> SaslFactory | None:
    """Return the SASL of a client's connections; None without. Raises `ConfigError`."""
    if not security.has_sasl:
        return None
    if security.sasl_mechanism == "OAUTHBEARER":
        from ...adapters.system import SystemClock
        from .oauthbearer import client_oauthbearer

        return client_oauthbearer(security, SystemClock())
    if security.sasl_mechanism == "GSSAPI":
        from .kerberos import client_kerberos

        return client_kerberos(security)
    from ...core.security.sasl.client import password_factory

    return password_factory(security.sasl_mechanism, security.login_module(), entropy, "sasl.jaas.config")


def _addresses(bootstrap: object, protocol: str) -> list[Address]:
    from ..config.listeners import parse_address

    if isinstance(bootstrap, str):
        texts: Sequence[object] = [part.strip() for part in bootstrap.split(",") if part.strip()]
    elif isinstance(bootstrap, Sequence) and not isinstance(bootstrap, bytes):
        texts = [bootstrap] if _is_pair(bootstrap) else bootstrap
    else:
        raise ConfigError(f"bootstrap {bootstrap!r} is neither HOST:PORT, nor a list of such, nor a Broker")
    addresses = []
    for each in texts:
        if isinstance(each, str):
            addresses.append(parse_address(each.removeprefix(f"{protocol}://"), f"bootstrap {each!r}"))
        elif _is_pair(each):
            addresses.append(each)
        else:
            raise ConfigError(f"bootstrap {each!r} is not HOST:PORT")
    if not addresses:
        raise ConfigError("bootstrap is empty; give HOST:PORT of at least one broker")
    return addresses


def _is_pair(value: object) -> TypeGuard[Address]:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int)
