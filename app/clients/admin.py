"""Topics, configurations, groups, transactions and the cluster, for those who run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .admin_cluster import ClusterAdmin
from .admin_configs import ConfigAdmin
from .admin_groups import GroupAdmin
from .admin_transactions import TransactionAdmin
from .opening import open_shell
from .settings import CommonSettings, read_settings

if TYPE_CHECKING:
    from types import TracebackType


class Admin(GroupAdmin, TransactionAdmin, ConfigAdmin, ClusterAdmin):
    """Asks and changes. Every call waits for its answer, up to `default.api.timeout.ms`; callable from any thread.

    with Admin("localhost:9092") as admin:
        admin.create_topic("views", partitions=3, configs={"retention.ms": "86400000"})

    Calls on several things raise the first error only after everything was asked for; what could be done is done.
    """

    def __init__(self, bootstrap: object, *, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """`bootstrap`: "host:port,host:port" or a running `Broker`. Raises `ConfigError`, `TransportError`."""
        self.settings = read_settings(CommonSettings, config, settings)
        self._shell = open_shell(bootstrap, self.settings)

    def close(self) -> None:
        """Hang up. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
