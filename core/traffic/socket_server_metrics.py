"""The metrics of a listener, Kafka's group `socket-server-metrics`."""

from ...ports.metrics import Counter, Metrics

_PREFIX = "kafka_server_socketservermetrics_"


class SocketServerMetrics:
    """Counts connections, logins and sessions of one listener."""

    def __init__(self, metrics: Metrics, listener: str) -> None:
        def counter(name: str, description: str) -> Counter:
            return metrics.counter(f"{_PREFIX}{name}", description, listener=listener)

        self.connections_created = counter("connection_creation_total", "Connections accepted.")
        self.connections_closed = counter("connection_close_total", "Connections closed.")
        self.authenticated = counter(
            "successful_authentication_total", "Connections that are authenticated; without SASL each one is."
        )
        self.authentication_failed = counter(
            "failed_authentication_total", "Connections closed after a failed login or TLS handshake."
        )
        self.reauthenticated = counter("successful_reauthentication_total", "Sessions continued by a new login.")
        self.reauthentication_failed = counter(
            "failed_reauthentication_total", "Connections closed after a failed login that was to continue a session."
        )
        self.expired_connections_killed = 0
        """Connections closed since they were used after the end of their session."""
        metrics.gauge(
            f"{_PREFIX}expired_connections_killed_count",  # Kafka's name is not that of a counter
            "Connections closed since they were used after the end of their session.",
            lambda: float(self.expired_connections_killed),
            listener=listener,
        )
