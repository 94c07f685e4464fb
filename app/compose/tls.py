"""TLS from the configuration: of a broker's listeners, of its connections to other brokers, and of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ..config.tls_keys import ssl_settings

if TYPE_CHECKING:
    from ...adapters.transport_tls import CertificateReloading, TlsClient, TlsServer
    from ...ports.report import Report
    from ...ports.scheduler import Scheduler
    from ..config import BrokerConfig, ListenAddress
    from ..config.security_settings import SecuritySettings


class BrokerTls:
    """The TLS of a broker: of its listeners and of its connections to others. Changed files are read again."""

    def __init__(self, config: BrokerConfig, scheduler: Scheduler, report: Report) -> None:
        self._config = config
        self._scheduler = scheduler
        self._report = report
        self._reloading: CertificateReloading | None = None

    def of_listener(self, listener: ListenAddress) -> TlsServer | None:
        """Return the TLS of a listener; None: it has none. Raises `ConfigError`, which names the listener."""
        if not listener.has_tls:
            return None
        from ...adapters.transport_tls import server_tls

        try:
            tls = server_tls(ssl_settings(self._config, listener.name))
        except ConfigError as error:
            raise ConfigError(f"listener {listener.name} ({listener.address_text}): {error}") from None
        self._follow(tls, f"listener {listener.name}")
        return tls

    def of_other_brokers(self) -> TlsClient | None:
        """Return the TLS of connections to other brokers, with the certificate and the trusted authorities of the
        listener for them; None: it has none. Raises `ConfigError`."""
        index = self._config.inter_broker_listener
        if index is None or not self._config.listener_list[index].has_tls:
            return None
        from ...adapters.transport_tls import client_tls

        listener = self._config.listener_list[index]
        try:
            tls = client_tls(ssl_settings(self._config, listener.name))
        except ConfigError as error:
            raise ConfigError(f"connections to other brokers by listener {listener.name}: {error}") from None
        self._follow(tls, "connections to other brokers")
        return tls

    def close(self) -> None:
        """End the checks of files."""
        if self._reloading is not None:
            self._reloading.close()

    def _follow(self, tls: TlsServer | TlsClient, name: str) -> None:
        if self._reloading is None:
            from ...adapters.transport_tls import CertificateReloading

            self._reloading = CertificateReloading(self._scheduler, self._report)
        self._reloading.follow(tls, name)


def client_tls_of(security: SecuritySettings) -> TlsClient | None:
    """Return the TLS of a client's connections; None: its settings ask for none. Raises `ConfigError`."""
    if not security.has_tls:
        return None
    from ...adapters.transport_tls import client_tls

    highest = security.ssl_protocol
    return client_tls(
        SslSettings(
            keystore_type=security.ssl_keystore_type or "JKS",
            keystore_location=security.ssl_keystore_location or None,
            keystore_password=security.ssl_keystore_password or None,
            key_password=security.ssl_key_password or None,
            keystore_key=security.ssl_keystore_key or None,
            keystore_certificate_chain=security.ssl_keystore_certificate_chain or None,
            certificate_location=security.ssl_certificate_location or None,
            key_location=security.ssl_key_location or None,
            truststore_type=security.ssl_truststore_type or "JKS",
            truststore_location=security.ssl_truststore_location or None,
            truststore_password=security.ssl_truststore_password or None,
            truststore_certificates=security.ssl_truststore_certificates or None,
            enabled_protocols=tuple(
                name for name in security.ssl_enabled_protocols if not (highest == "TLSv1.2" and name == "TLSv1.3")
            ),
            cipher_suites=security.ssl_cipher_suites,
            endpoint_identification_algorithm=(
                "https" if security.ssl_endpoint_identification_algorithm == "https" else ""
            ),
            verify_peer=security.enable_ssl_certificate_verification,
        )
    )
