"""The first argument of every client: where its cluster is."""

from collections.abc import Mapping, Sequence
from typing import Any

from ....ports.values import frozen
from ...config.security_settings import SecuritySettings
from ...connector import Connector, MakesConnectors
from ...in_process import BrokerHost


@frozen
class SecuredBootstrap:
    """The addresses of brokers with the security of their cluster; every client takes it in place of addresses."""

    bootstrap: object
    security: SecuritySettings

    def __str__(self) -> str:
        return str(self.bootstrap)


Bootstrap = (
    str
    | Sequence[str | tuple[str, int]]
    | tuple[str, int]
    | Mapping[str, Any]
    | BrokerHost
    | SecuredBootstrap
    | Connector
    | MakesConnectors
)
"""`"host:port,host:port"`, several addresses, a mapping of settings with `bootstrap.servers`, or a running `Broker` of
this process. The last three are for Barnabas itself, and for simulations."""
