"""TLS from the configuration: of a broker's listeners, of its connections to other brokers, and of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ..config.tls_keys import ssl_settings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ...adapters.transport_tls import CertificateReloading, TlsClient, TlsServer
    from ...ports.report import Report
    from ...ports.scheduler import Scheduler
    from ..config import BrokerConfig, ListenAddress
    from ..config.security_settings import SecuritySettings


class BrokerTls:
    """Fulfils `ListenerTls`: the TLS of a broker's listeners and of its connections to others. Owner thread only.

    Changed files are read again, and changed settings are used for new connections.
    """

    def __init__(self, config: BrokerConfig, scheduler: Scheduler, report: Report) -> None:
        self._config = config
        self._scheduler = scheduler
        self._report = report
        self._reloading: CertificateReloading | None = None
        self._followed: list[tuple[TlsServer | TlsClient, str]] = []
        """Each TLS, with the name of the listener that its settings are of."""

    def of_listener(self, listener: ListenAddress, config: BrokerConfig) -> TlsServer | None:
        """Return the TLS of a listener; None: it has none. Raises `ConfigError`, which names the listener."""
        if not listener.has_tls:
            return None
        from ...adapters.transport_tls import server_tls

        try:
            tls = server_tls(ssl_settings(config, listener.name))
        except ConfigError as error:
            raise ConfigError(f"listener {listener.name} ({listener.address_text}): {error}") from None
        index = config.inter_broker_listener
        is_for_brokers = index is not None and config.listener_list[index].name == listener.name
        self._follow(tls, listener.name, f"listener {listener.name}", must_verify=is_for_brokers)
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
        self._follow(tls, listener.name, "connections to other brokers", must_verify=False)
        return tls

    def checked_change(self, config: BrokerConfig) -> Callable[[], None] | None:
        """Return work for a worker thread that raises `ConfigError` if the settings of a listener in `config` cannot be
        used; None: it changes none."""
        if self._reloading is None:
            return None
        changes = [
            (listener, work)
            for tls, listener in self._followed
            if (work := self._reloading.checked_change(tls, ssl_settings(config, listener))) is not None
        ]

        def check() -> None:
            for listener, work in changes:
                try:
                    work()
                except ConfigError as error:
                    raise ConfigError(f"listener {listener}: {error}") from None

        return check if changes else None

    def change(self, config: BrokerConfig) -> None:
        """Use the settings of `config` for new connections; also read files again that have changed."""
        if self._reloading is not None:
            for tls, listener in self._followed:
                self._reloading.change(tls, ssl_settings(config, listener))

    def close(self) -> None:
        """End the checks of files."""
        if self._reloading is not None:
            self._reloading.close()

    def _follow(self, tls: TlsServer | TlsClient, listener: str, name: str, *, must_verify: bool) -> None:
        if self._reloading is None:
            from ...adapters.transport_tls import CertificateReloading

            self._reloading = CertificateReloading(self._scheduler, self._report)
        self._reloading.follow(tls, name, must_verify=must_verify)
        self._followed.append((tls, listener))


def https_context(settings: SslSettings, report: Report) -> ssl.SSLContext:
    """Return the context of an HTTPS server of another library; it follows changed files. Raises `ConfigError`."""
    from ...adapters.transport_tls import HttpsContext

    return HttpsContext(settings, report)


def client_tls_of(security: SecuritySettings) -> TlsClient | None:
    """Return the TLS of a client's connections; None: its settings ask for none. Raises `ConfigError`."""
    if not security.has_tls:
        return None
    from ...adapters.transport_tls import client_tls

    if security.ssl_context is not None:
        return client_tls(SslSettings(), security.ssl_context)
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
