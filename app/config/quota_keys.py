"""The keys of quotas, by Kafka's names."""

from ...core.security.quotas.entities import is_ip
from ...ports.errors import ConfigError
from ...ports.values import frozen
from .keys import INT_MAX, int_key, list_key

CONNECTION_KEYS = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)
"""The limits of connections, which change while the broker runs."""


@frozen(kw_only=True, slots=False)
class QuotaKeys:
    """A part of the table; see `BrokerConfig`."""

    max_connections: int = int_key(
        "max.connections",
        10_000,
        1,
        doc="Connections at a time, of the broker and of each listener; more wait until one closes.",
        dynamic=True,
        scope="listener",
    )
    max_connections_per_ip: int = int_key(
        "max.connections.per.ip", INT_MAX, 0, doc="Connections from one address; more are closed at once.", dynamic=True
    )
    max_connections_per_ip_overrides: tuple[str, ...] = list_key(
        "max.connections.per.ip.overrides",
        (),
        doc="ADDRESS:NUMBER,...: other limits for some addresses.",
        dynamic=True,
    )
    max_connection_creation_rate: int = int_key(
        "max.connection.creation.rate",
        INT_MAX,
        1,
        doc="New connections per second, of the broker and of each listener; more wait.",
        dynamic=True,
        scope="listener",
    )
    quota_window_num: int = int_key("quota.window.num", 11, 1, doc="The number of samples of a client quota.")
    quota_window_size_seconds: int = int_key("quota.window.size.seconds", 1, 1, doc="The time of one sample.")
    controller_quota_window_num: int = int_key(
        "controller.quota.window.num", 11, 1, doc="The number of samples of a quota of controller mutations."
    )
    controller_quota_window_size_seconds: int = int_key(
        "controller.quota.window.size.seconds", 1, 1, doc="The time of one sample of controller mutations."
    )

    @property
    def connections_per_ip(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address. Raises `ConfigError`."""
        found = {}
        for item in self.max_connections_per_ip_overrides:
            address, _, number = item.rpartition(":")
            host = address.strip("[]")
            if not is_ip(host) or not number.strip().isdecimal():
                text = "not ADDRESS:NUMBER, with an IP address and a number of connections"
                raise ConfigError(f"max.connections.per.ip.overrides has {item[:100]!r}, which is {text}")
            found[host] = int(number)
        return found
